"""A grid of runs: an experiment file whose [sweep] table gives some keys several values. Every combination is an
ordinary experiment.

Runs that can share a batch go in lockstep; each has the folder, and gets the record, that `accord run` with its values
would give it.
"""

import copy
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from accord.core.errors import AccordError, did_you_mean
from accord.core.files import flat
from accord.data import Federation
from accord.data.cache import Progress
from accord.engines.contract import Job
from accord.engines.determinism import steady
from accord.engines.device import pick_device
from accord.engines.vectorised import CannotBatch, Vectorised
from accord.experiments.execute import Interrupt, Watcher, discard, execute_seed, loggers, opened, quiet, reached
from accord.experiments.experiment import Experiment, assemble, override, tables_of, text_of
from accord.experiments.lockstep import Shared, alike, room, together
from accord.experiments.settings import SECTIONS, shown
from accord.rules.old_spelling import canonical
from accord.runs.folder import read_json
from accord.runs.run import Run
from accord.training.fit import make_job
from accord.training.loop import Event, Hook, Loop

MOST = 10_000  # runs of a sweep; more is a slip of the keyboard


@dataclass(frozen=True)
class PlannedRun:
    """One run of the grid: its experiment, its seed, and the values that set it apart."""

    experiment: Experiment
    seed: int
    values: dict[str, Any]
    folder: Path

    @property
    def rounds(self) -> int:
        return self.experiment.settings.train.rounds

    @property
    def done(self) -> bool:
        """Whether its folder has all its rounds, or those until it was flat."""
        path = self.folder / "done"
        mark = read_json(path) if path.exists() else {"rounds": 0}
        return mark["rounds"] >= self.rounds or "flat_since" in mark

    @property
    def title(self) -> str:
        """`fedadam + gma(0.4) · algorithm.server.lr=0.02 · seed 1`."""
        words = [f"{key}={value}" for key, value in self.values.items() if key != "run.seeds"]
        return " · ".join([self.experiment.algorithm.label, *words, f"seed {self.seed}"])


# --------------------------------------------------------------------------------------------------- the grid


def read(path: str | Path, overrides: Sequence[str] = ()) -> list[PlannedRun]:
    """The runs of a sweep file, in the order of its table: the last key goes fastest, then the seeds."""
    text = text_of(path)
    tables = tables_of(text, str(path))
    grid = _grid(tables.pop("sweep", {}))
    given = [override(text) for text in overrides]
    swept = set(map(canonical, grid))
    for section, key, value in given:
        if canonical(f"{section}.{key}") in swept:
            raise AccordError(
                f"{section}.{key} is swept by the file's [sweep] table and set to {shown(value)} here: it can be one of"
                " them"
            )
    _check_size(math.prod(map(len, grid.values())))
    runs: dict[Path, PlannedRun] = {}
    for combination in product(*grid.values()):
        values = dict(zip(grid, combination, strict=True))
        more = [(*key.split(".", 1), value) for key, value in values.items()]
        experiment = assemble(copy.deepcopy(tables), [*given, *more], text, Path(path).parent)
        seeds = experiment.settings.run.seeds
        if not runs:
            _check_size(math.prod(map(len, grid.values())) * len(seeds))
        for seed in seeds:
            run = PlannedRun(experiment, seed, values, experiment.folder(seed))
            if run.folder in runs:
                raise AccordError(
                    f"[sweep] gives two runs one folder, {run.folder}: "
                    f"{_spelled(values)} and {_spelled(runs[run.folder].values)} do not change the result"
                )
            runs[run.folder] = run
    return list(runs.values())


def _grid(table: Any) -> dict[str, list[Any]]:
    """`{"train.lr": [0.01, 0.02]}` from the [sweep] table, in which `train.lr` may stand with or without quotes."""
    if not isinstance(table, dict):
        raise AccordError(
            f"sweep must be a section, got {shown(table)}: write [sweep] on a line of its own, and its keys below it"
        )
    grid: dict[str, list[Any]] = {}
    for name, values in flat(table).items():
        section, dot, setting = name.partition(".")
        if not (section and dot and setting):
            raise AccordError(
                f'{name!r} in [sweep] is not a setting: write section.key, such as "algorithm.mask.tau" = [0.2, 0.4]'
            )
        if section not in SECTIONS:
            raise AccordError(
                f"{name!r} in [sweep] is of no section of an experiment: {did_you_mean(section, SECTIONS)}"
            )
        if not isinstance(values, list) or not values:
            raise AccordError(f"{name} in [sweep] must be a list of one or more values, got {shown(values)}")
        grid[name] = values
    return grid


