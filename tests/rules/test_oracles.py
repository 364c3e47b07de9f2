"""The mathematics against problems whose answer is known: quadratics, closed forms, and a plain loop written from the
equations."""

import copy

import pytest
import torch
from torch.nn import functional as F

import accord
from accord import Conditions
from accord.core.layout import Layout
from accord.core.losses import accuracy, cross_entropy
from accord.core.protocols import Average
from accord.engines.contract import Job, Member, batches
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from conftest import Point, blobs, cost, mlp, quadratics

TWO = quadratics((1.0, -1.0), (10.0, 2.0))
OPTIMUM = (1 * -1 + 10 * 2) / 11  # 1.727273


def settle(algorithm: Algorithm, fed=TWO, rounds: int = 300, **more) -> float:
    """Where x ends up: ten local steps of 0.05 from 0, every round."""
    settings = {
        "sample": None,
        "epochs": 10,
        "batch": 1,
        "lr": 0.05,
        "momentum": 0.0,
        "loss": cost,
        "metrics": {},
        **more,
    }
    run = accord.fit(Point(), fed, algorithm, rounds=rounds, evaluate_every=rounds, **settings)
    return run.model().x.item()


def test_fedavg_stalls_where_the_algebra_says() -> None:
    # Ten steps contract a client by (1 - 0.05 a)^10 towards its own optimum; the fixed point of the average is this.
    pull = [1 - (1 - 0.05 * a) ** 10 for a in (1, 10)]
    expected = (pull[0] * -1 + pull[1] * 2) / sum(pull)
    assert expected == pytest.approx(1.140327, abs=1e-6)
    assert settle(accord.fedavg()) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("option", ["mean", "I", "II"])
def test_scaffold_reaches_the_optimum(option: str) -> None:
    assert settle(accord.scaffold(option)) == pytest.approx(OPTIMUM, abs=1e-9)
    assert pytest.approx(1.727273, abs=1e-6) == OPTIMUM


def test_scaffold_with_momentum_still_reaches_the_optimum() -> None:
    assert settle(accord.scaffold("mean"), momentum=0.5, lr=0.02) == pytest.approx(OPTIMUM, abs=1e-9)


def test_scaffold_with_sampled_clients_reaches_the_optimum() -> None:
    assert settle(accord.scaffold(), sample=1) == pytest.approx(OPTIMUM, abs=1e-9)


@pytest.mark.filterwarnings("ignore::accord.training.loop.SkippedRound")
def test_scaffold_reaches_the_optimum_though_three_reports_in_ten_are_lost() -> None:
    assert settle(accord.scaffold(), conditions=Conditions(lost=0.3)) == pytest.approx(OPTIMUM, abs=1e-9)


def test_option_two_equals_the_mean_gradient_without_momentum() -> None:
    """With several steps an epoch: K counts steps."""
    settings = {"rounds": 4, "sample": 5, "momentum": 0.0, "weight_decay": 0.01, "clip": 0.5, "batch": 8, "epochs": 2}
    runs = [accord.fit(mlp(), blobs(), accord.scaffold(o), **settings) for o in ("mean", "II")]
    assert torch.allclose(runs[0].last.vector, runs[1].last.vector, atol=1e-5)


def test_fedprox_with_huge_mu_stays_at_its_anchor() -> None:
    # Each client ends where a (x - b) + mu (x - 0) = 0; at mu = 1e4 that is within a thousandth of the anchor at 0.
    held = settle(accord.fedprox(mu=1e4), rounds=1, lr=5e-5, epochs=100)
    assert held == pytest.approx((1 * -1 / (1 + 1e4) + 10 * 2 / (10 + 1e4)) / 2, rel=1e-9)
    assert abs(held) < 1e-3
    assert settle(accord.fedprox(mu=1e8), rounds=1, lr=5e-9, epochs=100) == pytest.approx(0.0, abs=1e-6)


def test_fedprox_fixed_point_of_one_client() -> None:
    # Minimise 10/2 (x - 2)^2 + mu/2 (x - 0)^2: x = 20 / (10 + mu).
    assert settle(accord.fedprox(mu=5.0), quadratics((10.0, 2.0)), rounds=1, epochs=500) == pytest.approx(
        20 / 15, abs=1e-9
    )


