"""`leave_one_out`: every method trained without one client after another, and judged on the client it has not met."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from torch import nn

from accord.attacks import Attack
from accord.core.errors import AccordError, did_you_mean
from accord.core.measure import Metrics, PerSample
from accord.data.federated import Federation
from accord.data.unseen import check_each, leave_out
from accord.engines.contract import Job
from accord.engines.determinism import steady
from accord.engines.vectorised import CannotBatch, Vectorised
from accord.experiments.lockstep import alike, room, stacked, trained, why_alone
from accord.rules.algorithm import Algorithm
from accord.rules.label import label_of
from accord.rules.local import Training
from accord.runs.evaluation import metric_of
from accord.runs.fingerprint import run_name
from accord.runs.folder import RunFolder
from accord.runs.left_out import LeftOut
from accord.runs.run import Run
from accord.runs.selection import Selected, rule_for, select
from accord.runs.text import align
from accord.training.engine_choice import make_engine, soon_done, with_kernel
from accord.training.evaluation_schedule import schedules
from accord.training.fit import make_job
from accord.training.loop import Loop
from accord.training.plan import Plan, identity
from accord.training.progress_line import say
from accord.training.run_settings import run_settings

Key = tuple[str, str, int]  # method, client left out, seed
Model = nn.Module | Callable[[int], nn.Module]
_OF_PLAN = tuple(field.name for field in fields(Plan) if field.name != "seed")
_OF_TRAINING = tuple(field.name for field in fields(Training))


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Runs of several methods, each without one client after another: `print(result)` shows a row per method and a
    column per client that was left out."""

    runs: dict[Key, Run]  # by method, client left out and seed

    def table(self, rule: str | None = None) -> LeftOut:
        """All figures on the clients that were left out, by a selection rule (None: `held-out`, or `last10` where
        nothing is held out)."""
        histories = {key: run.history for key, run in self.runs.items()}
        rule = rule_for(list(histories.values()), rule)
        chosen: dict[str, dict[str, dict[str, Selected]]] = {}
        for (method, client, seed), history in histories.items():
            of = chosen.setdefault(method, {}).setdefault(client, {})
            if history:
                of[str(seed)] = select(history, rule)
        return LeftOut(metric_of(histories.values()), rule, chosen)

    def figures(self, rule: str | None = None) -> dict[str, dict[str, list[float]]]:
        """By method and client left out: a figure per seed."""
        table = self.table(rule)
        return {method: table.figures(method) for method in table.chosen}

    def __str__(self) -> str:
        return "\n".join(align(self.table().cells()))


@dataclass(frozen=True)
class _Planned:
    key: Key
    job: Job
    plan: Plan
    folder: Path | None

    def open(self, engine: str, device: str, resume: bool) -> RunFolder | None:
        settings = run_settings(self.job, self.plan, engine, device)
        return None if self.folder is None else RunFolder(self.folder, settings, self.plan.rounds, resume=resume)


def leave_one_out(
    model: Model,
    fed: Federation,
    algorithms: Algorithm | Sequence[Algorithm] | Mapping[str, Algorithm],
    *,
    seeds: int | Sequence[int] = 0,
    attack: Attack | None = None,
    engine: str = "auto",
    device: str = "auto",
    speed: Sequence[str] = (),
    folder: str | Path | None = None,
    resume: bool = True,
    loss: PerSample | None = None,
    metrics: Metrics | Sequence[str] | None = None,
    verbose: bool | None = None,
    **options: Any,
) -> LeaveOneOut:
    """Trains every algorithm with every seed once without each client of `fed`, and evaluates it on that client.

    `model` is a module, or a function that makes one for a seed. `algorithms` is one, several, or several by name.
    `options` are those of `accord.fit` for training and evaluation: `rounds`, `lr`, `batch`, `evaluate_every` and so
    on. Nothing of a client that is left out reaches training: preparation that was fitted to the training clients is
    fitted again without it. Small models, and all models on a GPU, train in lockstep. With a `folder` every run has one
    of its own there, finished runs are not repeated, and `accord show` prints the same table.

    >>> fed = accord.data.table(source="patients.csv", client="hospital", label="ill")
    >>> methods = {"averaging": accord.fedavg(), "masked": accord.fedavg(mask=accord.gma(0.4))}
    >>> model = accord.models.logistic(features=13, classes=2)
    >>> result = accord.leave_one_out(model, fed, methods, rounds=40, seeds=range(5))
    >>> print(result)
    >>> result.figures()["masked"]["north"]
    """
    methods = _methods(algorithms)
    if fed.unseen:
        raise AccordError(
            f"fed has unseen clients already, such as {next(iter(fed.unseen))}: leave_one_out takes each client in"
            " turn, so make it without"
        )
    check_each(fed.clients, fed.name)
    plan, training = _settings(options)
    numbers = [seeds] if isinstance(seeds, int) else list(seeds)
    if not numbers or len(set(numbers)) < len(numbers):
        raise AccordError(f"seeds must be one or more different whole numbers, got {numbers}")
    without = {client: leave_out(fed, client) for client in fed.clients}
    runs = []
    for seed in numbers:
        module = model if isinstance(model, nn.Module) else model(seed)
        mine = replace(plan, seed=seed)
        for name, algorithm in methods.items():
            for client, rest in without.items():
                parts = module, rest, algorithm, training, mine, device
                job = make_job(*parts, speed=speed, attack=attack, loss=loss, metrics=metrics)
                path = None if folder is None else Path(folder) / run_name(job, identity(job, mine))
                runs.append(_Planned((name, client, seed), job, mine, path))
    over = dict(zip(without, stacked(list(without.values())), strict=True))
    tell = say if (sys.stderr.isatty() if verbose is None else verbose) else (lambda text: None)
    done: dict[Key, Run] = {}
    for group in _groups(runs, over, engine):
        for run, result in _train(group, over, engine, device, resume):
            done[run.key] = result
            tell(f"{len(done)}/{len(runs)} {run.key[0]} without {run.key[1]}, seed {run.key[2]}")
    return LeaveOneOut({run.key: done[run.key] for run in runs})


