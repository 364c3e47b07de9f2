"""Runs in lockstep: each run's files equal those of the run by itself, whoever goes along, leaves early, joins late or
fails."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord import gma
from accord.data import CropFlip, Federation, Scale, coloured, deal, shifted
from accord.engines.contract import Job
from accord.engines.determinism import steady
from accord.engines.sequential import Sequential
from accord.engines.vectorised import Look, Vectorised
from accord.engines.vectorised.evaluation import Evaluation
from accord.experiments.lockstep import MOST_RUNS, Shared, alike, room, together
from accord.rules.local import Training
from accord.runs.folder import RunFolder
from accord.training import lockstep as learning
from accord.training.fit import make_job
from accord.training.loop import Event, Hook, Loop
from accord.training.plan import Plan
from conftest import blobs, mlp

ALGORITHMS = {
    "fedavg": accord.fedavg(),
    "fedadam + gma": accord.fedadam(lr=0.02, mask=gma()),
    "fedadam + gma, faster": accord.fedadam(lr=0.1, mask=gma(0.8)),
    "fedprox": accord.fedprox(0.1),
    "scaffold + gma": accord.scaffold(mask=gma()),
    "scaffold I": accord.scaffold("I"),
    "fedgma": accord.fedgma(0.6),
    "corrective": accord.Algorithm(average=accord.corrective(0.3), mask=gma()),
    "corrective, asked twice": accord.Algorithm(average=accord.corrective(0.3, passes=2)),
    "local_only": accord.local_only(),
}


@dataclass(frozen=True)
class Case:
    """One run, whichever way it is driven."""

    name: str
    algorithm: accord.Algorithm = field(default_factory=accord.fedavg)
    fed: Federation = field(default_factory=blobs)
    module: nn.Module = field(default_factory=mlp)
    training: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    metrics: Sequence[str] | None = None

    def job(self) -> tuple[Job, Plan]:
        plan = Plan(**{"rounds": 6, "sample": 5, "evaluate_every": 2, "checkpoint_every": 4, **self.plan})
        training = Training(**{"batch": 8, "lr": accord.schedule.constant(0.05), **self.training})
        job = make_job(self.module, self.fed, self.algorithm, training, plan, "cpu", metrics=self.metrics)
        return job, plan

    def loop(self, root: Path, engine: Vectorised, hooks: Sequence[Hook] = ()) -> Loop:
        job, plan = self.job()
        return Loop(job, plan, engine, RunFolder(root / self.name, {"name": self.name}, plan.rounds), hooks)

    def alone(self, root: Path) -> None:
        loop = self.loop(root, Vectorised(self.job()[0]))
        with steady():
            loop.go()
        loop.folder.close()


def lockstep(
    cases: Sequence[Case], root: Path, at_once: int = 100, hooks: Sequence[Hook] = (), lanes: int | None = None, **more
) -> list[Loop]:
    """Drives the cases together and gives their loops in the order in which they ended."""
    engine = Vectorised(cases[0].job()[0], lanes)
    ended = []
    with steady():
        for loop in together((case.loop(root, engine, hooks) for case in cases), engine, at_once, **more):
            loop.folder.close()
            ended.append(loop)
    return ended


def files(folder: Path) -> dict[str, bytes]:
    """Everything that a run leaves; clocks, and the versions of whatever stands in the source tree just now, aside."""
    aside = ("timing.jsonl", "environment.json", "lock")
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and f.name not in aside
    }


def assert_as_alone(cases: Sequence[Case], root: Path) -> None:
    for case in cases:
        case.alone(root / "alone")
        expected, found = files(root / "alone" / case.name), files(root / "together" / case.name)
        assert sorted(found) == sorted(expected)
        for name, content in expected.items():
            assert found[name] == content, f"{case.name}: {name}"


# --------------------------------------------------------------------------------------------------- equality


@pytest.mark.slow
def test_different_algorithms_seeds_rates_and_epochs_each_equal_their_own_run_bit_for_bit(tmp_path: Path) -> None:
    fed = blobs()
    cases = [
        Case(f"{name}-{seed}", algorithm, fed, mlp(seed=seed), {"epochs": 1 + seed}, {"seed": seed})
        for name, algorithm in ALGORITHMS.items()
        for seed in (0, 1)
    ]
    cases += [
        Case(
            "slow", fed=fed, training={"lr": accord.schedule.exponential(0.1, decay=0.5), "momentum": 0.0, "steps": 2}
        ),
        Case("clipped", fed=fed, training={"clip": 0.2, "weight_decay": 0.01}),
        Case("unreliable", fed=fed, plan={"conditions": accord.Conditions(0.9, 0.2, 0.5), "min_clients": 2}),
        Case("crowded", fed=fed, plan={"sample": 11}),
    ]
    assert len({alike(case.job()[0]) for case in cases}) == 1
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


def test_metrics_of_a_whole_group_equal_those_of_the_run_alone(tmp_path: Path) -> None:
    # scikit-learn takes milliseconds for every client, and is asked in every evaluation: few of both
    fed, asked = blobs(clients=6, unseen=2), ["auc", "f1", "accuracy"]
    rules = {"fedavg": accord.fedavg(), "local_only": accord.local_only()}
    plan = {"rounds": 4, "patience": 4}
    cases = [
        Case(f"{name}-{seed}", rule, fed, mlp(seed=seed), plan={"seed": seed, **plan}, metrics=asked)
        for name, rule in rules.items()
        for seed in (0, 1)
    ]
    assert len({alike(case.job()[0]) for case in cases}) == 1
    assert alike(cases[0].job()[0]) != alike(replace(cases[0], metrics=["f1"]).job()[0])
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


def test_runs_with_adam_of_different_settings_each_equal_their_own_run_bit_for_bit(tmp_path: Path) -> None:
    fed = blobs()
    cases = [
        Case("adam", fed=fed, training={"optimiser": "adam"}),
        Case("adamw", accord.fedprox(0.1), fed, training={"optimiser": "adamw", "weight_decay": 0.3, "epochs": 2}),
        Case("scaffold", accord.scaffold(), fed, training={"optimiser": "adam", "betas": (0.5, 0.9), "clip": 0.5}),
    ]
    assert len({alike(case.job()[0]) for case in cases}) == 1
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


def test_runs_whose_clients_keep_a_part_each_equal_their_own_run_bit_for_bit(tmp_path: Path) -> None:
    fed, algorithm = blobs(), accord.fedavg(mask=gma(0.4)).with_personal("last")
    cases = [Case(f"seed {seed}", algorithm, fed, mlp(seed=seed), plan={"seed": seed}) for seed in (0, 1)]
    cases.append(Case("scaffold", accord.scaffold().with_personal("last"), fed))
    assert len({alike(case.job()[0]) for case in cases}) == 1
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


def test_runs_that_go_together_are_told_how_they_ended(tmp_path: Path) -> None:
    told: list[str] = []

    def ask(event: Event) -> None:
        if event.round == 1:
            event.at_end(told.append)
        if event.round == 3 and len(told) == 1:  # one of three has ended by then
            raise ZeroDivisionError

    cases = [Case(name, plan={"rounds": rounds}) for name, rounds in (("short", 2), ("long", 4), ("longer", 6))]
    with pytest.raises(ZeroDivisionError):
        lockstep(cases, tmp_path, hooks=[ask])
    assert told == ["finished", "failed", "failed"]


def test_lanes_that_go_in_turns_report_what_any_of_the_runs_needs(tmp_path: Path) -> None:
    fed = blobs()
    names = ("fedavg", "fedgma", "scaffold + gma", "corrective, asked twice")
    cases = [Case(name, ALGORITHMS[name], fed) for name in names]
    lockstep(cases, tmp_path / "together", lanes=5)  # five clients each: a run at a time
    assert_as_alone(cases, tmp_path)


@pytest.mark.slow
def test_pictures_of_different_deals_equal_their_own_runs_bit_for_bit(tmp_path: Path) -> None:
    shared = Shared()
    feds = [shared.federation(accord.data.digits(clients=10, split="labels", unseen=2, seed=seed)) for seed in (0, 1)]
    cases = []
    for seed, fed in enumerate(feds):
        for name in ("fedavg", "fedadam + gma", "scaffold + gma"):
            module = accord.models.shaped("lenet", fed.shape, fed.outputs, seed)
            cases.append(
                Case(
                    f"{name}-{seed}",
                    ALGORITHMS[name],
                    fed,
                    module,
                    {"batch": 20},
                    {"seed": seed, "rounds": 3, "sample": 3},
                )
            )
    assert len({alike(case.job()[0]) for case in cases}) == 1
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


def test_gradients_over_whole_clients_do_not_depend_on_who_goes_along(tmp_path: Path) -> None:
    """Such batches are as wide as a run's largest client, and other runs may have larger ones."""
    shared = Shared()
    cases = []
    for seed, sample in ((0, 2), (1, 2), (2, 1)):
        fed = shared.federation(accord.data.digits(clients=6, split="labels", seed=seed))
        plan = {"seed": seed, "sample": sample, "rounds": 3}
        module = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
        for name, algorithm in {"scaffold": accord.scaffold("I"), "corrective": ALGORITHMS["corrective"]}.items():
            cases.append(Case(f"{name}-{seed}", algorithm, fed, module, {"batch": 20, "steps": 2}, plan))
    assert len({alike(case.job()[0]) for case in cases}) == 1
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


