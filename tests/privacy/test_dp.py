"""Differential privacy: clipping, noise, the epsilon that is printed, and runs that can be repeated."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy import optimize, stats
from torch import Tensor, nn

import accord
from accord.core import draws
from accord.core.layout import Layout
from accord.core.record import Record, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.experiments.experiment import parse
from accord.experiments.selection_check import rehearse
from accord.privacy import Privacy, epsilon
from accord.rules.algorithm import Algorithm
from accord.runs.fingerprint import describe
from accord.runs.selection import rule_for
from conftest import blobs, mlp, sentence

REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE


def reports(deltas: Tensor) -> Reports:
    column = torch.ones(len(deltas), 1)
    return Reports(deltas, 10 * column, column, torch.zeros(len(deltas), 0))


def private(mask: accord.rules.masks.Mask | None = None, **options: float) -> Algorithm:
    return accord.fedavg(mask=mask, weighting="uniform").with_privacy(**({"clip": 1.0, "noise": 1.0} | options))


def lifted(algorithm: Algorithm, deltas: Tensor) -> Record:
    return algorithm.lift(
        reports(deltas), algorithm.init(Layout.flat(deltas.shape[1]), len(deltas), torch.zeros(deltas.shape[1]))
    )


# --------------------------------------------------------------------------------------------------- clipping


def test_long_updates_are_scaled_down_and_short_ones_left_alone() -> None:
    deltas = torch.tensor([[3.0, -4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped = Privacy(clip=1.0, noise=1.0).bound(reports(deltas)).delta
    assert torch.allclose(clipped[0], torch.tensor([0.6, -0.8]), atol=1e-5)
    assert torch.equal(clipped[1:], deltas[1:])


def test_replacing_a_client_moves_the_sums_by_no_more_than_the_stated_sensitivity() -> None:
    generator = torch.Generator().manual_seed(0)
    deltas = 100 * torch.randn(5, 400, generator=generator)
    algorithm = private(accord.gma(0.4), clip=0.7)
    norms = algorithm.privacy.bound(reports(deltas)).delta.double().norm(dim=1)
    assert float(norms.max()) <= 0.7
    before = lifted(algorithm, deltas)
    for replacement in (-deltas[2:3], torch.zeros(1, 400), 1e6 * torch.randn(1, 400, generator=generator)):
        after = lifted(algorithm, torch.cat([deltas[:2], replacement, deltas[3:]]))
        assert float((after.part("average")["delta"] - before.part("average")["delta"]).norm()) <= 2 * 0.7 + 1e-5
        assert float((after.part("mask")["votes"] - before.part("mask")["votes"]).norm()) <= 2 * math.sqrt(400)
    assert (
        float((lifted(algorithm, -deltas).part("mask")["votes"] + before.part("mask")["votes"]).abs().max()) == 0.0
    ), "clipping changes no sign"


# ------------------------------------------------------------------------------------------------------ noise


def normal(count: int, seed: int, purpose: str, *path: int | str) -> np.ndarray:
    return draws.normal(count, draws.device_key(seed, purpose, *path), torch.device("cpu")).numpy()


def test_normal_draws_are_normal_and_keyed() -> None:
    drawn = normal(100_001, 0, "test", 1)
    assert stats.kstest(drawn, "norm").pvalue > 0.001
    assert np.array_equal(drawn, normal(100_001, 0, "test", 1))
    for other in (normal(100_001, 1, "test", 1), normal(100_001, 0, "test", 2), normal(100_001, 0, "other", 1)):
        assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.015
    assert abs(np.corrcoef(drawn[:50_000], drawn[50_001:])[0, 1]) < 0.02, (
        "both halves of Box and Muller are independent"
    )
    assert np.isfinite(drawn).all() and normal(1, 0, "one").shape == (1,)


def test_noise_has_the_stated_deviation_and_counts_are_fixed() -> None:
    size = 100_000
    algorithm = private(accord.gma(0.4), clip=0.5, noise=3.0, vote_noise=2.0)
    record = lifted(algorithm, torch.zeros(4, size))
    round = Round(3, Layout.flat(size), clients=50, seed=1, cohort=10)
    seen = algorithm.released(record, round)
    tolerance = 4 / math.sqrt(2 * size)  # four standard errors of a standard deviation
    assert float(seen.part("average")["delta"].std()) == pytest.approx(0.5 * 3.0, rel=tolerance)
    assert float(seen.part("mask")["votes"].std()) == pytest.approx(2.0 * math.sqrt(size), rel=tolerance)
    assert abs(
        float(torch.corrcoef(torch.stack([seen.part("average")["delta"], seen.part("mask")["votes"]]))[0, 1])
    ) < 4 / math.sqrt(size)
    assert seen.part("average")["weight"].item() == seen.part("mask")["count"].item() == 10, (
        "four reports came, ten were asked for: the number tells nothing"
    )
    for other in (Round(4, round.layout, 50, 1, 10), Round(3, round.layout, 50, 2, 10)):  # another round, another seed
        drawn = algorithm.released(record, other).part("average")["delta"]
        assert abs(float(torch.corrcoef(torch.stack([seen.part("average")["delta"], drawn]))[0, 1])) < 4 / math.sqrt(
            size
        )


def test_noise_goes_on_once() -> None:
    algorithm = private(accord.gma(0.4))
    record, round = lifted(algorithm, torch.randn(6, 30)), Round(1, Layout.flat(30), 6)
    seen = algorithm.released(record, round)
    assert algorithm.released(seen, round) is seen
    memory = algorithm.init(round.layout, 6, torch.zeros(30))
    assert torch.equal(algorithm.lower(record, memory, round)[0].update, algorithm.lower(seen, memory, round)[0].update)
    assert torch.allclose(seen.part("average")["delta"] / 6, algorithm.lower(seen, memory, round)[0].update)


def test_a_mask_told_from_the_noised_sum_is_the_share_of_smaller_noise() -> None:
    """|S| of one, two, three deviations is larger than 68.27, 95.45, 99.73 % of pure noise."""
    algorithm = private(accord.gma(1.0), clip=2.0, noise=0.5)
    votes = algorithm.privacy.votes_from(torch.tensor([1.0, -2.0, 3.0, 0.0]), cohort=10)
    assert torch.allclose(votes / 10, torch.tensor([0.6827, -0.9545, 0.9973, 0.0]), atol=1e-4)
    record, round = lifted(algorithm, torch.zeros(10, 100_000)), Round(1, Layout.flat(100_000), 10)
    shares = algorithm.released(record, round).part("mask")["votes"].abs() / 10
    assert stats.kstest(shares.numpy(), "uniform").pvalue > 0.001, "where there is nothing but noise"


# ---------------------------------------------------------------------------------------------------- epsilon


def exact_gaussian(multiplier: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism whose noise is `multiplier` times its sensitivity, in closed form (Balle and
    Wang, 2018)."""

    def gap(eps: float) -> float:
        a, b = 1 / (2 * multiplier), eps * multiplier
        return stats.norm.cdf(a - b) - math.exp(eps + stats.norm.logcdf(-a - b)) - delta

    return float(optimize.brentq(gap, 0.0, 500.0))