def test_fedsgd_is_gradient_descent_on_the_average() -> None:
    # One step: x = 0 - 0.05 * mean gradient; gradients at 0 are a (0 - b) = 1 and -20.
    assert settle(accord.fedsgd(), rounds=1) == pytest.approx(0.05 * 19 / 2)
    assert settle(accord.fedsgd(), rounds=400) == pytest.approx(OPTIMUM, abs=1e-9)


def test_gma_on_two_clients_that_pull_apart_stands_still() -> None:
    assert settle(accord.fedavg(mask=accord.gma(0.4)), rounds=1, fed=quadratics((1.0, -1.0), (10.0, 2.0))) == 0.0
    agreeing = settle(accord.fedavg(mask=accord.gma(0.4)), quadratics((1.0, 1.0), (10.0, 2.0)), rounds=1)
    assert agreeing == settle(accord.fedavg(), quadratics((1.0, 1.0), (10.0, 2.0)), rounds=1)


@pytest.mark.parametrize("eta_s", [0.01, 0.1])
def test_first_fedgma_settles_where_the_algebra_says(eta_s: float) -> None:
    # Unmasked, a round moves x by pull (b - x) and by eta_s a (b - x) of every client: it settles at the mean of the b
    # with these weights.
    pull = [1 - (1 - 0.05 * a) ** 10 + eta_s * a for a in (1, 10)]
    expected = (pull[0] * -1 + pull[1] * 2) / sum(pull)
    assert 1.140327 < expected < OPTIMUM
    assert settle(accord.fedgma(p=0.0, eta_s=eta_s, gradient="start")) == pytest.approx(expected, abs=1e-9)
    # Between their optima two clients never agree, so the masked step is none, and it stalls where FedAvg does.
    assert settle(accord.fedgma(p=0.8, eta_s=eta_s, gradient="start")) == pytest.approx(1.140327, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.5])
@pytest.mark.parametrize("passes", [1, 2])
def test_corrective_weights_in_one_dimension(alpha: float, passes: int) -> None:
    # x_i D_i = c sign(D) / sqrt(K) for every client there: the mean of the ends moves by sqrt(K) c against the sum of
    # the gradients, and L_i / |D_i| is half of client i's way to its optimum.
    left = [b * (1 - 0.05 * a) ** 10 for a, b in ((1, -1), (10, 2))]  # b - x_i after ten steps from 0
    slope = sum(-a * way for a, way in zip((1, 10), left, strict=True))
    mean = (-1 - left[0] + 2 - left[1]) / 2
    expected = mean - (1 if slope > 0 else -1) * 2**0.5 * alpha * min(abs(way) for way in left) / 2
    assert settle(accord.fedavg(average=accord.corrective(alpha, passes=passes)), rounds=1) == pytest.approx(
        expected, abs=1e-12
    )


def test_magnitude_goes_on_where_votes_stand_still_and_slows_down_as_clients_cancel_out() -> None:
    # Near FedAvg's fixed point a step is s d times its magnitude agreement s d / g, so the distance d falls as g / (s^2
    # rounds).
    pull = [1 - (1 - 0.05 * a) ** 10 for a in (1, 10)]
    end, s = (pull[1] * 2 - pull[0]) / sum(pull), sum(pull) / 2
    g = (pull[0] * (end + 1) + pull[1] * (2 - end)) / 2
    for rounds in (150, 300):
        assert end - settle(accord.fedavg(mask=accord.magnitude(0.9)), rounds=rounds) == pytest.approx(
            g / (s**2 * rounds), rel=0.1
        )
    # agreement 0.665
    assert settle(accord.fedavg(mask=accord.magnitude(0.6)), rounds=1) == settle(accord.fedavg(), rounds=1)


def test_the_control_of_one_coordinate_is_the_mask() -> None:
    three = quadratics((1.0, 1.0), (1.0, 2.0), (1.0, -1.0))
    for mask in (accord.gma(0.6), accord.magnitude(0.9), accord.sand(0.2, k=0.1)):
        assert settle(accord.fedavg(mask=accord.scaled(mask)), three, rounds=5) == settle(
            accord.fedavg(mask=mask), three, rounds=5
        )


