"""Cells that earlier commands finished. `accord reproduce --add` trains none of them again, and plans none of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accord.core.errors import AccordError
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


def finished(
    study: Study, pool: Path, path: Path, asked: Sequence[int] | None = None, *, together: bool = False
) -> Finished:
    """The study's cells that the results file `path` has whole, from the runs that the study would train: the same
    settings, which run names tell, and no fewer rounds. Seeds are those that a cell was run with, or that are `asked`.
    `together`: rivals of a place are to be compared while they are trained, so a place is kept as a whole or not at
    all."""
    earlier = read(path) if path.exists() else None
    if not isinstance(earlier, StudyResults):
        return Finished()
    by_values = {frozenset(result.cell.values.items()): result for result in earlier.complete if result.figures}
    names = {*earlier.runs}
    here, kept = list[Result](), list[Result]()
    for one in study.named(pool):
        if one.missing is not None and one.lacks is None:
            raise AccordError(one.missing)
        result = by_values.get(frozenset(one.cell.values.items()))
        if result is None:
            continue
        _check_seeds(result, asked or (), path)
        if {*(asked or ())} <= result.shared_seeds and _same_runs(one, result, names):
            done = bool(one.runs) and all(run.done for _, run in one.runs)
            (here if done else kept).append(result)
    if together:
        whole = {frozenset(result.cell.values.items()) for result in kept}
        apart = {study.place(cell.values) for cell in study.cells if frozenset(cell.values.items()) not in whole}
        kept = [result for result in kept if study.place(result.cell.values) not in apart]
    return Finished(tuple(here), tuple(kept))


def _check_seeds(result: Result, asked: Sequence[int], path: Path) -> None:
    """Refuses seeds that could only take the place of those that the results have."""
    if not ({*asked} <= result.shared_seeds or result.shared_seeds <= {*asked}):
        has, lacks = (
            ", ".join(map(str, sorted(seeds))) for seeds in (result.shared_seeds, result.shared_seeds - {*asked})
        )
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
    return bool(runs) and all(
        run.folder.name in names and (run.rounds <= fewest or run.experiment.settings.train.patience is not None)
        for run in runs
    )