@pytest.mark.parametrize(("noise", "rounds"), [(10.0, 1), (4.0, 1), (2.0, 1), (8.0, 20), (4.0, 100)])
def test_epsilon_without_sampling_against_the_closed_form(noise: float, rounds: int) -> None:
    exact = exact_gaussian(noise / 2 / math.sqrt(rounds), 1e-5)  # replacing moves the sum by two; rounds add in squares
    assert exact <= epsilon(noise, 100, None, rounds, 1e-5) <= 1.15 * exact
    assert epsilon(noise, 100, 100, rounds, 1e-5) == epsilon(noise, 100, None, rounds, 1e-5)


@pytest.mark.parametrize(("noise", "share", "rounds"), [(1.0, 0.1, 1), (2.0, 0.1, 10), (1.0, 0.01, 10)])
def test_epsilon_with_sampling_against_the_library_and_a_federation_that_spends_it(
    noise: float, share: float, rounds: int
) -> None:
    """The library counts noise in units of the distance that a replacement moves the sum by: two clips. A federation
    shows why in which all clients send one update of that norm, and the replaced client its opposite. To draw C of N of
    these is to add two clips with probability C / N, as Poisson sampling does. Its exact epsilon, a lower bound here,
    lies above what the library says of the multiplier as it is."""
    sample = int(1000 * share)
    found = epsilon(noise, 1000, sample, rounds, 1e-5)

    def by_library(multiplier: float) -> float:
        event = dp_accounting.SampledWithoutReplacementDpEvent(1000, sample, dp_accounting.GaussianDpEvent(multiplier))
        return float(RdpAccountant(neighboring_relation=REPLACE).compose(event, rounds).get_epsilon(1e-5))

    assert found == pytest.approx(by_library(noise / 2), rel=0.01)
    spent = privacy_loss_distribution.from_gaussian_mechanism(
        noise / 2, sampling_prob=share, value_discretization_interval=1e-3
    )
    least = spent.self_compose(rounds).get_epsilon_for_delta(1e-5)
    assert by_library(noise) < least <= found


