"""Cells that earlier commands finished. `accord reproduce --add` trains none of them again, and plans none of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.studies.grow import as_wide
from accord.studies.outcome import Result
from accord.studies.results import StudyResults, read
from accord.studies.study import Cell, Named, Study


@dataclass(frozen=True)
class Finished:
    """Results of a study's cells that need no training."""

    here: tuple[Result, ...] = ()  # their runs are on this machine and are read again
    kept: tuple[Result, ...] = ()  # their runs are not, so the results stay as they are

    @property
    def cells(self) -> list[Cell]:
        return [result.cell for result in (*self.here, *self.kept)]


def grown_before(study: Study, path: Path) -> Study:
    """The study with grids as wide as in the results file `path`, so that no cell loses a point of its grid."""
    known = _earlier(path)
    return study if known is None else as_wide(study, known.results)


def finished(
    study: Study, pool: Path, path: Path, asked: Sequence[int] | None = None, *, together: bool = False
) -> Finished:
    """The study's cells that the results file `path` has whole, from the runs that the study would train: the same
    settings, which run names tell, and no fewer rounds. Seeds are those that a cell was run with, or that are `asked`.
    `together`: rivals of a place are to be compared while they are trained, so a place is kept as a whole or not at
    all."""
    known = _earlier(path)
    if known is None:
        return Finished()
    earlier = {result.cell.key: result for result in known.results if result.figures and result.superseded is None}
    here, kept = dict[Any, Result](), dict[Any, Result]()
    for one in study.named(pool):
        if one.missing is not None and one.lacks is None:
            raise AccordError(one.missing)
        result = earlier.get(one.cell.key)
        if result is None or not result.complete:
            continue
        if {*(asked or ())} <= result.shared_seeds and _same_runs(one, result, {*known.runs}):
            done = bool(one.runs) and all(run.done for _, run in one.runs)
            (here if done else kept)[one.cell.key] = result
    if together:
        apart = {study.place(cell.values) for cell in study.cells if cell.key not in kept}
        kept = {key: result for key, result in kept.items() if study.place(result.cell.values) not in apart}
    for cell in study.cells:
        if cell.key in earlier and cell.key not in here and cell.key not in kept:
            _check_seeds(earlier[cell.key], cell.seeds, path)
    return Finished(tuple(here.values()), tuple(kept.values()))


def _earlier(path: Path) -> StudyResults | None:
    known = read(path) if path.exists() else None
    return known if isinstance(known, StudyResults) else None


def _check_seeds(result: Result, seeds: Sequence[int], path: Path) -> None:
    """Refuses to train a cell with seeds that could only take the place of those that its results have."""
    if lacking := result.shared_seeds - {*seeds}:
        has, lacks = (", ".join(map(str, sorted(some))) for some in (result.shared_seeds, lacking))
        raise AccordError(
            f"{path} has {result.cell} with seeds {has}, and results of other seeds cannot be added to them: ask for"
            f" {lacks} as well"
        )


def _same_runs(one: Named, result: Result, names: set[str]) -> bool:
    """Whether a result is of the cell's runs, as far as it has their seeds. Rounds are in no name: a study may ask for
    more of them than it did, and runs that end by themselves have as many as they need."""
    if one.lacks is not None:
        return True  # nothing could be trained
    runs = [run for _, run in one.runs if run.seed in result.shared_seeds]
    fewest = result.rounds[0] if result.rounds else 0
    enough = one.cell.may_end_early or all(run.rounds <= fewest for run in runs)
    return bool(runs) and enough and all(run.folder.name in names for run in runs)