def test_where_clients_are_smaller_than_a_batch_figures_may_differ_in_their_last_digits(tmp_path: Path) -> None:
    """A batch is filled up to the widest of all that go along, and a sum over more zeros may be rounded another way."""
    fed = blobs()
    cases = [
        Case(f"{seed}", fed=fed, module=mlp(seed=seed), training={"batch": None}, plan={"seed": seed})
        for seed in range(3)
    ]
    lockstep(cases, tmp_path / "together")
    for case in cases:
        case.alone(tmp_path / "alone")
        ours, theirs = (
            load_file(tmp_path / way / case.name / "checkpoint-000006.safetensors") for way in ("together", "alone")
        )
        for name, tensor in theirs.items():
            assert torch.allclose(ours[name], tensor, atol=1e-6), name
        rows, expected = (
            [json.loads(line) for line in (tmp_path / way / case.name / "metrics.jsonl").read_text().splitlines()]
            for way in ("together", "alone")
        )
        for mine, other in zip(rows, expected, strict=True):
            assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
            assert {key: mine[key] for key in ("round", "left_out", "steps")} == {
                key: other[key] for key in ("round", "left_out", "steps")
            }


def test_batch_norm_agrees_within_rounding(tmp_path: Path) -> None:
    """The kernel that goes back through BatchNorm works on all lanes' channels at once, in blocks."""
    fed = blobs()

    def net(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))

    cases = [Case(f"{seed}", fed=fed, module=net(seed), plan={"seed": seed}) for seed in range(2)]
    lockstep(cases, tmp_path / "together")
    for case in cases:
        case.alone(tmp_path / "alone")
        ours, theirs = (load_file(tmp_path / way / case.name / "model.safetensors") for way in ("together", "alone"))
        for name, tensor in theirs.items():
            assert torch.allclose(ours[name], tensor, atol=1e-5), name