def test_epsilon_grows_with_rounds_and_cohort_and_falls_with_noise() -> None:
    assert epsilon(2.0, 100, 10, 10, 1e-5) < epsilon(2.0, 100, 10, 20, 1e-5)
    assert epsilon(2.0, 100, 10, 10, 1e-5) < epsilon(2.0, 100, 20, 10, 1e-5) < epsilon(2.0, 100, None, 10, 1e-5)
    assert epsilon(4.0, 100, 10, 10, 1e-5) < epsilon(2.0, 100, 10, 10, 1e-5)
    assert epsilon(0.05, 100, 10, 1000, 1e-5) <= epsilon(0.05, 100, None, 1000, 1e-5), "sampling never hurts"


def test_update_and_votes_together_are_one_mechanism() -> None:
    privacy = Privacy(clip=1.0, noise=3.0, vote_noise=4.0)
    assert privacy.multiplier(masked=True) == pytest.approx(2.4)  # 1 / sqrt(1/9 + 1/16)
    assert privacy.multiplier(masked=False) == Privacy(1.0, 3.0).multiplier(masked=True) == 3.0
    both = RdpAccountant(neighboring_relation=REPLACE)
    for noise in (3.0, 4.0):
        both.compose(dp_accounting.GaussianDpEvent(noise / 2), 7)
    assert privacy.spent(True, 10, None, 7)["epsilon"] == pytest.approx(both.get_epsilon(1e-5), rel=0.01)


def test_the_votes_signal_to_noise_falls_with_the_root_of_the_parameters() -> None:
    privacy = Privacy(clip=1.0, noise=1.0, vote_noise=2.0)
    assert privacy.signal(cohort=10, size=10_000) == pytest.approx(10 / (2 * 100))
    algorithm = private(accord.gma(0.4), vote_noise=2.0)
    unanimous = lifted(algorithm, torch.full((10, 10_000), 0.5))
    row = algorithm.privacy.of_round(unanimous, [50.0] * 10)
    assert row["votes_to_noise"] == pytest.approx(0.05) and row["clipped"] == 1.0
    assert row["update_to_noise"] == pytest.approx(10 / 100, rel=1e-4), (
        "ten updates of norm one, spread evenly over 100^2 coordinates"
    )


# ------------------------------------------------------------------------------------------------------- runs


def run(algorithm: Algorithm, rounds: int = 6, **options: object) -> accord.Run:
    return accord.fit(
        mlp(), blobs(), algorithm, rounds=rounds, sample=4, evaluate_every=2, engine="sequential", **options
    )  # type: ignore[arg-type]


def test_hardly_any_noise_is_hardly_any_difference() -> None:
    plain = accord.fedavg(weighting="uniform")
    assert torch.allclose(run(private(clip=1e6, noise=1e-12)).last.vector, run(plain).last.vector, atol=1e-5)
    masked = accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
    noised = private(accord.gma(0.4), clip=1e6, noise=1e-12, vote_noise=1e-9)
    assert torch.allclose(run(noised).last.vector, run(masked).last.vector, atol=1e-5)
    told = private(accord.gma(0.4), clip=1e6, noise=1e-12)  # every sum stands out of such noise, so nothing is masked
    assert torch.allclose(run(told).last.vector, run(plain).last.vector, atol=1e-5)


@pytest.mark.parametrize("engine", ["vectorised", "processes"])
def test_engines_add_the_same_noise(engine: str) -> None:
    algorithm = private(accord.gma(0.4), clip=0.5, noise=0.1, vote_noise=0.1)
    other = accord.fit(mlp(), blobs(), algorithm, rounds=3, sample=4, engine=engine)
    assert torch.allclose(other.last.vector, run(algorithm, rounds=3).last.vector, atol=1e-4)


def test_a_resumed_run_sees_the_same_noise(tmp_path: Path) -> None:
    algorithm = private(accord.gma(0.4), noise=0.2)
    straight = run(algorithm, rounds=6, folder=tmp_path / "a")
    run(algorithm, rounds=3, folder=tmp_path / "b", checkpoint_every=1)
    resumed = run(algorithm, rounds=6, folder=tmp_path / "b")
    assert torch.equal(straight.last.vector, resumed.last.vector)
    assert resumed.rows == straight.rows
    assert not torch.equal(straight.last.vector, run(algorithm, rounds=6, seed=1).last.vector)