def _methods(algorithms: Algorithm | Sequence[Algorithm] | Mapping[str, Algorithm]) -> dict[str, Algorithm]:
    """The algorithms by name: that which they are given, or else their label."""
    if isinstance(algorithms, Mapping):
        named = {str(name): _checked(algorithm) for name, algorithm in algorithms.items()}
    else:
        listed = [algorithms] if isinstance(algorithms, Algorithm) else list(algorithms)
        named = {label_of(_checked(algorithm)): algorithm for algorithm in listed}
        if len(named) < len(listed):
            raise AccordError("two of the algorithms have one label: give them names, as in {'slow': ..., 'fast': ...}")
    if not named:
        raise AccordError("algorithms is empty: give at least one, such as accord.fedavg()")
    return named


def _checked(algorithm: object) -> Algorithm:
    if not isinstance(algorithm, Algorithm):
        raise AccordError(f"algorithms must be of type Algorithm, got {algorithm!r}")
    return algorithm


def _settings(options: Mapping[str, Any]) -> tuple[Plan, Training]:
    for name in options:
        if name not in (*_OF_PLAN, *_OF_TRAINING):
            raise AccordError(f"leave_one_out takes no {name}: {did_you_mean(name, (*_OF_PLAN, *_OF_TRAINING))}")
    settings = {**options, "evaluate_at": schedules(options.get("evaluate_at", ()))}
    plan = Plan(**{name: settings[name] for name in _OF_PLAN if name in settings})
    return plan, Training(**{name: settings[name] for name in _OF_TRAINING if name in settings})


def _over(run: _Planned, feds: Mapping[str, Federation]) -> Job:
    """The run's job over samples that it shares with others."""
    fed = feds[run.key[1]]
    return replace(run.job, fed=fed.pool() if run.job.fed.pooled else fed)


def _groups(runs: Sequence[_Planned], over: Mapping[str, Federation], engine: str) -> Iterator[list[_Planned]]:
    """Runs that can share a batch; every other by itself."""
    groups: dict[Any, list[_Planned]] = {}
    for number, run in enumerate(runs):
        many = engine in ("auto", "vectorised") and why_alone(run.job.algorithm) is None
        pays = run.job.device.type == "cuda" or engine == "vectorised" or soon_done(run.job)
        key = alike(_over(run, over)) if many and pays else number
        groups.setdefault(key, []).append(run)
    yield from groups.values()


def _train(
    runs: list[_Planned], over: Mapping[str, Federation], engine: str, device: str, resume: bool
) -> Iterator[tuple[_Planned, Run]]:
    """Trains runs that can share a batch in lockstep, and others one by one."""
    jobs = [_over(run, over) for run in runs]
    shared: Vectorised | None = None
    if len(runs) > 1:
        with suppress(CannotBatch):
            shared = Vectorised(jobs[0])
    if shared is None:
        for run in runs:
            yield run, _alone(run, engine, device, resume)
        return
    with ExitStack() as folders:
        planned: dict[Loop, _Planned] = {}

        def loops() -> Iterator[Loop]:
            for run, job in zip(runs, jobs, strict=True):
                place = run.open(engine, device, resume)
                if place is not None:
                    folders.callback(place.close)
                loop = Loop(job, run.plan, shared, place, [])
                planned[loop] = run
                yield loop

        cohort = max(run.plan.sample or len(run.job.fed.clients) for run in runs)
        for loop in trained(loops(), shared, min(room(jobs[0], cohort), len(runs)), engine == "auto"):
            yield planned.pop(loop), loop.result()
    shared.close()


def _alone(run: _Planned, engine: str, device: str, resume: bool) -> Run:
    place = run.open(engine, device, resume)
    try:
        job = with_kernel(engine, run.job, place)
        with steady(job.speed):
            return Loop(job, run.plan, make_engine(engine, job), place, []).go()
    finally:
        if place is not None:
            place.close()
