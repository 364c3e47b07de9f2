"""A grid of runs: an experiment file whose [sweep] table gives some keys several values. Every combination is an
ordinary experiment.

Runs that can share a batch go in lockstep; each has the folder, and gets the record, that `accord run` with its values
would give it.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from accord.core.errors import AccordError, did_you_mean
from accord.core.files import flat
from accord.data.cache import Progress
from accord.data.unseen import EACH
from accord.engines.vectorised import Vectorised
from accord.experiments.execute import (
    Interrupt,
    Watcher,
    caution,
    discard,
    execute_seed,
    loggers,
    opened,
    quiet,
    reached,
)
from accord.experiments.experiment import Experiment, assemble, override, tables_of, text_of
from accord.experiments.groups import Group, Jobs, PlannedRun, grouped, packed
from accord.experiments.lockstep import trained
from accord.experiments.paths import Override, canonical
from accord.experiments.settings import SECTIONS, shown
from accord.runs.run import Run
from accord.training.loop import Event, Hook, Loop

Axis = list[dict[str, Any]]  # its points, each with the settings that it brings
MOST = 10_000  # runs of a sweep; more is a slip of the keyboard


# --------------------------------------------------------------------------------------------------- the grid


def read(path: str | Path, overrides: Sequence[str] = ()) -> list[PlannedRun]:
    """The runs of a sweep file, in the order of its table: the last key goes fastest, then the seeds."""
    text = text_of(path)
    tables = tables_of(text, str(path))
    grid = _grid(tables.pop("sweep", {}))
    changes = [override(text) for text in overrides]
    swept = {canonical(key) for axis in grid for point in axis for key in point}
    for section, key, value in changes:
        if canonical(f"{section}.{key}") in swept:
            raise AccordError(
                f"{section}.{key} is swept by the file's [sweep] table and set to {shown(value)} here: it can be one of"
                " them"
            )
    _check_size(math.prod(map(len, grid)))
    runs: dict[Path, PlannedRun] = {}
    for experiment, values in _experiments(tables, grid, changes, text, Path(path).parent):
        seeds = experiment.settings.run.seeds
        if not runs:
            _check_size(math.prod(map(len, grid)) * len(seeds))
        for seed in seeds:
            run = PlannedRun(experiment, seed, values, experiment.folder(seed))
            if run.folder in runs:
                raise AccordError(
                    f"[sweep] gives two runs one folder, {run.folder}: "
                    f"{_spelled(values)} and {_spelled(runs[run.folder].values)} do not change the result"
                )
            runs[run.folder] = run
        _check_size(len(runs))
    return list(runs.values())


def _experiments(
    tables: Mapping[str, Any], grid: Sequence[Axis], overrides: Sequence[Override], text: str, folder: Path
) -> Iterator[tuple[Experiment, dict[str, Any]]]:
    """Every combination of the grid; where each client is to be unseen in turn, one for each of them."""
    clients: dict[str, list[str]] = {}  # by the data section, which is read once
    for combination in product(*grid):
        values = {key: value for point in combination for key, value in point.items()}
        more = [*overrides, *((*key.split(".", 1), value) for key, value in values.items())]
        experiment = assemble(copy.deepcopy(dict(tables)), more, text, folder)
        data = experiment.settings.data
        if data.unseen != EACH:
            yield experiment, values
            continue
        key = data.model_dump_json()
        if key not in clients:
            clients[key] = experiment.supply.left_out_in_turn()
        for client in clients[key]:
            one = assemble(copy.deepcopy(dict(tables)), [*more, ("data", "unseen", [client])], text, folder)
            yield one, {**values, "data.unseen": client}


def _grid(table: Any) -> list[Axis]:
    """The axes of the [sweep] table: `train.lr`, with or without quotes, has several values, and a section as a whole
    several tables."""
    if not isinstance(table, dict):
        raise AccordError(
            f"sweep must be a section, got {shown(table)}: write [sweep] on a line of its own, and its keys below it"
        )
    grid: list[Axis] = []
    for name, values in flat(table).items():
        section, dot, setting = name.partition(".")
        tables = isinstance(values, list) and all(isinstance(value, dict) and value for value in values)
        if not section or not (setting or (tables and not dot)):
            raise AccordError(
                f'{name!r} in [sweep] is not a setting: write section.key, such as "algorithm.mask.tau" = [0.2, 0.4]'
            )
        if section not in SECTIONS:
            raise AccordError(
                f"{name!r} in [sweep] is of no section of an experiment: {did_you_mean(section, SECTIONS)}"
            )
        if not isinstance(values, list) or not values:
            raise AccordError(f"{name} in [sweep] must be a list of one or more values, got {shown(values)}")
        if setting:
            grid.append([{name: value} for value in values])
        else:
            grid.append([{f"{name}.{key}": value for key, value in one.items()} for one in values])
    axes = Counter(key for axis in grid for key in {key for point in axis for key in point})
    for key, count in axes.items():
        if count > 1:
            raise AccordError(f"{key} is swept twice: by itself, and in the tables of its section")
    return grid


def _check_size(runs: int) -> None:
    if runs > MOST:
        raise AccordError(
            f"a sweep may have at most {MOST:,} runs, and this grid has {runs:,}: give fewer values, or fewer seeds"
        )


def _spelled(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={shown(value)}" for key, value in values.items()) or "the file's own settings"


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
    note_common_class: bool = False,
) -> int:
    """Trains what is left of the runs, and says how many have rounds before them still. Runs that share a folder, as
    coinciding cells of a study do, are trained once, with the most rounds that one of them asks for.
    `note_common_class`: says, of the first, where accuracy would tell little."""
    most: dict[Path, PlannedRun] = {}
    for run in runs:
        most[run.folder] = max(most.get(run.folder, run), run, key=lambda one: one.rounds)
    runs = list(most.values())
    for run in runs:
        if fresh:
            discard(run.folder)
    before = {run.folder: _standing(run) for run in runs}
    left = [run for run in runs if not before[run.folder].done]
    if len(left) < len(runs):
        tell(f"{len(runs) - len(left)} of {len(runs)} runs are done already.")
    jobs = Jobs(watcher.data)
    jobs.stack(left)
    if left and note_common_class:
        caution(left[0].experiment, jobs.job(left[0]).fed, watcher)
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
        for title, run in zip(_titles(runs), runs, strict=True):
            if not interrupt.asked:
                there = run.folder.exists()  # else it is new, and nobody asked to go on with it
                execute_seed(run.experiment, run.seed, watcher, interrupt, resume=there, fresh=False, title=title)
        return
    for line in engine.job.fed.notes:
        watcher.note(line)
    try:
        watcher.begin(str(group), len(runs), sum(run.rounds for run in runs), so_far)
        _in_lockstep(group, engine, jobs, watcher, interrupt)
    finally:
        engine.close()


def _titles(runs: Sequence[PlannedRun]) -> list[str]:
    """`2/6 · fedavg + gma(0.4) · train.lr=0.1 · seed 0`: the values in which the runs differ."""
    all_keys = dict.fromkeys(key for run in runs for key in run.values)
    apart = {key for key in all_keys if len({str(run.values.get(key)) for run in runs}) > 1}
    titles = []
    for number, run in enumerate(runs, 1):
        some = {key: value for key, value in run.values.items() if key in apart}
        titles.append(f"{number}/{len(runs)} · {replace(run, values=some).title}")
    return titles


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


def _in_lockstep(group: Group, engine: Vectorised, jobs: Jobs, watcher: Audience, interrupt: Interrupt) -> None:
    titles: dict[Loop, str] = {}
    with ExitStack() as folders, interrupt.watching(), quiet(watcher):

        def loops() -> Iterator[Loop]:
            for run in group.runs:
                folder = folders.enter_context(opened(run.experiment, run.seed, resume=True, fresh=False))
                hooks: list[Hook] = [partial(watcher.step, run.title), *loggers(run.experiment, folder.path)]
                loop = Loop(jobs.job(run), run.experiment.plan(run.seed), engine, folder, hooks)
                titles[loop] = run.title
                yield loop

        auto = group.runs[0].experiment.settings.run.engine == "auto"
        for loop in trained(loops(), engine, group.at_once, auto, lambda: interrupt.asked):
            watcher.leave(titles.pop(loop), loop.result())


def preview(runs: Sequence[PlannedRun], progress: Progress | None = None) -> dict[str, Any]:
    """What a sweep would do: its runs, how they go together, and where they go."""
    groups = []
    jobs = Jobs(progress)
    jobs.stack(runs)
    for members in grouped(runs, jobs):
        group, engine = packed(members, jobs)
        if engine is not None:
            engine.close()
        where = [{"title": run.title, "folder": str(run.folder)} for run in group.runs]
        numbers = {"runs": len(group.runs), "at_once": group.at_once, "lanes": group.lanes, "apart": group.apart}
        groups.append({"about": str(group), **numbers, "folders": where})
    return {"runs": len(runs), "groups": groups}