def test_epsilon_is_recorded_and_printed(tmp_path: Path) -> None:
    algorithm = private(accord.gma(0.4), noise=2.0, vote_noise=2.0)
    told = run(algorithm, folder=tmp_path)
    spent = told.history[-1][1]["privacy"]
    assert spent == {"epsilon": pytest.approx(epsilon(math.sqrt(2.0), 12, 4, 6, 1e-5)), "delta": 1e-5}
    assert f"privacy: epsilon {spent['epsilon']:.4g} at delta 1e-05 after 6 rounds" in str(told)
    assert set(told.rows[-1]["privacy"]) == {"clipped", "update_to_noise", "votes_to_noise"}
    assert told.folder is not None
    lines = [json.loads(line) for line in (told.folder / "metrics.jsonl").read_text().splitlines()]
    recorded = [line["evaluation"]["privacy"]["epsilon"] for line in lines if "evaluation" in line]
    assert recorded == pytest.approx([epsilon(math.sqrt(2.0), 12, 4, rounds, 1e-5) for rounds in (2, 4, 6)])


def test_a_run_without_privacy_is_named_as_before() -> None:
    assert "privacy" not in describe(accord.fedavg()) and describe(private())["privacy"] == {
        "kind": "Privacy",
        "clip": 1,
        "noise": 1,
    }
    assert "privacy" not in parse("").resolved()
    experiment = parse("", ["algorithm.average.weighting=uniform", "privacy.clip=1.0", "privacy.noise=2.0"])
    assert experiment.algorithm.privacy == Privacy(1.0, 2.0)
    assert experiment.resolved()["privacy"] == {"clip": 1.0, "noise": 2.0, "delta": 1e-5}
    assert experiment.folder(0) != parse("", ["algorithm.average.weighting=uniform"]).folder(0)


# -------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"noise": 0.0}, "noise must be above 0 and finite, got 0.0: without noise no epsilon is finite"),
        ({"noise": math.inf}, "noise must be above 0 and finite, got inf"),
        ({"clip": -1.0}, "clip must be above 0 and finite, got -1.0"),
        ({"delta": 0.0}, "delta must be above 0 and below 1, got 0.0"),
        ({"delta": 1.0}, "delta must be above 0 and below 1, got 1.0"),
        ({"vote_noise": 0.0}, "vote_noise must be above 0 and finite, got 0.0"),
        ({"vote_noise": 1.0}, "vote_noise has no meaning without a mask, got 1.0"),
    ],
)
def test_settings_without_a_finite_epsilon(options: dict[str, float], told: str) -> None:
    with sentence(told):
        private(**options)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ["algorithm.average.weighting=samples"],
            "[privacy] weighting must be 'uniform' with privacy, got mean(weighting='samples')",
        ),
        (["algorithm.name=scaffold"], "[privacy] scaffold asks more of clients than an update"),
        (["algorithm.name=local_only"], "[privacy] "),
        (["privacy.noise=0"], "privacy.noise must be above 0 and finite, got 0"),
        (["privacy.delta=2"], "privacy.delta must be above 0 and below 1, got 2"),
        (["train.lost=0.1"], "train.lost must be 0 with privacy, got 0.1"),
        (["train.available=0.5"], "train.available must be 1 with privacy, got 0.5"),
        (["train.min_clients=2"], "train.min_clients must be 1 with privacy, got 2"),
        (["privacy.nois=1"], "privacy.nois is not a known key, got 1: did you mean 'noise'?"),
    ],
)
def test_experiments_that_the_guarantee_would_not_cover(overrides: list[str], told: str) -> None:
    with sentence(told):
        parse("[algorithm.average]\nweighting = 'uniform'\n[privacy]\nclip = 1.0\nnoise = 1.0", overrides)


def test_half_a_section_is_no_section() -> None:
    with sentence("privacy.noise is missing: noise on the summed update"):
        parse("[privacy]\nclip = 1.0")


def test_a_model_with_buffers_is_refused() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    with sentence("privacy covers parameters, and the model has buffers such as 1.running_mean"):
        accord.fit(model, blobs(), private(), rounds=1)


