"""Carrying a study out: its runs are trained in passes, and after each the grid may grow and seeds may be added."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.measure import declared
from accord.core.metrics import Metric
from accord.data.cache import Progress
from accord.data.sources import NoData
from accord.experiments.data_options import Supply
from accord.experiments.experiment import Experiment
from accord.experiments.sweep import PlannedRun
from accord.studies.budget import batches, with_more_seeds
from accord.studies.grow import grown
from accord.studies.outcome import Result, check_metric, gather
from accord.studies.study import Named, Study

# Trains what is left of some runs: how many have rounds before them still, and whether it was asked to stop.
Train = Callable[[list[PlannedRun]], tuple[int, bool]]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class CarriedOut:
    """A study as far as it came: with the grids and seeds that it has by then."""

    study: Study
    results: list[Result]
    runs: list[PlannedRun]  # all, also those of seeds that the results are still without
    cut_short: bool = False  # it was asked to stop, and there was more to train

    @property
    def missing(self) -> int:
        """The cells that could be complete and are not."""
        return sum(not result.complete and result.missing is None for result in self.results)


def carry_out(
    study: Study, pool: Path, rule: str, train: Train, tell: Tell,
    *, grow: int = 0, by_need: bool = False, more_seeds: bool = False,
) -> CarriedOut:  # fmt: skip
    """Trains the study's runs, which lie in the folder `pool`.

    Grids widen at most `grow` times (`studies.grow`). With `by_need`, what settles most is trained first, and with
    `more_seeds`, open results get seeds (`studies.budget`); both need scipy.
    """
    results: list[Result] = []
    without: CarriedOut | None = None  # as it was before seeds were added: they count once all of a place have them
    while True:
        named = fetched(study.named(pool), tell)
        runs = all_runs(named, tell)
        # a run that is done may have been trained elsewhere, on a device that is not here
        for experiment in {id(run.experiment): run.experiment for run in runs if not run.done}.values():
            experiment.check_here()
            _check_named_metric(experiment)
        if by_need and not results:
            results = gather(study, named)
        left, asked = _train(batches(study, named, results, rule) if by_need else [named], train)
        results = gather(study, named, results)
        if left:
            return replace(without or CarriedOut(study, results, runs), runs=runs, cut_short=asked)
        wider, without = (grown(study, results, rule) if grow else study), None
        grow -= wider is not study  # what it has grown by may lie on its edge again
        if wider is study and more_seeds:
            wider, without = with_more_seeds(study, results, rule), CarriedOut(study, results, runs)
        if asked or wider is study:
            return CarriedOut(study, results, runs, cut_short=wider is not study)
        study = wider


def _check_named_metric(experiment: Experiment) -> None:
    """Refuses before training what `gather` would refuse after it. A loss that judges is not known before."""
    for name, metric in [*(experiment.metrics or {}).items()][:1]:
        check_metric(Metric(name, declared(metric).smaller_is_better))


def _train(order: Sequence[Sequence[Named]], train: Train) -> tuple[int, bool]:
    left, asked = 0, False
    for batch in order:
        left, asked = train(runs_of(batch))
        if left:
            break
    return left, asked


def fetched(named: Sequence[Named], tell: Tell) -> list[Named]:
    """The cells, with the data of all that is left to train on this machine. Where data cannot be had, a cell has only
    the runs that are done."""
    told = set[str]()
    errors: dict[tuple[str, str | None], NoData | None] = {}  # by data set; None once it is here

    def progress(label: str, done: int, total: int | None) -> None:
        if label not in told:
            told.add(label)
            tell(label)

    def lacking(run: PlannedRun) -> NoData | None:
        supply = run.experiment.supply
        key = supply.data.name, supply.section.source
        if supply.here or run.done:
            return None
        if key not in errors:
            errors[key] = _fetch(supply, progress)
        return errors[key]

    cells = []
    for one in named:
        error = next(filter(None, (lacking(run) for _, run in one.runs)), None)
        if error is not None:
            one = Named(one.cell, [(point, run) for point, run in one.runs if run.done], str(error), error.data)
        cells.append(one)
    return cells


def _fetch(supply: Supply, progress: Progress) -> NoData | None:
    try:
        supply.fetch(progress)
    except NoData as error:
        return error
    return None


def all_runs(named: Sequence[Named], tell: Tell) -> list[PlannedRun]:
    """All runs of the cells, each once. Cells whose data are not here are told of and left out; if there are no others,
    that is an error."""
    runs = runs_of(named)
    missing = Counter(one.missing for one in named if one.missing is not None)
    if missing and not runs:
        raise AccordError(next(iter(missing)))
    for why, count in missing.items():
        tell(f"{count} cell{'s' * (count > 1)} left out: {why}")
    return runs


def runs_of(named: Sequence[Named]) -> list[PlannedRun]:
    """All runs of the cells that have some, each once."""
    return list({run.folder: run for one in named for _, run in one.runs}.values())