def test_a_run_with_broken_clients_harms_nobody_else(tmp_path: Path) -> None:
    """Two clients hold NaN, and one run's rate is so high that all of its clients are left out, round after round."""
    fed = blobs()
    x = fed.x.clone()
    x[fed.train["c03"][0]] = torch.nan
    x[fed.train["c07"]] = torch.inf
    broken = Federation(x, fed.y, fed.train, fed.heldout, fed.unseen, name="blobs")
    cases = [
        Case("good", fed=broken, plan={"sample": None}),
        Case("scaffold", accord.scaffold(mask=gma()), broken, plan={"sample": None, "seed": 1}),
        Case("mad", fed=broken, training={"lr": accord.schedule.constant(1e38)}, plan={"seed": 2}),
        *(Case(f"some-{seed}", fed=broken, plan={"seed": seed}) for seed in (3, 4)),  # added up as one
    ]
    with pytest.warns(accord.training.loop.SkippedRound):
        lockstep(cases, tmp_path / "together")
    with pytest.warns(accord.training.loop.SkippedRound):
        assert_as_alone(cases, tmp_path)
    row = json.loads((tmp_path / "together" / "good" / "metrics.jsonl").read_text().splitlines()[0])
    assert set(row["left_out"]) == {"c03", "c07"} and row["accepted"] == 10


# ------------------------------------------------------------------------------------------- coming and going


def test_runs_leave_when_they_are_done_and_others_take_their_place(tmp_path: Path) -> None:
    fed = blobs()
    cases = [
        Case(f"run-{rounds}-{seed}", fed=fed, plan={"seed": seed, "rounds": rounds})
        for seed, rounds in enumerate((7, 2, 5, 3))
    ]
    most = 0

    def watch(event: Any) -> None:
        nonlocal most
        open_now = sum(not (folder / "done").exists() for folder in (tmp_path / "together").iterdir())
        most = max(most, open_now)

    ended = lockstep(cases, tmp_path / "together", at_once=2, hooks=[watch])
    assert [loop.plan.rounds for loop in ended] == [2, 7, 5, 3]
    assert most == 2
    assert_as_alone(cases, tmp_path)


