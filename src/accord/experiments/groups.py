"""Planned runs, and which of them can share a batch."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from accord.core.errors import AccordError
from accord.data import Federation
from accord.data.cache import Progress
from accord.engines.contract import Job
from accord.engines.device import pick_device
from accord.engines.vectorised import CannotBatch, Vectorised
from accord.experiments.experiment import Experiment
from accord.experiments.lockstep import STACKED, Shared, alike, room, stacked, why_alone
from accord.runs.checkpoints import START_OVER
from accord.runs.checksums import read_done
from accord.training.engine_choice import soon_done
from accord.training.fit import make_job


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
        try:
            mark = read_done(path) if path.exists() else {"rounds": 0}
        except AccordError as error:
            raise AccordError(f"{error}: {START_OVER}") from None
        return mark["rounds"] >= self.rounds or "flat_since" in mark

    @property
    def leaves_out(self) -> bool:
        """Whether it is one of several that differ in whom they leave out."""
        return "data.unseen" in self.values

    @property
    def title(self) -> str:
        """`fedadam + gma(0.4) · algorithm.server.lr=0.02 · seed 1`."""
        words = [f"{key}={value}" for key, value in self.values.items() if key != "run.seeds"]
        return " · ".join([self.experiment.label, *words, f"seed {self.seed}"])


class Jobs:
    """Jobs of runs, over samples that all of them share."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress, self._shared = progress, Shared()
        # each lives as long as runs that use it
        self._feds: WeakValueDictionary[Hashable, Federation] = WeakValueDictionary()
        self._alike: dict[Hashable, Hashable] = {}
        self._stacked: dict[Hashable, Federation] = {}

    def stack(self, runs: Sequence[PlannedRun]) -> None:
        """Lets runs that leave out one client after another share a batch: their samples are prepared differently."""
        by_data = {self._key(run): run for run in runs if run.leaves_out}
        feds = []
        for run in by_data.values():
            feds.append(self._shared.federation(run.experiment.federation(run.seed, self._progress)))
            if feds[0].x.nbytes * len(by_data) > STACKED:
                return
        self._stacked = dict(zip(by_data, stacked(feds), strict=True)) if feds else {}

    def job(self, run: PlannedRun) -> Job:
        """The run as an engine gets it."""
        experiment, seed = run.experiment, run.seed
        key = self._key(run)
        fed = self._stacked.get(key) or self._feds.get(key)
        if fed is None:
            fed = self._feds[key] = self._shared.federation(experiment.federation(seed, self._progress))
        module, plan = experiment.module(fed, seed), experiment.plan(seed)
        where = experiment.settings.run
        parts = module, fed, experiment.algorithm, experiment.training, plan, where.device
        return make_job(*parts, speed=where.speed, attack=experiment.attack, metrics=experiment.metrics)

    def _key(self, run: PlannedRun) -> Hashable:
        data = run.experiment.settings.data
        return data.model_dump_json(), run.seed if data.seed is None else data.seed

    def alike(self, run: PlannedRun) -> Hashable:
        """What the run must share with others to go along with them. Looked into once for all runs that differ in rates
        and rules alone."""
        settings, training, algorithm = run.experiment.settings, run.experiment.training, run.experiment.algorithm
        sections = settings.data.model_dump_json(), settings.model.model_dump_json()
        where = settings.run.device, *settings.run.speed, *settings.train.metrics
        shapes = training.batch, algorithm.local.full_batch, type(training.rule), algorithm.personal
        key = (*sections, *where, run.seed, *shapes)
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
        if self.at_once == 1 and len(self.runs) > 1:
            return f"{count}, one after another, of {self.lanes} lane{'' if self.lanes == 1 else 's'}"
        some = f"{self.at_once} at a time, " if self.at_once < len(self.runs) else ""
        return f"{count} in lockstep, {some}{self.lanes} lane{'' if self.lanes == 1 else 's'}"


def grouped(runs: Sequence[PlannedRun], jobs: Jobs) -> list[list[PlannedRun]]:
    """The runs by what they can share."""
    groups: dict[Hashable, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(_apart(run, jobs) or jobs.alike(run), []).append(run)
    return list(groups.values())


def _apart(run: PlannedRun, jobs: Jobs) -> str | None:
    """Why the run is to be trained by itself, whatever others there are."""
    where = run.experiment.settings.run
    if (why := why_alone(run.experiment.algorithm)) is not None:
        return why
    if where.engine == "vectorised":
        return None
    if where.engine != "auto":
        return f"run.engine = {where.engine!r} trains a run by itself"
    # Many small runs that leave out one client after another are most of all overhead, which they share in lockstep.
    if pick_device(where.device).type == "cpu" and not (run.leaves_out and soon_done(jobs.job(run))):
        return "on a CPU runs train one after another, each on all cores"
    return None


def packed(runs: list[PlannedRun], jobs: Jobs) -> tuple[Group, Vectorised | None]:
    """Runs that can share a batch, as many of them at a time as there is room for, and the engine that they share, if
    there is one."""
    apart = _apart(runs[0], jobs)
    if apart is not None:
        return Group(runs, apart=apart), None
    job = jobs.job(runs[0])
    try:
        shared = Vectorised(job)
    except CannotBatch as error:
        return Group(runs, apart=str(error)), None
    cohort = max(run.experiment.plan(run.seed).sample or len(job.fed.clients) for run in runs)
    # More runs than a large model has lanes side by side gain nothing, and take memory for every lane.
    fit = room(job, cohort) if shared.side_by_side is None else max(1, shared.side_by_side // cohort)
    parts = math.ceil(len(runs) / fit)
    at_once = math.ceil(len(runs) / parts)  # equal parts: a few that are left over take nearly as long as many
    return Group(runs, at_once, at_once * cohort), shared