FIVE = quadratics(*((1.0, b) for b in (0.0, 1.0, 2.0, 4.0, 10.0)))


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        (accord.mean(), 3.4),
        (accord.median(), 2.0),
        (accord.trimmed_mean(0.2), 7 / 3),  # of 1, 2 and 4
        (accord.krum(1), 1.0),  # nearest to two others: 1 + 1, against 1 + 4 for both 0 and 2
        (accord.krum(1, keep=3), 1.0),  # 0, 1 and 2
    ],
    ids=repr,
)
def test_averages_settle_on_the_average_of_the_clients_optima(average: Average, expected: float) -> None:
    """With equal curvatures every client moves by the same share of its way, so an average of updates is one of
    optima."""
    assert settle(accord.fedavg(average=average), FIVE, rounds=100) == pytest.approx(expected, abs=1e-9)


def test_the_geometric_mean_stops_at_the_first_optimum_it_meets() -> None:
    # All pull up until the client at 1 does not. One round goes a hundredth of the geometric mean of five ways, so it
    # hardly oversteps.
    short = {"epochs": 1, "lr": 0.01, "rounds": 150}
    ahead = quadratics(*((1.0, b) for b in (1.0, 2.0, 3.0, 5.0, 11.0)))
    assert settle(accord.fedavg(average=accord.geometric_mean()), ahead, **short) == pytest.approx(1.0, abs=0.02)
    assert settle(accord.fedavg(average=accord.geometric_mean()), FIVE, **short) == 0.0  # one client has nowhere to go


def plain_loop(rounds: int, sample: int, tau: float | None) -> torch.Tensor:
    """FedAvg (+GMA) written from the equations with modules and torch.optim.SGD; only the keyed draws are accord's."""
    fed, server = blobs(), mlp()
    job = Job(
        server,
        Layout.of(server),
        fed,
        accord.fedavg(),
        Training(),
        cross_entropy,
        {"accuracy": accuracy},
        0,
        torch.device("cpu"),
    )
    for number in range(1, rounds + 1):
        before = torch.nn.utils.parameters_to_vector(server.parameters()).detach()
        chosen = [fed.clients[i] for i in accord.draws.choose(len(fed.clients), sample, 0, "sample", number)]
        deltas, sizes = [], []
        for client in chosen:
            local = copy.deepcopy(server)
            optimiser = torch.optim.SGD(local.parameters(), lr=0.01, momentum=0.9)
            for rows in batches(job, number, Member(client, fed.train[client])):
                optimiser.zero_grad()
                F.cross_entropy(local(fed.x[rows]), fed.y[rows]).backward()
                optimiser.step()
            deltas.append(torch.nn.utils.parameters_to_vector(local.parameters()).detach() - before)
            sizes.append(len(fed.train[client]))
        stacked, weight = torch.stack(deltas), torch.tensor(sizes) / sum(sizes)
        update = (weight[:, None] * stacked).sum(0)
        if tau is not None:
            agreement = stacked.sign().mean(0).abs()
            update = torch.where(agreement >= tau - 1e-6, 1.0, agreement) * update
        torch.nn.utils.vector_to_parameters(before + update, server.parameters())
    return torch.nn.utils.parameters_to_vector(server.parameters()).detach()


@pytest.mark.parametrize("tau", [None, 0.4])
def test_the_engine_equals_a_plain_loop(tau: float | None) -> None:
    algorithm = accord.fedavg(mask=None if tau is None else accord.gma(tau))
    run = accord.fit(mlp(), blobs(), algorithm, rounds=3, sample=5)
    assert torch.allclose(run.last.vector, plain_loop(3, 5, tau), atol=1e-6)


def test_local_sgd_options_equal_torchs() -> None:
    """Momentum, weight decay and clipping against torch's own, one client, one round."""
    fed = blobs(clients=1, unseen=0)
    run = accord.fit(
        mlp(), fed, rounds=1, sample=1, lr=0.1, momentum=0.8, weight_decay=0.05, clip=0.3, epochs=2, batch=7
    )
    module = mlp()
    job = Job(
        module,
        Layout.of(module),
        fed,
        accord.fedavg(),
        Training(epochs=2, batch=7),
        cross_entropy,
        {},
        0,
        torch.device("cpu"),
    )
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.8, weight_decay=0.05)
    for rows in batches(job, 1, Member("c00", fed.train["c00"])):
        optimiser.zero_grad()
        F.cross_entropy(module(fed.x[rows]), fed.y[rows]).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.3)
        optimiser.step()
    assert torch.allclose(run.last.vector, torch.nn.utils.parameters_to_vector(module.parameters()), atol=1e-6)