def test_runs_go_on_from_where_each_of_them_stood(tmp_path: Path) -> None:
    """One has not begun, one was stopped by its budget, one had half of its rounds, one is done."""
    fed = blobs()
    cases = [
        Case(name, accord.scaffold(mask=gma()), fed, plan={"seed": seed, "checkpoint_every": 2})
        for seed, name in enumerate(("new", "stopped", "half", "done"))
    ]
    _, stopped, half, done = cases
    lockstep([replace(stopped, plan={**stopped.plan, "budget": 1e-9})], tmp_path / "together")
    lockstep([replace(half, plan={**half.plan, "rounds": 3}), done], tmp_path / "together")
    reached = {
        case.name: json.loads((tmp_path / "together" / case.name / "state.json").read_text())["round"]
        for case in cases[1:]
    }
    assert reached == {"stopped": 1, "half": 3, "done": 6}
    ended = lockstep(cases, tmp_path / "together")
    assert ended[0].job.seed == 3, "the one that was done leaves at once"
    assert_as_alone(cases, tmp_path)


def test_a_spent_budget_stops_one_run_and_not_the_others(tmp_path: Path) -> None:
    fed = blobs()
    cases = [Case("poor", fed=fed, plan={"budget": 1e-9}), Case("rich", fed=fed, plan={"seed": 1})]
    poor, rich = lockstep(cases, tmp_path / "together")
    assert (poor.result().stopped, poor.progress.round) == ("its budget of 1e-09 s is spent", 1)
    assert (rich.result().stopped, rich.progress.round) == (None, 6)
    lockstep([Case("poor", fed=fed), cases[1]], tmp_path / "together")
    assert_as_alone([Case("poor", fed=fed), cases[1]], tmp_path)


def test_an_interrupt_stops_all_after_the_same_round_and_lets_nobody_begin(tmp_path: Path) -> None:
    fed = blobs()
    cases = [Case(f"{seed}", accord.scaffold(), fed, plan={"seed": seed}) for seed in range(4)]
    seen: list[int] = []
    hook = lambda event: seen.append(event.round)  # noqa: E731
    ended = lockstep(cases, tmp_path / "together", at_once=3, hooks=[hook], interrupted=lambda: len(seen) > 4)
    assert [(loop.progress.round, loop.stopped) for loop in ended] == [(2, "interrupted")] * 3
    for seed in range(3):
        assert json.loads((tmp_path / "together" / f"{seed}" / "state.json").read_text())["round"] == 2
    assert not (tmp_path / "together" / "3").exists()
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


def test_an_interrupt_in_the_last_round_completes_the_run(tmp_path: Path) -> None:
    ended = lockstep([Case("last", plan={"rounds": 1})], tmp_path / "together", interrupted=lambda: True)
    assert ended[0].stopped is None and (tmp_path / "together" / "last" / "done").exists()


# ----------------------------------------------------------------------------------------------- who is alike


def test_federations_of_one_data_set_share_its_samples_and_no_others() -> None:
    shared = Shared()
    first, second = (shared.federation(accord.data.digits(clients=5, seed=seed)) for seed in (0, 1))
    assert second.x is first.x and second.y is first.y
    assert not torch.equal(second.train["client-000"], first.train["client-000"])
    other = shared.federation(replace(first, x=255 - first.x))
    assert other.x is not first.x and other.y is first.y
    holes = torch.full((4, 2), torch.nan)
    one, two = (shared.federation(deal(holes.clone(), torch.arange(4), clients=2, seed=seed)) for seed in (0, 1))
    assert one.x is two.x, "NaN are the same bits"
    signs = [shared.federation(deal(torch.full((4, 2), zero), torch.arange(4), clients=2)) for zero in (0.0, -0.0)]
    assert signs[0].x is not signs[1].x


def pictures(seed: int = 0) -> Federation:
    x = torch.arange(80 * 64, dtype=torch.uint8).view(80, 1, 8, 8)
    return deal(x, torch.arange(80) % 4, clients=4, prepare=Scale(), seed=seed)


def flat(channels: int = 1) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, 4))


def key(
    fed: Federation,
    module: nn.Module | None = None,
    algorithm: accord.Algorithm | None = None,
    loss: Any = None,
    **training,
) -> Any:
    made = Training(**{"batch": 8, **training})
    return alike(make_job(module or flat(), fed, algorithm or accord.fedavg(), made, Plan(), "cpu", loss=loss))


