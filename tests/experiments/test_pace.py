"""How the pace of runs is measured: with as many as will share a batch, or one where none is faster for another."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from accord.engines.vectorised import Vectorised, descent
from accord.experiments import pace
from accord.experiments.experiment import assemble
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
