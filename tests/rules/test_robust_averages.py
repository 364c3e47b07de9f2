"""Averages that a minority cannot carry off, and the geometric mean: by hand, against brute force, and where they break
down."""

import math
from itertools import combinations
from statistics import median as middle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import accord
from accord import fedavg, geometric_mean, gma, krum, mean, median, trimmed_mean
from accord.core.layout import Layout
from accord.core.protocols import Average
from accord.core.reports import Reports
from accord.core.round import Round
from accord.experiments.cost import as_text
from accord.experiments.experiment import parse
from accord.rules.averages import AVERAGES
from accord.rules.averages.krum import scores as krum_scores
from accord.rules.combine import combine
from accord.rules.label import label_of
from accord.runs.fingerprint import describe
from conftest import blobs, mlp, sentence

FIVE = torch.tensor([[1.0, -4.0], [2.0, 0.0], [4.0, 1.0], [3.0, 2.0], [100.0, 3.0]])


def update(rule: Average, deltas: Tensor, weights: Tensor | None = None) -> Tensor:
    return combine(rule, deltas, weights).update


def lowered(rule: Average, deltas: Tensor) -> Tensor:
    """Of `[..., K, P]`."""
    ones = torch.ones(*deltas.shape[:-1], 1)
    record = rule.lift(Reports(deltas, ones, ones, ones[..., :0]), {})
    return rule.lower(record, {}, Round(1, Layout.flat(deltas.shape[-1]), 10))[0]


# ---------------------------------------------------------------------------------------------------- by hand


def test_median_by_hand() -> None:
    assert update(median(), FIVE).tolist() == [3.0, 1.0]
    assert update(median(), FIVE[:4]).tolist() == [2.5, 0.5]  # the mean of the two in the middle
    assert update(median(), FIVE[:1]).tolist() == [1.0, -4.0]


def test_trimmed_mean_by_hand() -> None:
    assert update(trimmed_mean(0.2), FIVE).tolist() == [3.0, 1.0]  # without 1 and 100, and without -4 and 3
    assert update(trimmed_mean(0.19), FIVE).tolist() == pytest.approx([22.0, 0.4])  # less than one client at either end
    assert update(trimmed_mean(0.4), FIVE).tolist() == update(median(), FIVE).tolist()


def test_a_share_is_the_decimal_that_was_written() -> None:
    """0.29 of 100 clients are 29, though the product of the floats is a little less."""
    deltas = torch.arange(100.0)[:, None].clone()
    deltas[-29:] = 1e6
    assert update(trimmed_mean(0.29), deltas).item() == torch.arange(29.0, 71.0).mean().item()


def test_krum_by_hand() -> None:
    # One dimension: 0, 1, 2, 4, 50. With one attacker each counts its 5 - 1 - 2 = 2 nearest: 1 + 4, 1 + 1, 1 + 4, 4 +
    # 9, ...
    line = torch.tensor([[0.0], [1.0], [2.0], [4.0], [50.0]])
    assert krum_scores(line, 1).tolist() == [5.0, 2.0, 5.0, 13.0, 46.0**2 + 48.0**2]
    assert update(krum(1), line).item() == 1.0
    assert update(krum(1, keep=3), line).item() == 1.0  # 0, 1 and 2
    assert update(krum(1, keep=4), line).item() == pytest.approx(7 / 4)


def test_geometric_mean_by_hand() -> None:
    deltas = torch.tensor([[1.0, -2.0, 3.0, 4.0], [4.0, -8.0, -3.0, 0.0]])
    assert update(geometric_mean(), deltas).tolist() == pytest.approx([2.0, -4.0, 0.0, 0.0])  # unanimous, or still
    # Weights 1 and 3: 4^(3/4), and -(2^(1/4) 8^(3/4)).
    weighted = update(geometric_mean(), deltas, torch.tensor([1.0, 3.0])).tolist()
    assert weighted == pytest.approx([4**0.75, -(2**0.25) * 8**0.75, 0.0, 0.0])
    # Everywhere: a half of 3 up and a half of 3 down; half of the clients at 4, the others still.
    assert update(geometric_mean(agree=0.0), deltas).tolist() == pytest.approx([2.0, -4.0, 0.0, 2.0])