def test_accounting_refuses_what_it_cannot_count() -> None:
    with sentence("sample must be at most the 10 clients, got 11"):
        epsilon(1.0, 10, 11, 1, 1e-5)
    with sentence("noise must be above 0 and finite, got 0"):
        epsilon(0.0, 10, 5, 1, 1e-5)
    with sentence("rounds must be a whole number of at least 1, got 0"):
        epsilon(1.0, 10, 5, 0, 1e-5)


@dataclass(frozen=True)
class by_steps(accord.Average):
    """An average that weighs clients by their steps, which a sample report cannot show."""

    def weights(self, reports):
        return reports.steps

    def lift(self, reports, sent):
        return Record(delta=reports.total, weight=reports.total_weight)

    def lower(self, total, state, round):
        return total["delta"] / total["weight"], state


@dataclass(frozen=True)
class louder(accord.Average):
    """An average whose sum only calls itself one of the clipped updates."""

    def weights(self, reports):
        return reports.one

    def lift(self, reports, sent):
        return Record(delta=total(10.0 * reports.delta, kind="update"), weight=reports.total_weight)

    def lower(self, total, state, round):
        return total["delta"] / total["weight"], state


def test_an_average_of_yours_gets_no_more_out_of_clients_than_is_accounted_for() -> None:
    with sentence("privacy covers the sum of the clipped updates and of their signs, and average.delta is another sum"):
        accord.fedavg(average=louder()).with_privacy(clip=1.0, noise=1.0)
    algorithm = accord.fedavg(average=by_steps()).with_privacy(clip=1.0, noise=1.0)
    one = torch.ones(2, 1)
    reports = Reports(delta=torch.ones(2, 3), weight=one, steps=torch.tensor([[1.0], [5.0]]), buffers=one[:, :0])
    with sentence("weighting must be 'uniform' with privacy, got by_steps()"):
        algorithm.lift(reports, algorithm.init(Layout.flat(3), 2, torch.zeros(3)))
    with sentence("corrective has a second exchange, whose sums have no noise"):
        accord.fedavg(average=accord.corrective(0.1, passes=2)).with_privacy(clip=1.0, noise=1.0)


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_a_round_without_a_sound_report_gets_its_noise_all_the_same(engine: str) -> None:
    fed = blobs(clients=4)
    spoilt = replace(fed, x=torch.full_like(fed.x, math.nan))
    options = {"rounds": 2, "evaluate_every": 1, "engine": engine, "folder": None, "verbose": False}
    run = accord.fit(mlp(), spoilt, accord.fedavg(weighting="uniform").with_privacy(clip=1.0, noise=2.0), **options)
    assert [row.accepted for row in run.recorded] == [0, 0] and not any(row.skipped for row in run.recorded)
    before = torch.cat([p.detach().flatten() for p in mlp().parameters()])
    # two rounds of noise of 2 on a sum that is divided by the four clients who were asked
    assert float((run.last.vector - before).std()) == pytest.approx(math.sqrt(2) * 2.0 / 4, rel=0.3)
    assert run.history[-1][1].privacy is not None


def test_a_private_run_is_chosen_by_a_test_set_that_is_no_client_s() -> None:
    private = accord.fedavg(weighting="uniform").with_privacy(clip=1.0, noise=2.0)
    fed = accord.data.digits(clients=4, unseen=1)
    model = accord.models.logistic(features=784, classes=10)
    run = accord.fit(model, fed, private, rounds=2, evaluate_every=1, verbose=False)
    assert run.select("oracle").values.keys() == {"train", "heldout", "unseen", "test"}
    settings = ["algorithm.average.weighting=uniform", "privacy.clip=1.0", "privacy.noise=2.0"]
    rehearse("oracle", parse("", settings))
    with sentence("select", "held-out", "epsilon"):
        rehearse("held-out", parse("", settings))


def test_no_model_and_no_figure_is_chosen_by_private_held_out_data(tmp_path: Path) -> None:
    private = accord.fedavg(weighting="uniform").with_privacy(clip=1.0, noise=2.0)
    run = accord.fit(mlp(), blobs(), private, rounds=3, evaluate_every=1, folder=tmp_path, verbose=False)
    assert run.best is None and run.folder is not None and not (run.folder / "best.safetensors").exists()
    with sentence("there is no model that is best on held-out data", "privacy"):
        run.model("held-out")
    for rule in ("held-out", "oracle"):  # there is no test set, so the oracle would read the unseen clients' data
        with sentence("select", rule, "epsilon"):
            run.select(rule)
    assert "oracle" not in str(run)
    assert rule_for([run.history], None) == "last10"
    assert accord.load(run.folder, model=mlp()).best is None
