"""FedGMA as first published: numbers worked by hand, a closed form, a plain loop written from algorithm 1, and what it
refuses."""

import copy

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

import accord
from accord.core.layout import Layout
from accord.core.losses import cross_entropy
from accord.core.reports import Reports
from accord.core.round import Round
from accord.engines.contract import Job, Member, batches
from accord.experiments.experiment import parse
from accord.rules.algorithm import Algorithm
from accord.rules.averages import masked_gradient
from accord.rules.local import Training
from conftest import Point, blobs, cost, mlp, quadratics, sentence

# Three clients with 1, 1 and 2 samples. The mean update is (2, 2), the mean gradient (2.25, 1), that of its size (2.25,
# 1.5).
DELTA = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 4.0]])
GRADIENT = torch.tensor([[1.0, 1.0], [2.0, -1.0], [3.0, 2.0]])
SAMPLES = torch.tensor([[1.0], [1.0], [2.0]])


def update(average: masked_gradient, gradient: torch.Tensor = GRADIENT, parts: int = 1) -> list[float]:
    """What the three clients' reports come to, added up in so many parts."""
    algorithm = Algorithm(average=average)
    layout = Layout.flat(2)
    memory = algorithm.init(layout, 3, torch.zeros(2))
    extra = {f"{average.gradient}_gradient": gradient}
    reports = Reports(DELTA, SAMPLES, torch.ones(3, 1), DELTA[:, :0], extra)
    record = None
    for some in torch.arange(3).tensor_split(parts):
        lifted = algorithm.lift(reports.of(some), memory)
        record = lifted if record is None else record + lifted
    lowered, _, _ = algorithm.lower(record, memory, Round(1, layout, 3))
    assert lowered.mask is None
    return lowered.update.tolist()


@pytest.mark.parametrize(
    ("average", "gradient", "expected"),
    [
        (masked_gradient(0.8, 0.1), GRADIENT, [2 - 0.225, 2.0]),  # three votes of three pass, one does not
        (masked_gradient(0.3, 0.1), GRADIENT, [2 - 0.225, 2 - 0.1]),
        (masked_gradient(0.8, 0.1), -GRADIENT, [2 + 0.225, 2.0]),
        (masked_gradient(0.8, 1.0, gradient="start"), GRADIENT, [2 - 2.25, 2.0]),
        (masked_gradient(0.8, 0.1, variant="poster"), GRADIENT, [2 + 0.225, 2.0]),
        (masked_gradient(0.3, 0.1, variant="poster"), GRADIENT, [2 + 0.225, 2 + 0.15]),
        (masked_gradient(0.3, 0.1, variant="poster"), -GRADIENT, [2.0, 2.0]),  # the poster's mask has no absolute value
        (masked_gradient(0.8, 0.1, weighting="uniform"), GRADIENT, [2 - 0.2, 4 / 3]),
    ],
)
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_numbers_worked_by_hand(
    average: masked_gradient, gradient: torch.Tensor, expected: list[float], parts: int
) -> None:
    assert update(average, gradient, parts) == pytest.approx(expected)


def test_p_counts_whole_votes() -> None:
    """Ten clients, nine of one mind: a net vote of 8, which is 0.8 of 10 exactly."""
    gradients = torch.tensor([[1.0]] * 9 + [[-1.0]])
    average = masked_gradient(0.8, 1.0, weighting="uniform")
    reports = Reports(
        torch.zeros(10, 1), torch.ones(10, 1), torch.ones(10, 1), torch.zeros(10, 0), {"last_gradient": gradients}
    )
    moved, _ = average.lower(average.lift(reports, {}), {}, Round(1, Layout.flat(1), 10))
    assert moved.item() == pytest.approx(-0.8)
    none, _ = masked_gradient(0.81, 1.0).lower(average.lift(reports, {}), {}, Round(1, Layout.flat(1), 10))
    assert none.item() == 0.0


def settle(algorithm: Algorithm, *curves: tuple[float, float]) -> float:
    """One round of four local steps of 0.05 from x = 0."""
    run = accord.fit(
        Point(),
        quadratics(*curves),
        algorithm,
        rounds=1,
        epochs=4,
        batch=1,
        lr=0.05,
        momentum=0.0,
        loss=cost,
        metrics={},
        engine="sequential",
    )
    return run.model().x.item()


@pytest.mark.parametrize("gradient", ["last", "start"])
@pytest.mark.parametrize("variant", ["workshop", "poster"])
def test_quadratics_follow_the_closed_form(gradient: str, variant: str) -> None:
    # After k steps a client is at b (1 - r^k), r = 1 - 0.05 a, so its gradient there is -a b r^k.
    curves = [(1.0, -1.0), (10.0, -2.0)]
    ends = [b * (1 - (1 - 0.05 * a) ** 4) for a, b in curves]
    met = [-a * b * ((1 - 0.05 * a) ** 3 if gradient == "last" else 1.0) for a, b in curves]
    sign = -1 if variant == "workshop" else 1
    expected = sum(ends) / 2 + sign * 0.01 * sum(met) / 2
    assert settle(accord.fedgma(eta_s=0.01, gradient=gradient, variant=variant), *curves) == pytest.approx(
        expected, rel=1e-12
    )


def test_where_clients_pull_apart_it_is_fedavg() -> None:
    assert settle(accord.fedgma(eta_s=1.0), (1.0, -1.0), (10.0, 2.0)) == settle(
        accord.fedavg(), (1.0, -1.0), (10.0, 2.0)
    )