def test_geometric_mean_of_a_majority() -> None:
    column = torch.tensor([[1.0], [2.0], [4.0], [-3.0]])
    assert update(geometric_mean(), column).item() == 0.0
    # net vote 2 of 4
    assert update(geometric_mean(agree=0.5), column).item() == pytest.approx(3 / 4 * 2.0 - 1 / 4 * 3.0)
    assert update(geometric_mean(agree=0.51), column).item() == 0.0


# ------------------------------------------------------------------------------------------------ brute force

numbers = st.floats(-100, 100, width=32)
cohorts = st.integers(5, 9).flatmap(
    lambda k: st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=k, max_size=k)
)


@settings(deadline=None, max_examples=60)
@given(rows=cohorts)
def test_median_and_trimmed_mean_against_python(rows: list[list[float]]) -> None:
    columns = list(zip(*rows, strict=True))
    assert update(median(), torch.tensor(rows)).tolist() == pytest.approx(
        [middle(column) for column in columns], abs=1e-5
    )
    cut = len(rows) // 4
    trimmed = [sum(sorted(column)[cut : len(rows) - cut]) / (len(rows) - 2 * cut) for column in columns]
    assert update(trimmed_mean(0.25), torch.tensor(rows)).tolist() == pytest.approx(trimmed, abs=1e-4)


@settings(deadline=None, max_examples=60)
@given(rows=cohorts, attackers=st.integers(0, 1))
def test_krum_against_the_smallest_of_all_sums(rows: list[list[float]], attackers: int) -> None:
    """The score as the paper words it: of all sets of K - f - 2 others, the one whose squared distances sum to
    least."""
    near = len(rows) - attackers - 2
    scores = []
    for i, row in enumerate(rows):
        others = [sum((a - b) ** 2 for a, b in zip(row, other, strict=True)) for j, other in enumerate(rows) if j != i]
        scores.append(min(sum(chosen) for chosen in combinations(others, near)))
    assert krum_scores(torch.tensor(rows), attackers).tolist() == pytest.approx(scores, rel=1e-6, abs=1e-6)
    assert update(krum(attackers), torch.tensor(rows)).tolist() in [
        rows[i] for i, s in enumerate(scores) if s <= min(scores) * (1 + 1e-6) + 1e-9
    ]


def test_krum_sees_small_distances_beside_large_updates() -> None:
    """By inner products in float32 these would all be as far from each other."""
    deltas = 1e4 + torch.tensor([0.0, 0.01, 0.02, 0.5, 0.7])[:, None]
    assert update(krum(1), deltas).item() == deltas[1].item()


# ------------------------------------------------------------------------------------------------ invariances

RULES = [median(), trimmed_mean(0.2), krum(1), krum(1, keep=3), geometric_mean(), geometric_mean(agree=0.2)]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_order_scale_sign_and_lanes(rule: Average) -> None:
    torch.manual_seed(0)
    deltas = torch.randn(3, 7, 50) + 0.5
    made = lowered(rule, deltas)
    assert made.shape == (3, 50)
    assert torch.allclose(made, torch.stack([lowered(rule, one) for one in deltas]), atol=1e-6)
    assert torch.allclose(lowered(rule, deltas[:, torch.randperm(7)]), made, atol=1e-6)
    assert torch.allclose(lowered(rule, -2.5 * deltas), -2.5 * made, atol=1e-5)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_clients_that_agree_are_their_own_average(rule: Average) -> None:
    same = torch.tensor([[0.5, -3.0, 0.0]]).repeat(7, 1)
    assert update(rule, same).tolist() == pytest.approx([0.5, -3.0, 0.0])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_records_of_parts_of_a_cohort_add_up(rule: Average) -> None:
    torch.manual_seed(0)
    deltas, ones = torch.randn(7, 30), torch.ones(7, 1)
    reports = Reports(deltas, ones, ones, ones[:, :0])
    parts = [rule.lift(reports.of(some), {}) for some in ([0, 1], [2], [3, 4, 5, 6])]
    where = Round(1, Layout.flat(30), 7)
    assert torch.allclose(rule.lower(parts[0] + parts[1] + parts[2], {}, where)[0], update(rule, deltas), atol=1e-6)


