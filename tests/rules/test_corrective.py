"""Corrective gradient weights: numbers worked by hand, what the weights maximise, both forms equal, and what clients
report for it."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord import corrective, gma
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.reports import Reports
from accord.core.round import Round
from accord.experiments.cost import cost as bytes_of
from accord.experiments.experiment import parse
from accord.rules.algorithm import Algorithm
from accord.rules.combine import combine
from conftest import Point, blobs, cost, mlp, quadratics, sentence

KINDS = {
    "one pass": corrective(0.2),
    "two passes": corrective(0.2, passes=2),
    "eq. 15": corrective(0.2, "15"),
}


def reports(delta: Tensor, gradient: Tensor, loss: Tensor) -> Reports:
    column = torch.ones_like(delta[..., :1])
    return Reports(
        delta, 7 * column, column, delta[..., :0], {"end_gradient": gradient, "end_loss": loss.unsqueeze(-1)}
    )


def total(algorithm: Algorithm, given: Reports, parts: int = 1) -> Record:
    """The record of a cohort that is added up in so many parts, the second exchange included."""
    memory = algorithm.init(Layout.flat(given.delta.shape[-1], given.delta.dtype), given.delta.shape[-2], given.delta)
    some = [given.of(chosen.tolist()) for chosen in torch.arange(given.delta.shape[-2]).tensor_split(parts)]
    record = algorithm.lift(some[0], memory)
    for more in some[1:]:
        record = record + algorithm.lift(more, memory)
    return algorithm.again(record, [part.extra for part in some])


def update(average: corrective, given: Reports, parts: int = 1) -> Tensor:
    layout = Layout.flat(given.delta.shape[-1], given.delta.dtype)
    moved, _ = average.lower(
        total(Algorithm(average=average), given, parts).part("average"), {}, Round(1, layout, given.delta.shape[-2])
    )
    return moved


def cohort(clients: int = 5, size: int = 12, seed: int = 0) -> Reports:
    """Gradients with something in common, so that most m_i are positive, and one client that pulls the other way."""
    generator = torch.Generator().manual_seed(seed)
    gradient = torch.randn(clients, size, generator=generator, dtype=torch.float64) + 1.5
    gradient[1] = -gradient[1]
    delta = torch.randn(clients, size, generator=generator, dtype=torch.float64)
    return reports(delta, gradient, torch.rand(clients, generator=generator, dtype=torch.float64) + 0.1)


def solved(average: corrective, given: Reports) -> tuple[np.ndarray, np.ndarray, float]:
    """The weights x that an update must have been made with, the gradients, and c."""
    gradient = given.extra["end_gradient"].numpy()
    correction = (given.delta.mean(0) - update(average, given)).numpy()
    x, residual, _, _ = np.linalg.lstsq(gradient.T, correction, rcond=None)
    assert np.all(residual < 1e-20)
    c = average.alpha * np.min(given.extra["end_loss"].numpy()[:, 0] / np.linalg.norm(gradient, axis=1))
    return x, gradient, c


# D_1 = (3, 4) and D_2 = (3, 0): D = (6, 4), m = (34, 18), m / |D_i|^2 = (1.36, 2), m / |D_i| = (6.8, 6), L / |D_i| =
# (2, 1).
HAND = reports(
    torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([[3.0, 4.0], [3.0, 0.0]]), torch.tensor([10.0, 3.0])
)


@pytest.mark.parametrize("kind", ["one pass", "two passes"])
@pytest.mark.parametrize("parts", [1, 2])
def test_equation_29_worked_by_hand(kind: str, parts: int) -> None:
    length = math.sqrt(6.8**2 + 6**2)
    x = [0.2 * 1.36 / length, 0.2 * 2 / length]
    expected = [0.5 - 3 * x[0] - 3 * x[1], 1.5 - 4 * x[0]]
    assert update(KINDS[kind], HAND, parts).tolist() == pytest.approx(expected)


def test_equation_23_worked_by_hand() -> None:
    length = math.sqrt(6**2 + 4**2)
    assert update(corrective(0.2, "15"), HAND).tolist() == pytest.approx(
        [0.5 - 0.2 * 6 / length, 1.5 - 0.2 * 4 / length]
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_weights_meet_equation_24_and_have_the_sign_of_equation_30(seed: int) -> None:
    x, gradient, c = solved(corrective(0.3), cohort(seed=seed))
    assert np.sum(x**2 * np.sum(gradient**2, axis=1)) == pytest.approx(c**2, rel=1e-9)
    m = gradient @ gradient.sum(0)
    assert np.array_equal(np.sign(x), np.sign(m))
    assert np.any(m < 0) and np.any(m > 0)


def climbed(slope: np.ndarray, c: float, seed: int) -> np.ndarray:
    """The y that maximises slope . y on the sphere of radius c, by projected gradient ascent from a random start."""
    y = np.random.default_rng(seed).standard_normal(len(slope))
    for _ in range(5000):
        y = y + 0.05 * c * slope / np.linalg.norm(slope)
        y *= c / np.linalg.norm(y)
    return y


@pytest.mark.parametrize("constraint", ["24", "15"])
@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_is_what_an_optimiser_finds(constraint: str, seed: int) -> None:
    """Equation 14 under equation 24, and under equation 15."""
    x, gradient, c = solved(corrective(0.3, constraint), cohort(clients=4, seed=seed))
    m, gram = gradient @ gradient.sum(0), gradient @ gradient.T
    quadratic = np.diag(np.diag(gram)) if constraint == "24" else gram
    # x' Q x = |R x|^2: in y = R x the constraint is a sphere, on which one can project exactly
    root = np.linalg.cholesky(quadratic).T
    found = np.linalg.solve(root, climbed(np.linalg.solve(root.T, m), c, seed))
    assert found == pytest.approx(x, rel=1e-6, abs=1e-9)
    others = np.random.default_rng(seed).standard_normal((2000, len(m)))
    others *= (c / np.sqrt(np.einsum("ni,ij,nj->n", others, quadratic, others)))[:, None]
    assert np.max(others @ m) <= m @ x


def test_the_optimum_of_equation_15_has_that_length() -> None:
    given = cohort()
    correction = given.delta.mean(0) - update(corrective(0.3, "15"), given)
    c = 0.3 * float((given.extra["end_loss"][:, 0] / given.extra["end_gradient"].norm(dim=1)).min())
    assert float(correction.norm()) == pytest.approx(c, rel=1e-12)


@pytest.mark.parametrize("clients", [1, 2, 7])
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_one_pass_and_two_passes_are_equal(clients: int, parts: int) -> None:
    given = cohort(clients, 30) if clients > 1 else cohort(2, 30).of([0])
    parts = min(parts, clients)
    one, two = (update(corrective(0.4, passes=passes), given, parts) for passes in (1, 2))
    assert torch.allclose(one, two, rtol=1e-12, atol=1e-15)


def test_two_passes_leave_the_server_sums_alone() -> None:
    def fields(record: Record) -> list[Field]:
        return [field for _, entry in record for field in (fields(entry) if isinstance(entry, Record) else [entry])]

    given = cohort(9, 40)
    shapes = [field.value.shape for field in fields(total(Algorithm(average=corrective(0.1, passes=2)), given))]
    assert all(len(shape) == 1 and shape[0] <= 40 for shape in shapes)
    assert all(field.how in ("sum", "min") for field in fields(total(Algorithm(average=corrective(0.1, "15")), given)))
    assert any(field.how == "rows" for field in fields(total(Algorithm(average=corrective(0.1)), given)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_clients_does_not_matter(kind: str) -> None:
    given = cohort()
    assert torch.allclose(update(KINDS[kind], given), update(KINDS[kind], given.of([3, 1, 4, 0, 2])), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_without_a_gradient_is_left_out(kind: str) -> None:
    """It counts in the mean of the models, and neither in the minimum nor in the correction, whatever its loss."""
    given = cohort()
    still = {
        "end_gradient": torch.zeros(1, 12, dtype=torch.float64),
        "end_loss": torch.zeros(1, 1, dtype=torch.float64),
    }
    also = {name: torch.cat([value, still[name]]) for name, value in given.extra.items()}
    more = reports(torch.cat([given.delta, given.delta[:1]]), also["end_gradient"], also["end_loss"][:, 0])
    correction = given.delta.mean(0) - update(KINDS[kind], given)
    assert torch.allclose(more.delta.mean(0) - update(KINDS[kind], more), correction, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "gradient",
    [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [-1.0, -2.0]]],
    ids=["no gradients", "gradients that cancel out"],
)
def test_where_there_is_nothing_to_follow_it_is_the_mean(kind: str, gradient: list[list[float]]) -> None:
    given = reports(HAND.delta, torch.tensor(gradient), torch.tensor([1.0, 2.0]))
    assert update(KINDS[kind], given).tolist() == [0.5, 1.5]


@pytest.mark.parametrize("kind", KINDS)
def test_small_gradients_are_gradients_all_the_same(kind: str) -> None:
    """Their squares are nothing in float32. Gradients and losses times 1e-25 leave all x_i D_i where they were."""
    small = reports(HAND.delta, HAND.extra["end_gradient"] * 1e-25, HAND.extra["end_loss"][:, 0] * 1e-25)
    assert torch.allclose(update(KINDS[kind], small), update(KINDS[kind], HAND), rtol=1e-5)


def test_a_negative_loss_bounds_nothing_and_so_corrects_nothing() -> None:
    given = reports(HAND.delta, HAND.extra["end_gradient"], torch.tensor([10.0, -3.0]))
    assert update(corrective(0.2), given).tolist() == [0.5, 1.5]


@pytest.mark.parametrize("kind", KINDS)
def test_runs_side_by_side_are_runs_alone(kind: str) -> None:
    """Records may have leading dimensions, as masks' do."""
    cohorts = [cohort(seed=seed) for seed in range(3)]
    extra = [torch.stack([given.extra[name] for given in cohorts]) for name in ("end_gradient", "end_loss")]
    beside = update(KINDS[kind], reports(torch.stack([given.delta for given in cohorts]), extra[0], extra[1][..., 0]))
    assert torch.allclose(beside, torch.stack([update(KINDS[kind], given) for given in cohorts]), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_counts_the_signs_of_the_updates_and_scales_the_corrected_step(kind: str) -> None:
    given = cohort()
    algorithm = Algorithm(average=KINDS[kind], mask=gma(0.6))
    memory = algorithm.init(layout := Layout.flat(12, torch.float64), 5, given.delta[0])
    lowered, _, memory = algorithm.lower(total(algorithm, given, parts=2), memory, Round(1, layout, 5))
    agreement = given.delta.sign().mean(0).abs()
    assert torch.allclose(lowered.mask, torch.where(agreement >= 0.6 - 1e-9, 1.0, agreement))
    assert torch.allclose(algorithm.step(lowered, memory)[0], lowered.mask * update(KINDS[kind], given))


# ------------------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_alpha_0_is_unweighted_averaging(passes: int, engine: str) -> None:
    settings = {"rounds": 3, "sample": 5, "engine": engine, "device": "cpu"}
    ours = accord.fit(mlp(), blobs(), Algorithm(average=corrective(0.0, passes=passes)), **settings)
    assert torch.equal(
        ours.last.vector, accord.fit(mlp(), blobs(), accord.fedavg(weighting="uniform"), **settings).last.vector
    )


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_losses_are_those_of_the_trained_weights(engine: str, kind: str) -> None:
    # Four steps from 0 take a client to b (1 - r^4), r = 1 - 0.05 a; there D_i = -a b r^4 and L_i = a / 2 (b r^4)^2.
    curves = [(1.0, -1.0), (10.0, -2.0), (4.0, 0.5)]
    away = [b * (1 - 0.05 * a) ** 4 for a, b in curves]
    gradient = np.array([-a * far for (a, _), far in zip(curves, away, strict=True)])
    loss = np.array([a / 2 * far**2 for (a, _), far in zip(curves, away, strict=True)])
    c = 0.2 * np.min(loss / np.abs(gradient))
    m = gradient * gradient.sum()
    x = (
        c * (m / gradient**2) / math.sqrt(np.sum((m / gradient) ** 2))
        if kind != "eq. 15"
        else c / abs(gradient.sum()) * np.ones(3)
    )
    expected = np.mean([b - far for (_, b), far in zip(curves, away, strict=True)]) - x @ gradient
    settings = {
        "epochs": 4,
        "batch": 1,
        "lr": 0.05,
        "momentum": 0.0,
        "loss": cost,
        "metrics": {},
        "engine": engine,
        "device": "cpu",
    }
    run = accord.fit(Point(), quadratics(*curves), Algorithm(average=KINDS[kind]), rounds=1, **settings)
    assert run.model().x.item() == pytest.approx(expected, rel=1e-12)


def test_one_client_on_a_parabola_is_set_right_by_alpha_2() -> None:
    # L / |D| is half the way to the optimum.
    settings = {"epochs": 1, "batch": 1, "lr": 0.05, "momentum": 0.0, "loss": cost, "metrics": {}}
    run = accord.fit(Point(), quadratics((3.0, 5.0)), Algorithm(average=corrective(2.0)), rounds=1, **settings)
    assert run.model().x.item() == pytest.approx(5.0, rel=1e-12)


@pytest.mark.parametrize("passes", [1, 2])
def test_processes_compute_the_same_bits(passes: int) -> None:
    algorithm = Algorithm(average=corrective(0.3, passes=passes), mask=gma())
    runs = [
        accord.fit(mlp(), blobs(clients=20), algorithm, rounds=2, engine=name, device="cpu")
        for name in ("processes", "sequential")
    ]
    assert torch.equal(runs[0].last.vector, runs[1].last.vector)


@pytest.mark.parametrize("engine", ["sequential", "vectorised", "processes"])
def test_one_pass_and_two_passes_train_the_same_model(engine: str) -> None:
    settings = {"rounds": 3, "engine": engine, "device": "cpu", "lr": 0.05}
    one, two = (
        accord.fit(mlp(), blobs(clients=20), Algorithm(average=corrective(0.3, passes=p)), **settings) for p in (1, 2)
    )
    assert torch.allclose(one.last.vector, two.last.vector, atol=1e-5)
    plain = accord.fit(mlp(), blobs(clients=20), accord.fedavg(weighting="uniform"), **settings)
    assert not torch.allclose(one.last.vector, plain.last.vector, atol=1e-3)


class Cliff(nn.Module):
    """A number x; a sample s costs sqrt(1 + s x), whose slope is infinite where that is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(1))

    def forward(self, samples: Tensor) -> Tensor:
        return (1 + samples[:, 0] * self.x).sqrt()


@pytest.mark.parametrize("engine", ["sequential", "vectorised", "processes"])
def test_a_client_whose_gradient_is_not_finite_in_the_end_is_left_out_and_named(engine: str) -> None:
    """One step of 2 takes x from 0 to -s: fine for 0.5, the edge for 1."""
    arrays = {name: (torch.tensor([[s]]), torch.zeros(1)) for name, s in (("fine", 0.5), ("over the edge", 1.0))}
    fed = accord.data.from_arrays(arrays, heldout=0.0)
    settings = {"lr": 2.0, "momentum": 0.0, "loss": cost, "metrics": {}, "engine": engine, "device": "cpu"}
    run = accord.fit(Cliff(), fed, Algorithm(average=corrective(passes=2)), rounds=1, **settings)
    assert run.rows[0]["left_out"] == {"over the edge": "NaN or infinity in a gradient or loss that it reports"}
    assert run.rows[0]["accepted"] == 1 and run.model().x.item() == pytest.approx(-0.5 - 0.1 * 2 * 0.75 / 0.5, rel=1e-6)
    # where no gradient is asked for, nothing is wrong
    assert accord.fit(Cliff(), fed, rounds=1, **settings).rows[0]["accepted"] == 2


# ------------------------------------------------------------------------------------ settings, and bad input


def test_an_experiment_file_can_ask_for_it() -> None:
    text = '[algorithm.average]\nname = "corrective"\nalpha = 0.3\npasses = 2'
    experiment = parse(text)
    assert experiment.algorithm == accord.fedavg(average=corrective(0.3, passes=2))
    assert experiment.label == "fedavg by corrective"
    resolved = experiment.resolved()["algorithm"]["average"]
    assert (resolved["alpha"], resolved["constraint"], resolved["passes"]) == (0.3, "24", 2)
    assert parse(text, ["algorithm.average=mean"]).algorithm == accord.fedavg()
    assert parse(
        '[algorithm]\naverage = "corrective"', ["algorithm.average.constraint=15"]
    ).algorithm.average == corrective(constraint="15")
    names = {
        parse(text, [change]).folder(0)
        for change in ("algorithm.average.alpha=0.2", "algorithm.average.passes=1", "algorithm.name=fedadam")
    }
    assert len(names | {experiment.folder(0)}) == 4


@pytest.mark.parametrize(("passes", "down", "up", "numbers"), [(1, 1, 2, 4), (2, 2, 3, 4 + 8)])
def test_a_dry_run_counts_the_vectors_of_both_exchanges(passes: int, down: int, up: int, numbers: int) -> None:
    experiment = parse(
        '[data]\nname = "digits"\nclients = 4\n[model]\nname = "logistic"\n[algorithm]\naverage = "corrective"'
    )
    experiment = replace(experiment, algorithm=accord.fedavg(average=corrective(0.1, passes=passes)))
    spent = bytes_of(experiment, SimpleNamespace(data=None))  # type: ignore[arg-type]
    vector = 4 * 4 * spent["parameters"]
    assert (spent["bytes_down_a_round"], spent["bytes_up_a_round"]) == (
        down * vector,
        up * vector + 4 * numbers,
    )  # a loss, and a square in float64


def test_bad_settings_name_their_key() -> None:
    with sentence("algorithm.average.alpha must be a number of 0 or more, got -1.0"):
        parse('[algorithm.average]\nname = "corrective"\nalpha = -1.0')
    with sentence("algorithm.average.alpha is not a field of mean, got 0.1: it belongs to corrective"):
        parse("[algorithm.average]\nalpha = 0.1")


def test_the_one_call_form_says_that_gradients_are_needed() -> None:
    with sentence("rule must need the clients' updates alone, got corrective(", "needs their gradients too"):
        combine(corrective(0.1), torch.ones(2, 3))


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"alpha": -0.1}, ["alpha must be a number of 0 or more, got -0.1"]),
        ({"alpha": float("inf")}, ["alpha must be a number of 0 or more, got inf"]),
        ({"alpha": "much"}, ["alpha must be a number of 0 or more, got 'much'"]),
        ({"constraint": "14"}, ["constraint must be '24' or '15'", "got '14'"]),
        ({"passes": 3}, ["passes must be 1", "or 2", "got 3"]),
        ({"passes": 2, "constraint": "15"}, ["passes must be 1 with constraint '15', got 2"]),
    ],
)
def test_bad_input_is_one_sentence(settings: dict[str, object], parts: list[str]) -> None:
    with sentence(*parts):
        corrective(**settings)  # type: ignore[arg-type]
