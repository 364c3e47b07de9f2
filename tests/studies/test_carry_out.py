"""A study carried out: passes of training, grids that grow, seeds that are added, and what a stop leaves."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from accord.console.progress import watcher_for
from accord.core.errors import AccordError
from accord.experiments.execute import Interrupt
from accord.experiments.sweep import PlannedRun, sweep
from accord.studies import Study, load
from accord.studies import outcome as reading
from accord.studies.carry_out import CarriedOut, carry_out
from accord.studies.grow import as_wide
from accord.studies.outcome import Result
from study_commands import PRINTED, TINY


class Trainer:
    """Trains as the command does. `stop_in`: the call in which somebody presses Ctrl-C, before anything is trained."""

    def __init__(self, stop_in: int | None = None) -> None:
        self.calls: list[list[PlannedRun]] = []
        self.stop_in = stop_in

    def __call__(self, runs: list[PlannedRun]) -> tuple[int, bool]:
        self.calls.append([run for run in runs if not run.done])
        interrupt = Interrupt(0.0) if len(self.calls) == self.stop_in else Interrupt()
        with watcher_for(Console(file=io.StringIO())) as watcher:
            return sweep(runs, watcher, interrupt, lambda text: None), interrupt.asked


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Study]:
    def make(text: str = TINY, **axes: list[str]) -> Study:
        (tmp_path / "tiny.toml").write_text(text)
        return load(str(tmp_path / "tiny.toml")).only(axes)

    return make


@pytest.fixture
def printed(tiny: Callable[..., Study]) -> Study:
    return tiny(PRINTED, aggregation=["avg", "gma"]).changed(grid=False)


def carried(study: Study, folder: Path, train: Trainer, **options: object) -> CarriedOut:
    return carry_out(study, folder / "runs", "held-out", train, lambda text: None, **options)


def test_every_run_is_trained_once_and_every_cell_complete(tiny: Callable[..., Study], tmp_path: Path) -> None:
    train = Trainer()
    done = carried(tiny(), tmp_path, train)
    assert [len(call) for call in train.calls] == [12] and len(done.runs) == 12
    assert not done.cut_short and done.missing == 0 and all(result.complete for result in done.results)


def test_a_grid_that_has_grown_has_every_point_once(tiny: Callable[..., Study]) -> None:
    """What one rival's grid has grown by may be in another's from the start."""
    study = tiny()
    (first, *_) = study.cells
    (key,) = first.grid
    wider = replace(study, wider={study.place(first.values): {key: [first.grid[key][0], 7.0]}})
    assert wider.cells[0].grid[key] == [*first.grid[key], 7.0]


def test_a_grid_may_have_values_that_are_lists(tiny: Callable[..., Study]) -> None:
    study = tiny(TINY + '"data.angles" = [[0, 30], [0, 60]]\n')
    results = [Result(cell, {}, [], 0, 4) for cell in study.cells]
    results[0] = replace(
        results[0], cell=replace(study.cells[0], grid={**study.cells[0].grid, "data.angles": [[0, 90]]})
    )
    assert {str(cell.grid["data.angles"]) for cell in as_wide(study, results).cells} == {"[[0, 30], [0, 60], [0, 90]]"}


def test_a_grid_grows_as_often_as_it_may(tiny: Callable[..., Study], tmp_path: Path) -> None:
    study = tiny(rule=["mean"])
    train = Trainer()
    done = carried(study, tmp_path, train, grow=1)
    assert len(train.calls) == 2 and [len(values) for values in done.results[0].cell.grid.values()] == [3]
    assert len(done.runs) == 6 and done.results[0].complete


def test_seeds_are_added_only_where_that_is_asked_for(printed: Study, tmp_path: Path) -> None:
    train = Trainer()
    plain = carried(printed, tmp_path, train, by_need=True)
    assert len(train.calls) == 1 and [result.seeds for result in plain.results] == [2, 2]
    more = carried(printed, tmp_path, train, by_need=True, more_seeds=True)
    assert [result.seeds for result in more.results] == [result.cell.seeds[-1] + 1 for result in more.results]
    assert more.results[0].seeds > 2 and not more.cut_short
    added = [{run.seed for run in call} for call in train.calls[2:]]
    assert added == [{seed} for seed in range(2, more.results[0].seeds)], "one a pass, for both rivals"


def test_a_stop_while_added_seeds_train_keeps_the_complete_results(printed: Study, tmp_path: Path) -> None:
    complete = carried(printed, tmp_path, Trainer())
    done = carried(printed, tmp_path, Trainer(stop_in=2), by_need=True, more_seeds=True)
    assert done.cut_short and done.missing == 0
    assert done.results == complete.results and done.study == complete.study
    assert {run.seed for run in done.runs} == {0, 1, 2}, "what the added seed has trained is exported too"
    further = carried(printed, tmp_path, Trainer(stop_in=3), by_need=True, more_seeds=True)
    assert [result.seeds for result in further.results] == [3, 3]


def test_a_stop_before_all_cells_are_complete_says_how_many_are_not(tiny: Callable[..., Study], tmp_path: Path) -> None:
    done = carried(tiny(), tmp_path, Trainer(stop_in=1))
    assert done.cut_short and done.missing == 3 and not any(result.figures for result in done.results)


def test_a_stop_after_the_last_run_cuts_nothing_short(tiny: Callable[..., Study], tmp_path: Path) -> None:
    study = tiny(rule=["mean"])
    carried(study, tmp_path, Trainer())
    again = carried(study, tmp_path, Trainer(stop_in=1))
    assert not again.cut_short and again.missing == 0


def test_a_finished_cell_is_read_once(printed: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried(printed, tmp_path, Trainer())
    read: list[Path] = []
    real = reading.load
    monkeypatch.setattr(reading, "load", lambda folder: read.append(folder) or real(folder))
    done = carried(printed, tmp_path, Trainer(), by_need=True)
    assert sorted(read) == sorted(run.folder for run in done.runs)


def test_cells_without_data_are_told_of_and_left_out(
    tiny: Callable[..., Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path))
    study = tiny(rule=["mean", "gma"]).changed(["train.rounds=1"], seeds=[0], grid=False)
    axis = {**study.axes["rule"], "gma": {**study.axes["rule"]["gma"], "data.name": "femnist"}}
    told: list[str] = []
    lacking = replace(study, axes={**study.axes, "rule": axis})
    done = carry_out(lacking, tmp_path / "runs", "held-out", Trainer(), told.append)
    assert told[-1].startswith("1 cell left out: ") and len(done.runs) == 1 and done.missing == 0
    with pytest.raises(AccordError):
        carry_out(lacking.only({"rule": ["gma"]}), tmp_path / "runs", "held-out", Trainer(), told.append)
