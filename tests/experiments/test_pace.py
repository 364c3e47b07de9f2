"""How many runs go at a time, and how their pace is measured: with as many."""

import math
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import pytest

from accord.engines.vectorised import Vectorised, descent
from accord.experiments import pace
from accord.experiments.experiment import assemble
from accord.experiments.groups import Jobs, packed
from accord.experiments.lockstep import together
from accord.experiments.sweep import PlannedRun
from accord.training.loop import Loop

SETTINGS = {
    "data": {"name": "digits", "clients": 4, "share": 0.1},
    "model": {"name": "logistic"},
    "train": {"rounds": 20, "steps": 2, "sample": 2},
    "run": {"engine": "vectorised", "device": "cpu"},
}


@pytest.mark.parametrize(("large", "tried"), [(False, 5), (True, 1)], ids=["one batch", "lane by lane"])
def test_one_run_is_tried_where_lanes_take_their_own_time(
    large: bool, tried: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes of a large model run side by side on streams, whoever they belong to: runs then go one after another."""
    begun: list[Loop] = []

    def counted(loops: Iterable[Loop], engine: Vectorised, at_once: int) -> Iterable[Loop]:
        begun.extend(loops)
        return together(begun, engine, at_once)

    monkeypatch.setattr(pace, "together", counted)
    if large:
        monkeypatch.setattr(descent, "_streams", lambda job: ())
    experiment = assemble(SETTINGS, [], "")
    measured = pace._measured([PlannedRun(experiment, seed, {}, tmp_path / str(seed)) for seed in range(5)])
    assert len(begun) == measured.at_once == tried
    assert measured.training > 0 and all(loop.plan.rounds == 3 for loop in begun)


def test_of_a_round_that_takes_minutes_a_part_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks once a round: two steps of two clients take a second. A round has three
    epochs of batches of 8; an evaluated sample takes a third of a trained one."""
    ticks = iter(range(9))
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(pace, "_HEAVY", 1.0)
    changes = [("train", "steps", None), ("train", "epochs", 3), ("train", "batch", 8), ("data", "share", 1.0)]
    experiment = assemble({**deepcopy(SETTINGS), "run": {"engine": "sequential", "device": "cpu"}}, changes, "")
    (run,) = [PlannedRun(experiment, 0, {}, tmp_path)]
    fed = Jobs().job(run).fed
    steps = [3 * math.ceil(len(rows) / 8) for rows in fed.train.values()]
    measured = pace._measured([run])
    assert measured.training == pytest.approx(sum(steps) / len(steps) / 2)
    seen = sum(len(rows) for _, _, rows in fed.groups())
    assert measured.evaluation == pytest.approx(seen / (2 * 2 * 8) / 3) and next(ticks) == 2, "two rounds"


def test_a_round_in_which_clients_take_one_step_on_all_they_have(tmp_path: Path) -> None:
    """Whatever its epochs and batch are: FedSGD sends a gradient of all samples."""
    changes = [("train", "steps", None), ("train", "epochs", 3), ("train", "batch", 8), ("algorithm", "name", "fedsgd")]
    experiment = assemble(deepcopy(SETTINGS), changes, "")
    job = Jobs().job(PlannedRun(experiment, 0, {}, tmp_path))
    sizes = [len(rows) for rows in job.fed.train.values()]
    assert pace._round(experiment, job) == (1, pytest.approx(2 * sum(sizes) / len(sizes)))


@pytest.mark.parametrize(("streams", "expected"), [(None, 5), (10, 5), (8, 3), (6, 3), (1, 1)])
def test_runs_of_a_large_model_go_together_as_far_as_they_are_computed_side_by_side(
    streams: int | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients a round, so two of the lanes that go side by side are one run's."""
    if streams is not None:
        monkeypatch.setattr(descent, "_streams", lambda job: (None,) * streams)
    experiment = assemble(SETTINGS, [], "")
    runs = [PlannedRun(experiment, seed, {}, tmp_path / str(seed)) for seed in range(5)]
    group, engine = packed(runs, Jobs())
    assert engine is not None and group.at_once == expected and group.lanes == 2 * expected
    assert ("one after another" in str(group)) == (expected == 1)