def test_whatever_changes_no_shapes_may_differ() -> None:
    shared = Shared()
    mine, theirs = shared.federation(pictures(0)), shared.federation(pictures(1))
    expected = key(mine)
    assert (
        key(theirs, algorithm=accord.fedadam(mask=gma(0.8)), epochs=5, lr=0.5, momentum=0.0, steps=3, clip=1.0)
        == expected
    )
    assert key(mine, module=nn.Sequential(nn.Flatten(), nn.Linear(64, 4))) == expected


def test_whatever_changes_shapes_samples_or_how_they_are_read_goes_apart() -> None:
    shared = Shared()
    fed = shared.federation(pictures())
    frozen, other_frozen = ([p.requires_grad_(False) for p in m[1].parameters()] and m for m in (_twice(0), _twice(1)))
    others = {
        "batch": key(fed, batch=16),
        "optimiser": key(fed, optimiser="adam"),
        "whole batches": key(fed, algorithm=accord.fedsgd()),
        "structure": key(fed, module=nn.Sequential(nn.Flatten(), nn.Linear(64, 4, bias=False))),
        "the same shapes": key(fed, module=nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 4))),
        "frozen weights": key(fed, module=frozen),
        "other frozen weights": key(fed, module=other_frozen),
        "loss": key(fed, loss=lambda output, target: 2 * F.cross_entropy(output, target, reduction="none")),
        "samples": key(shared.federation(replace(fed, x=255 - fed.x))),
        "samples in another order": key(shared.federation(replace(fed, x=fed.x.transpose(2, 3)))),  # of one memory
        "labels": key(shared.federation(replace(fed, y=3 - fed.y))),
        "preparation": key(shared.federation(replace(fed, prepare=Scale((0.5,), (0.5,))))),
        "augmentation": key(shared.federation(replace(fed, augment=CropFlip(1)))),
        "shift": key(shared.federation(shifted(fed, coloured(), 0)), module=flat(3)),
        "another shift": key(shared.federation(shifted(fed, coloured(), 1)), module=flat(3)),
    }
    assert len({key(fed), *others.values()}) == len(others) + 1
    assert key(shared.federation(shifted(pictures(), coloured(), 1)), module=flat(3)) == others["another shift"]


def _twice(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 4))


class Blurred(nn.Module):
    """Drops out whenever it is asked, in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.inner(x), 0.5, training=True)


def test_models_that_are_random_in_evaluation_go_together_by_seed_alone(tmp_path: Path) -> None:
    fed = blobs()
    cases = [
        Case(f"{seed}-{lr}", accord.fedavgm(lr=lr), fed, Blurred(), plan={"seed": seed})
        for seed in (0, 1)
        for lr in (0.1, 0.2)
    ]
    assert [alike(case.job()[0]) == alike(cases[0].job()[0]) for case in cases] == [True, True, False, False]
    lockstep(cases[:2], tmp_path / "together")
    assert_as_alone(cases[:2], tmp_path)


def test_there_is_room_for_few_large_models_and_many_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    small, _ = Case("small").job()
    for files, runs in ((10_000, MOST_RUNS), (100, 36)):  # some are kept for other uses
        monkeypatch.setattr("accord.experiments.lockstep._open_files", lambda files=files: files)
        assert room(small, 5) == runs
    assert room(small, 10**12) == 1


def test_a_run_that_diverges_does_so_in_company_as_alone(tmp_path: Path) -> None:
    """Its weights are finite, its outputs are not; while it waits for a run with more steps nobody may look at them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    cases = [
        Case("diverging", module=net, training={"lr": accord.schedule.constant(1e5), "steps": 1}),
        Case("steady", module=net, training={"epochs": 3}, plan={"seed": 1}),
    ]
    cases = [replace(case, fed=cases[0].fed, plan={**case.plan, "min_clients": 5}) for case in cases]
    with pytest.warns(accord.training.loop.SkippedRound):
        lockstep(cases, tmp_path / "together")
    with pytest.warns(accord.training.loop.SkippedRound):
        assert_as_alone(cases, tmp_path)


# ------------------------------------------------------------------------------------------- as one, and deferred


