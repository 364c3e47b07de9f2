"""Rounds that changed nothing stand in what is read back."""

from pathlib import Path

import pytest

import accord
from accord.runs.comparison import comparison
from accord.runs.reader import load
from accord.training.loop import SkippedRound
from conftest import blobs, mlp


@pytest.mark.parametrize(("lost", "status"), [(1.0, "learned nothing"), (0.7, "done")])
def test_skipped_rounds_are_told(lost: float, status: str, tmp_path: Path) -> None:
    conditions = accord.Conditions(lost=lost)
    with pytest.warns(SkippedRound):
        run = accord.fit(
            mlp(), blobs(), rounds=6, sample=3, min_clients=2, conditions=conditions, folder=tmp_path, verbose=False
        )
    skipped = sum(row.skipped is not None for row in run.recorded)
    assert run.folder is not None and skipped > 0 and (skipped == 6) == (status == "learned nothing")
    read = load(run.folder)
    assert read.ending == f"{status}, {skipped} of 6 rounds skipped"
    assert comparison([read], "last10")[1][-1] == read.ending
    assert accord.load(run.folder, mlp()).stopped is None