@pytest.mark.parametrize("rule", [median(), trimmed_mean(0.2)], ids=repr)
def test_coordinates_are_sorted_in_blocks(rule: Average) -> None:
    deltas = torch.randn(5, (1 << 19) + 77)
    assert torch.allclose(update(rule, deltas)[-100:], update(rule, deltas[:, -100:]))


def test_the_geometric_mean_pulls_less_than_the_mean() -> None:
    torch.manual_seed(0)
    deltas = torch.rand(6, 300) + 1e-3
    assert (update(geometric_mean(), deltas) <= update(mean(), deltas) + 1e-6).all()
    assert torch.allclose(update(geometric_mean(), deltas), deltas.double().log().mean(0).exp().float())
    equal = 0.3 * torch.randn(9, 300).sign()  # equal magnitudes: the mean, however the signs fall
    assert torch.allclose(update(geometric_mean(agree=0.0), equal), update(mean(), equal), atol=1e-6)


# ---------------------------------------------------------------------------------------------- breaking down


@pytest.mark.parametrize(
    ("rule", "bears"), [(median(), 4), (trimmed_mean(0.3), 3), (krum(3), 3), (mean(), 0)], ids=repr
)
def test_as_many_as_it_bears_cannot_carry_it_off(rule: Average, bears: int) -> None:
    """Ten clients, honest ones within 1 of each other; attackers may say anything."""
    torch.manual_seed(0)
    for far in (1e3, -1e6):
        deltas = torch.rand(10, 20)
        deltas[:bears] = far
        made = update(rule, deltas)
        assert ((made >= 0) & (made <= 1)).all()
    # whose attackers stand apart from each other, and one more does not make it fail by itself
    if not isinstance(rule, krum):
        deltas[: bears + 1 + isinstance(rule, median)] = -1e6
        assert (update(rule, deltas) < -1e3).all()


# -------------------------------------------------------------------------------------------- in an algorithm


@pytest.mark.parametrize("average", [median(), trimmed_mean(0.2), krum(1, keep=2), geometric_mean(agree=0.2)], ids=repr)
@pytest.mark.parametrize("engine", ["vectorised", "processes"])
def test_engines_agree(average: Average, engine: str) -> None:
    settings = {"rounds": 3, "sample": 5, "batch": 8, "device": "cpu"}
    runs = [
        accord.fit(mlp(), blobs(), accord.fedadam(mask=gma(), average=average), engine=name, **settings)
        for name in (engine, "sequential")
    ]
    assert torch.allclose(runs[0].last.vector, runs[1].last.vector, atol=2e-4)


@pytest.mark.parametrize(
    "name", ["fedavg", "fedsgd", "fedprox", "scaffold", "fedavgm", "fedadagrad", "fedadam", "fedyogi"]
)
def test_every_algorithm_takes_an_average(name: str) -> None:
    algorithm = getattr(accord, name)(average=median())
    assert algorithm.average == median() and label_of(algorithm) == f"{name} by median"
    assert accord.fit(mlp(), blobs(), algorithm, rounds=2, sample=4).last.vector.isfinite().all()


@pytest.mark.filterwarnings("ignore::accord.training.loop.SkippedRound")
def test_a_round_too_small_for_krum_is_skipped() -> None:
    run = accord.fit(
        mlp(), blobs(), fedavg(average=krum(1)), rounds=12, sample=6, conditions=accord.Conditions(lost=0.3)
    )
    assert {row["accepted"] for row in run.rows} >= {4, 5}
    assert all(("skipped" in row) == (row["accepted"] < 5) for row in run.rows)


