"""How long a round of a run takes here: a few rounds tried and thrown away, once for each kind of run. What was
measured is kept in the cache, by device and version."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from statistics import fmean

import torch

from accord.core.errors import AccordError
from accord.core.files import write_json
from accord.core.version import __version__
from accord.engines.contract import Job
from accord.engines.determinism import steady
from accord.engines.device import pick_device
from accord.experiments.cost import client_steps
from accord.experiments.experiment import Experiment
from accord.experiments.groups import Jobs, PlannedRun, grouped, packed
from accord.experiments.lockstep import MOST_RUNS, together
from accord.kernels.paths import cache_folder
from accord.runs.checksums import read_json
from accord.training.engine_choice import make_engine, with_kernel
from accord.training.loop import Event, Loop
from accord.training.plan import Plan

_TRIED = 3  # rounds: the first sets things up, the last is evaluated
_HEAVY = 1e11  # parameters times samples of a round: on a CPU that takes minutes, so a part of it is tried
_FEW = 2  # local steps of such a part
_FORWARD = 1 / 3  # what evaluating a sample takes of what training on it does


@dataclass(frozen=True)
class Pace:
    """Seconds a round of one run takes, and those of one evaluation; `at_once` runs go in lockstep."""

    training: float
    evaluation: float
    at_once: int = 1

    def seconds(self, plan: Plan) -> float:
        """Of a whole run."""
        return plan.rounds * self.training + len(plan.evaluations) * self.evaluation


@dataclass(frozen=True)
class Share:
    """Runs of one kind, and the seconds that they take together."""

    kind: str
    runs: int
    rounds: int
    at_once: int
    seconds: float


def ahead(runs: Sequence[PlannedRun], tell: Callable[[str], None]) -> list[Share]:
    """What is left of the runs, by kind, and how long it may take on this device."""
    kinds: dict[str, list[PlannedRun]] = {}
    for run in runs:
        if not run.done:
            kinds.setdefault(_kind(run), []).append(run)
    shares = []
    for kind, members in kinds.items():
        here = _pace(members, tell)
        seconds = sum(here.seconds(run.experiment.plan(run.seed)) for run in members)
        shares.append(Share(kind, len(members), sum(run.rounds for run in members), here.at_once, seconds))
    return shares


def device_of(run: PlannedRun) -> str:
    """The name of the device that the run would train on."""
    device = pick_device(run.experiment.settings.run.device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def may_end_early(runs: Sequence[PlannedRun]) -> bool:
    """Whether some may end before their last round, so that the time of all is an upper bound."""
    return any(run.experiment.settings.train.patience for run in runs)


def in_hours(seconds: float) -> str:
    """`38.2 h`, `12 min`, `40 s`."""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _kind(run: PlannedRun) -> str:
    """What the time of a round hangs on: runs of one kind take equally long."""
    settings = run.experiment.settings
    clients = "natural clients" if settings.data.clients is None else f"{settings.data.clients} clients"
    in_turn = ", one client left out" if run.leaves_out else ""  # such runs go in lockstep where others do not
    return (
        f"{settings.data.name}, {settings.model.name}, {settings.train.sample} of {clients}, {settings.train.epochs}"
        f" epochs{in_turn}"
    )


def _pace(runs: Sequence[PlannedRun], tell: Callable[[str], None]) -> Pace:
    """The pace of runs of one kind, measured now or before."""
    engine, kind = runs[0].experiment.settings.run.engine, _kind(runs[0])
    key = f"{device_of(runs[0])}, engine {engine}, accord {__version__}, torch {torch.__version__}, {kind}"
    path = cache_folder() / "pace.json"
    try:
        known = read_json(path)
    except AccordError:  # none yet, or one that was damaged: it is measured again
        known = {}
    if key not in known:
        tell(f"no time is known yet for {kind}: a few rounds are tried, once, which may take a minute ...")
        known[key] = vars(_measured(runs))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, known)
    return Pace(**known[key])


def _measured(runs: Sequence[PlannedRun]) -> Pace:
    """Rounds of a run by itself or, where that is how they go, of as many in lockstep as there is room for."""
    jobs = Jobs()
    jobs.stack(runs[:MOST_RUNS])  # as a sweep does, so that those go together that will
    group, engine = packed(grouped(runs[:MOST_RUNS], jobs)[0], jobs)  # the first run, and those that can go with it
    if engine is None and _is_heavy(runs[0].experiment, job := jobs.job(runs[0])):
        return _from_a_part(runs[0], job)
    moments: list[list[float]] = [[] for _ in range(_TRIED)]

    def loop_of(run: PlannedRun) -> Loop:
        job = jobs.job(run) if engine else with_kernel(run.experiment.settings.run.engine, jobs.job(run))
        by = engine or make_engine(run.experiment.settings.run.engine, job)
        return Loop(job, _tried(run), by, None, [_note])

    def _note(event: Event) -> None:
        moments[event.row["round"] - 1].append(time.monotonic())

    if engine is None:
        loop = loop_of(runs[0])
        with steady(loop.job.speed):
            loop.go()
    else:
        with steady(engine.job.speed):
            for _ in together(map(loop_of, islice(group.runs, group.at_once)), engine, group.at_once):
                pass
        engine.close()
    ends = [max(moment) for moment in moments]
    training, with_evaluation = ((later - earlier) / group.at_once for earlier, later in pairwise(ends))
    return Pace(training, max(0.0, with_evaluation - training), group.at_once)


def _tried(run: PlannedRun) -> Plan:
    """A few of its rounds, of which the last is evaluated, whatever its own plan."""
    plan = run.experiment.plan(run.seed)
    return replace(plan, rounds=_TRIED, evaluate_every=_TRIED + 1, evaluate_at=(), patience=None)


def _is_heavy(experiment: Experiment, job: Job) -> bool:
    return job.device.type == "cpu" and job.layout.size * _round(experiment, job)[1] > _HEAVY


def _from_a_part(run: PlannedRun, full: Job) -> Pace:
    """From rounds in which clients take a few of their steps, and nothing is evaluated."""
    experiment, engine, plan = run.experiment, run.experiment.settings.run.engine, _tried(run)
    part = replace(experiment, training=replace(experiment.training, steps=_FEW))
    job, moments = with_kernel(engine, replace(full, training=part.training)), list[float]()

    def stop_after_two(event: Event) -> bool:
        moments.append(time.monotonic())
        return len(moments) == 2

    with steady(job.speed):
        Loop(job, plan, make_engine(engine, job), None, [stop_after_two]).go()
    took, (steps, samples) = moments[1] - moments[0], _round(part, full)
    trained_on = sum(map(len, full.fed.train.values()))
    others = sum(len(rows) for split, _, rows in full.fed.groups() if split != "train")
    seen = others + min(plan.evaluate_samples or trained_on, trained_on)
    return Pace(took * _round(experiment, full)[0] / steps, _FORWARD * took * seen / samples)


def _round(experiment: Experiment, job: Job) -> tuple[float, float]:
    """The local steps of a client in a round, on average, and the samples that its cohort trains on."""
    steps = fmean(client_steps(experiment, job.fed))
    batch = None if experiment.algorithm.local.full_batch else experiment.training.batch
    cohort = experiment.first_plan.sample or len(job.fed.train)
    return steps, cohort * steps * (batch or fmean(map(len, job.fed.train.values())))