def _check_size(runs: int) -> None:
    if runs > MOST:
        raise AccordError(
            f"a sweep may have at most {MOST:,} runs, and this grid has {runs:,}: give fewer values, or fewer seeds"
        )


def _spelled(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={shown(value)}" for key, value in values.items()) or "the file's own settings"


# ------------------------------------------------------------------------------------------------- the groups


class Jobs:
    """Jobs of runs, over samples that all of them share."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress, self._shared = progress, Shared()
        # each lives as long as runs that use it
        self._feds: WeakValueDictionary[Hashable, Federation] = WeakValueDictionary()
        self._alike: dict[Hashable, Hashable] = {}

    def job(self, run: PlannedRun) -> Job:
        """The run as an engine gets it."""
        experiment, seed = run.experiment, run.seed
        data = experiment.settings.data
        key = data.model_dump_json(), seed if data.seed is None else data.seed
        fed = self._feds.get(key)
        if fed is None:
            fed = self._feds[key] = self._shared.federation(experiment.federation(seed, self._progress))
        module, plan = experiment.module(fed, seed), experiment.plan(seed)
        where = experiment.settings.run
        parts = module, fed, experiment.algorithm, experiment.training, plan, where.device
        return make_job(*parts, speed=where.speed, attack=experiment.attack)

    def alike(self, run: PlannedRun) -> Hashable:
        """What the run must share with others to go along with them. Looked into once for all runs that differ in rates
        and rules alone."""
        settings, training, local = run.experiment.settings, run.experiment.training, run.experiment.algorithm.local
        sections = settings.data.model_dump_json(), settings.model.model_dump_json()
        key = (*sections, settings.run.device, *settings.run.speed, run.seed, training.batch, local.full_batch)
        if key not in self._alike:
            self._alike[key] = alike(self.job(run))
        return self._alike[key]


@dataclass(frozen=True)
class Group:
    """Runs that go together. `apart` says why they go one by one instead."""

    runs: list[PlannedRun]
    at_once: int = 1
    lanes: int = 0
    apart: str | None = None

    def __str__(self) -> str:
        count = f"{len(self.runs)} run{'' if len(self.runs) == 1 else 's'}"
        if self.apart:
            return f"{count}, one by one: {self.apart}"
        some = f"{self.at_once} at a time, " if self.at_once < len(self.runs) else ""
        return f"{count} in lockstep, {some}{self.lanes} lane{'' if self.lanes == 1 else 's'}"


def grouped(runs: Sequence[PlannedRun], jobs: Jobs) -> list[list[PlannedRun]]:
    """The runs by what they can share."""
    groups: dict[Hashable, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(_apart(run) or jobs.alike(run), []).append(run)
    return list(groups.values())


def _apart(run: PlannedRun) -> str | None:
    """Why the run is to be trained by itself, whatever others there are."""
    where = run.experiment.settings.run
    if run.experiment.algorithm.local.engine is not None:
        return "clients of causalfed need their server at every step"
    if where.engine == "vectorised":
        return None
    if where.engine != "auto":
        return f"run.engine = {where.engine!r} trains a run by itself"
    if pick_device(where.device).type == "cpu":
        return (
            "on a CPU a run by itself uses all cores, and is faster than as a part of a batch (run.engine ="
            " 'vectorised' has it in one)"
        )
    return None


def packed(runs: list[PlannedRun], jobs: Jobs) -> tuple[Group, Vectorised | None]:
    """Runs that can share a batch, as many of them at a time as there is room for, and the engine that they share, if
    there is one."""
    apart = _apart(runs[0])
    if apart is not None:
        return Group(runs, apart=apart), None
    job = jobs.job(runs[0])
    try:
        shared = Vectorised(job)
    except CannotBatch as error:
        return Group(runs, apart=str(error)), None
    cohort = max(run.experiment.plan(run.seed).sample or len(job.fed.clients) for run in runs)
    at_once = min(room(job, cohort), len(runs))
    return Group(runs, at_once, at_once * cohort), shared


# --------------------------------------------------------------------------------------------------- the runs


class Audience(Watcher, Protocol):
    """Shows groups of runs as they go."""

    def begin(self, title: str, runs: int, rounds: int, reached: int) -> None: ...
    def step(self, title: str, event: Event) -> None: ...
    def leave(self, title: str, run: Run) -> None: ...


def sweep(
    runs: Sequence[PlannedRun],
    watcher: Audience,
    interrupt: Interrupt,
    tell: Callable[[str], None],
    *,
    fresh: bool = False,
) -> int:
    """Trains what is left of the runs, and says how many have rounds before them still."""
    for run in runs:
        if fresh:
            discard(run.folder)
    before = {run.folder: _standing(run) for run in runs}
    left = [run for run in runs if not before[run.folder].done]
    if len(left) < len(runs):
        tell(f"{len(runs) - len(left)} of {len(runs)} runs are done already.")
    jobs = Jobs(watcher.data)
    for group in grouped(left, jobs):
        if not interrupt.asked:
            _train(group, sum(before[run.folder].reached for run in group), jobs, watcher, interrupt, tell)
    return sum(not _standing(run).done for run in left)


def _train(
    runs: list[PlannedRun],
    so_far: int,
    jobs: Jobs,
    watcher: Audience,
    interrupt: Interrupt,
    tell: Callable[[str], None],
) -> None:
    """One group. Its engine lives here alone, so that its samples have left the device before the next group's come."""
    group, engine = packed(runs, jobs)
    if engine is None:
        tell(f"{group}.")
        _one_by_one(group, watcher, interrupt)
        return
    try:
        watcher.begin(str(group), len(runs), sum(run.rounds for run in runs), so_far)
        _in_lockstep(group, engine, jobs, watcher, interrupt)
    finally:
        engine.close()


@dataclass(frozen=True)
class _Standing:
    reached: int
    done: bool


def _standing(run: PlannedRun) -> _Standing:
    """How far a run has come. A folder that is damaged, or that another process works in, is told of before anything is
    trained."""
    if not run.folder.exists():
        return _Standing(0, False)
    with opened(run.experiment, run.seed, resume=True, fresh=False) as folder:
        # One that has all its rounds but no mark was killed while it was completed.
        return _Standing(reached(folder), folder.over or reached(folder) > run.rounds)


def _one_by_one(group: Group, watcher: Audience, interrupt: Interrupt) -> None:
    for run in group.runs:
        if not interrupt.asked:
            execute_seed(run.experiment, run.seed, watcher, interrupt, resume=True, fresh=False)


def _in_lockstep(group: Group, engine: Vectorised, jobs: Jobs, watcher: Audience, interrupt: Interrupt) -> None:
    titles: dict[Loop, str] = {}
    with ExitStack() as folders, interrupt.watching(), quiet(watcher), steady(engine.job.speed):

        def loops() -> Iterator[Loop]:
            for run in group.runs:
                folder = folders.enter_context(opened(run.experiment, run.seed, resume=True, fresh=False))
                hooks: list[Hook] = [partial(watcher.step, run.title), *loggers(run.experiment, folder.path)]
                loop = Loop(jobs.job(run), run.experiment.plan(run.seed), engine, folder, hooks)
                titles[loop] = run.title
                yield loop

        for loop in together(loops(), engine, group.at_once, lambda: interrupt.asked):
            assert loop.folder is not None
            loop.folder.close()  # now, not at the end: there may be more runs than a process may hold files open
            watcher.leave(titles.pop(loop), loop.result())


def preview(runs: Sequence[PlannedRun], progress: Progress | None = None) -> dict[str, Any]:
    """What a sweep would do: its runs, how they go together, and where they go."""
    groups = []
    jobs = Jobs(progress)
    for members in grouped(runs, jobs):
        group, engine = packed(members, jobs)
        if engine is not None:
            engine.close()
        where = [{"title": run.title, "folder": str(run.folder)} for run in group.runs]
        numbers = {"runs": len(group.runs), "at_once": group.at_once, "lanes": group.lanes, "apart": group.apart}
        groups.append({"about": str(group), **numbers, "folders": where})
    return {"runs": len(runs), "groups": groups}