def test_runs_of_one_algorithm_are_added_up_and_step_as_one_to_the_bits_of_each_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, stepped = blobs(), []
    real = learning.learn_together
    monkeypatch.setattr(learning, "learn_together", lambda turns: stepped.append(len(turns)) or real(turns))
    masks = (None, gma(), gma(0.6, memory=0.5), accord.scaled(gma()), accord.and_mask(0.6))
    cases = [
        Case(f"{at}-{seed}", accord.fedyogi(lr=0.05, mask=mask), fed, mlp(seed=seed), plan={"seed": seed})
        for at, mask in enumerate(masks)
        for seed in (0, 1, 2)
    ]
    lockstep(cases, tmp_path / "together")
    assert stepped == [3] * (5 * 6)  # five algorithms, six rounds
    assert_as_alone(cases, tmp_path)


def test_a_round_that_is_recorded_while_the_next_is_trained_is_recorded_the_same(tmp_path: Path) -> None:
    fed = blobs()
    cases = [
        Case("short", accord.scaffold(), fed, plan={"rounds": 3}),
        Case("long", accord.scaffold(mask=gma()), fed, plan={"rounds": 7, "evaluate_every": 3}),
        Case("flat", fed=fed, plan={"rounds": 40, "patience": 4, "min_delta": 0.02, "evaluate_every": 2}),
    ]
    lockstep(cases, tmp_path / "together", at_once=2, cohorts=2)
    assert_as_alone(cases, tmp_path)


def test_a_run_that_is_stopped_while_its_next_round_is_trained_goes_on_from_where_it_stopped(tmp_path: Path) -> None:
    case = Case("cut", accord.scaffold(mask=gma()), blobs(), plan={"rounds": 6})
    other = replace(case, name="other")

    def stop(event: Event) -> bool:
        return event.round == 3 and not event.at_end(lambda how: None)

    ended = lockstep([case, other], tmp_path / "together", hooks=[stop], cohorts=2)
    assert [(loop.progress.round, loop.stopped) for loop in ended] == [(3, "stopped by a hook")] * 2
    lockstep([case, other], tmp_path / "together", cohorts=2)
    assert_as_alone([case, other], tmp_path)


@dataclass(frozen=True)
class OneRunAlone(gma):
    """A mask of somebody's own that knows nothing of leading dimensions."""

    def lower(self, total, state, round):
        mask, state = super().lower(total, state, round)
        return mask * total["votes"].abs().mean() / 5, state


def test_a_mask_that_takes_one_run_at_a_time_gets_one(tmp_path: Path) -> None:
    fed = blobs()
    cases = [Case(f"{s}", accord.fedavg(mask=OneRunAlone()), fed, mlp(seed=s), plan={"seed": s}) for s in (0, 1)]
    engine = Vectorised(cases[0].job()[0])
    assert not engine.steps_as_one(cases[0].job()[0])
    assert engine.steps_as_one(Case("", accord.fedavg(mask=gma()), fed).job()[0])
    lockstep(cases, tmp_path / "together")
    assert_as_alone(cases, tmp_path)


@pytest.mark.parametrize(
    "model", [mlp(), nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))]
)
def test_models_evaluated_as_lanes_get_what_each_gets_from_the_reference(model: nn.Module) -> None:
    feds = [blobs(), replace(blobs(), heldout={}, unseen={})]  # of different lengths
    jobs = [Case("", fed=fed, module=model, metrics=["auc", "accuracy"]).job()[0] for fed in feds]
    engine = Vectorised(jobs[0])
    evaluation = Evaluation(engine.descent.model)
    vectors = [torch.randn(jobs[0].layout.size, generator=torch.Generator().manual_seed(s)) for s in (0, 1, 2)]
    buffers = jobs[0].layout.pack_buffers(dict(model.named_buffers()))
    looks = [Look(jobs[i % 2], vector, buffers, list(feds[i % 2].groups())) for i, vector in enumerate(vectors)]
    for look, table, alone in zip(looks, evaluation(looks), map(evaluation, [[look] for look in looks]), strict=True):
        expected = Sequential(look.job).evaluate(look.vector, look.buffers, look.groups)
        assert table.groups == expected.groups and table.smaller == expected.smaller
        assert table.samples.tolist() == expected.samples.tolist()
        for name, sums in expected.sums.items():
            assert torch.allclose(torch.from_numpy(table.sums[name]), torch.from_numpy(sums), rtol=1e-5)
            assert table.sums[name].tolist() == alone[0].sums[name].tolist()
        auc, of_reference, of_alone = (each.of_group["auc"] for each in (table, expected, alone[0]))
        assert torch.allclose(torch.from_numpy(auc.each), torch.from_numpy(of_reference.each), atol=1e-3)
        assert auc.each.tolist() == of_alone.each.tolist()
        assert table.nan.tolist() == expected.nan.tolist()