def test_without_a_masked_step_it_is_fedavg() -> None:
    runs = [accord.fit(mlp(), blobs(), a, rounds=3, sample=5) for a in (accord.fedgma(eta_s=0.0), accord.fedavg())]
    assert torch.equal(runs[0].last.vector, runs[1].last.vector)


def test_the_last_gradient_of_one_full_batch_step_is_that_of_the_start() -> None:
    last, start = (
        accord.fit(mlp(), blobs(), accord.fedgma(gradient=g, p=0.4), rounds=3, batch=None) for g in ("last", "start")
    )
    assert torch.allclose(last.last.vector, start.last.vector, atol=1e-6)


def plain_loop(rounds: int, sample: int, p: float, eta_s: float, gradient: str) -> torch.Tensor:
    """Algorithm 1 with modules and torch.optim.SGD; only the keyed draws are accord's."""
    fed, server = blobs(), mlp()
    training = Training(batch=8, epochs=2)
    job = Job(server, Layout.of(server), fed, accord.fedgma(), training, cross_entropy, {}, 0, torch.device("cpu"))
    for number in range(1, rounds + 1):
        before = parameters_to_vector(server.parameters()).detach()
        ends, gradients, sizes = [], [], []
        for i in accord.draws.choose(len(fed.clients), sample, 0, "sample", number):
            rows, local = fed.train[fed.clients[i]], copy.deepcopy(server)
            optimiser = torch.optim.SGD(local.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)
            F.cross_entropy(local(fed.x[rows]), fed.y[rows]).backward()
            found = parameters_to_vector([weight.grad for weight in local.parameters()]).clone()
            for batch in batches(job, number, Member(fed.clients[i], rows)):
                optimiser.zero_grad()
                F.cross_entropy(local(fed.x[batch]), fed.y[batch]).backward()
                if gradient == "last":
                    found = parameters_to_vector([weight.grad for weight in local.parameters()]).clone()
                torch.nn.utils.clip_grad_norm_(local.parameters(), 0.3)
                optimiser.step()
            ends.append(parameters_to_vector(local.parameters()).detach())
            gradients.append(found)
            sizes.append(len(rows))
        weight, stacked = torch.tensor(sizes)[:, None] / sum(sizes), torch.stack(gradients)
        mask = stacked.sign().sum(0).abs() >= p * sample - 1e-6
        after = (weight * torch.stack(ends)).sum(0) - eta_s * (weight * mask * stacked).sum(0)
        assert not torch.equal(after, before)
        torch.nn.utils.vector_to_parameters(after, server.parameters())
    return parameters_to_vector(server.parameters()).detach()


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("gradient", ["last", "start"])
def test_it_equals_a_plain_loop(engine: str, gradient: str) -> None:
    """Clipping, weight decay and momentum change the client's steps; the gradient it reports is as it was."""
    settings = {
        "batch": 8,
        "epochs": 2,
        "lr": 0.05,
        "momentum": 0.5,
        "weight_decay": 0.01,
        "clip": 0.3,
        "engine": engine,
        "device": "cpu",
    }
    run = accord.fit(mlp(), blobs(), accord.fedgma(0.6, 0.3, gradient), rounds=3, sample=5, **settings)
    assert torch.allclose(run.last.vector, plain_loop(3, 5, 0.6, 0.3, gradient), atol=2e-6)


def test_an_experiment_file_can_ask_for_it() -> None:
    text = (
        '[algorithm]\nname = "fedgma"\n[algorithm.average]\np = 0.6\neta_s = 1.0\ngradient = "start"\nvariant ='
        ' "poster"'
    )
    experiment = parse(text)
    assert experiment.algorithm == accord.fedgma(0.6, 1.0, "start", "poster")
    assert parse('[algorithm]\nname = "fedgma"').resolved()["algorithm"]["average"]["eta_s"] == 0.1
    assert experiment.folder(0).name.startswith("mnist-fedgma-")
    assert parse(text, ["algorithm.name=fedavg"]).algorithm == accord.fedavg()


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"p": 1.2}, ["p must be between 0 and 1, got 1.2"]),
        ({"p": True}, ["p must be between 0 and 1, got True"]),
        ({"eta_s": -1.0}, ["eta_s must be a number of 0 or more, got -1.0"]),
        ({"eta_s": float("nan")}, ["eta_s must be", "got nan"]),
        ({"gradient": "first"}, ["gradient must be 'last'", "or 'start'", "got 'first'"]),
        ({"variant": "journal"}, ["variant must be 'workshop' or 'poster', got 'journal'"]),
        ({"weighting": "inverse"}, ["weighting must be 'samples' or 'uniform', got 'inverse'"]),
    ],
)
def test_bad_input_is_one_sentence(settings: dict[str, object], parts: list[str]) -> None:
    with sentence(*parts):
        accord.fedgma(**settings)  # type: ignore[arg-type]


def test_bad_settings_name_their_key() -> None:
    with sentence("algorithm.average.p must be between 0 and 1, got 2"):
        parse('[algorithm]\nname = "fedgma"\n[algorithm.average]\np = 2.0')
    with sentence("algorithm.mask has no meaning with algorithm.name = 'fedgma'"):
        parse('[algorithm]\nname = "fedgma"\nmask = "gma"')