def test_averages_of_a_file() -> None:
    chosen = parse(
        "",
        [
            "algorithm.name=fedadam",
            "algorithm.average=krum",
            "algorithm.average.attackers=2",
            "algorithm.average.keep=3",
        ],
    )
    assert chosen.algorithm == accord.fedadam(average=krum(2, 3))
    assert parse("", ["algorithm.average=mean"]).algorithm == accord.fedavg()
    assert parse(
        "", ["algorithm.average=geometric_mean", "algorithm.average.weighting=uniform"]
    ).algorithm.average == geometric_mean(weighting="uniform")
    assert parse("", ["algorithm.average=mean"]).folder(0) == parse("").folder(0)


@pytest.mark.parametrize("name", AVERAGES)
def test_a_dry_run_prints_a_file_that_means_the_same(name: str) -> None:
    chosen = parse("", [f"algorithm.average={name}", "algorithm.name=fedyogi"])
    again = parse(as_text({"settings": chosen.resolved(), "cost": {}, "folders": []}))
    assert again.algorithm == chosen.algorithm and again.folder(0) == chosen.folder(0)
    assert parse(again.text, ["algorithm.name=pooled"]).algorithm == accord.pooled()
    assert parse(again.text, ["algorithm.name=fedavg"]).algorithm.average == chosen.algorithm.average
    assert parse(again.text, ["algorithm.average=median"]).algorithm.average == median()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["average=medina"],
            ["algorithm.average must be one of mean, geometric_mean, median, trimmed_mean, krum", "got 'medina'"],
        ),
        (
            ["average=trimmed_mean", "average.share=0.5"],
            ["algorithm.average.share must be at least 0 and below 0.5, got 0.5"],
        ),
        (
            ["average=median", "average.share=0.1"],
            ["algorithm.average.share is not a field of median, got 0.1", "belongs to trimmed_mean"],
        ),
        (["average.share=0.1"], ["algorithm.average.share is not a field of mean"]),
        (["average=median", "average.weighting=uniform"], ["algorithm.average.weighting is not a field of median"]),
        (
            ["average=krum", "average.attackers=-1"],
            ["algorithm.average.attackers must be a whole number of at least 0, got -1"],
        ),
        (["average=krum", "average.keep=0"], ["algorithm.average.keep must be a whole number of at least 1, got 0"]),
        (
            ["average=krum", "average.attackers=50"],
            ["algorithm.average.attackers must leave krum enough others, got 50", "= 103 clients", "there are 100"],
        ),
        (["average=geometric_mean", "average.agree=1.5"], ["algorithm.average.agree must be between 0 and 1, got 1.5"]),
        (["average=median", "name=pooled"], ["algorithm.average has no meaning with algorithm.name = 'pooled'"]),
    ],
)
def test_a_file_that_does_not_fit_is_told_by_its_key(settings: list[str], says: list[str]) -> None:
    with sentence(*says):
        parse("", [f"algorithm.{setting}" for setting in settings])


def test_what_does_not_fit_is_a_sentence() -> None:
    with sentence("attackers must leave krum enough others, got 2", "2 x attackers + 3 = 7 clients", "there are 5"):
        update(krum(2), FIVE)
    with sentence("attackers + keep = 6 clients"):
        update(krum(1, keep=5), FIVE)
    with sentence("attackers must leave krum enough others", "there are 5"):
        accord.fit(mlp(), blobs(), fedavg(average=krum(2)), rounds=1, sample=5)
    with sentence("average must be an average such as mean() or median(), got 'median'"):
        fedavg(average="median")
    with sentence("average must be an average", "got the class median: call it"):
        fedavg(average=median)
    with sentence("weighting must be 'samples' or 'uniform', got 'size'"):
        geometric_mean(weighting="size")
    with sentence("deltas of clients [1] hold NaN or infinity"):
        update(median(), torch.tensor([[1.0], [math.nan], [2.0]]))


def test_recorded_names() -> None:
    assert describe(fedavg()) == {"kind": "Algorithm", "name": "fedavg"}
    assert describe(fedavg(average=krum(2))) == {
        "kind": "Algorithm",
        "average": {"kind": "krum", "attackers": 2},
        "name": "fedavg",
    }
