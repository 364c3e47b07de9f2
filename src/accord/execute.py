"""Runs experiments, seed by seed, and tells whoever is watching."""

import json
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from accord.causal.traffic import traffic
from accord.data import DATASETS
from accord.describe import label
from accord.errors import AccordError
from accord.experiment import Experiment
from accord.layout import Layout
from accord.locks import remove_locked, take_lock
from accord.logs import LOGS
from accord.loop import Event, Hook, SkippedRound
from accord.privacy.accounting import spent_text
from accord.records import RunFolder
from accord.run import Run
from accord.training import carry_out


class Watcher(Protocol):
    """Shows a run as it goes."""

    def data(self, label: str, done: int, total: int | None) -> None: ...
    def start(self, title: str, rounds: int, reached: int) -> None: ...
    def round(self, event: Event) -> None: ...
    def end(self, run: Run) -> None: ...
    def note(self, text: str) -> None: ...


class Interrupt:
    """Ctrl-C asks for a stop after the round; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it the first Ctrl-C only sets a flag, so that the round in progress is finished and written."""
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        os.write(2, b"\nFinishing this round. Ctrl-C once more stops at once.\n")  # print may be what the signal cut into


def execute(experiment: Experiment, watcher: Watcher, interrupt: Interrupt, *, resume: bool = False, fresh: bool = False) -> Iterator[Run]:
    """Trains the experiment once per seed. A run stopped by Ctrl-C is given like any other, and is the last."""
    experiment.check_here()
    for seed in experiment.settings.run.seeds:
        yield execute_seed(experiment, seed, watcher, interrupt, resume=resume, fresh=fresh)
        if interrupt.asked:
            return


def execute_seed(experiment: Experiment, seed: int, watcher: Watcher, interrupt: Interrupt, *, resume: bool, fresh: bool) -> Run:
    """Trains the experiment with one of its seeds."""
    fed = experiment.federation(seed, watcher.data)
    module = experiment.module(fed, seed)
    with opened(experiment, seed, resume, fresh) as folder:
        so_far = reached(folder)
        watcher.start(f"{label(experiment.algorithm)} · seed {seed}", so_far if folder.over else experiment.settings.train.rounds, so_far)
        with interrupt.watching(), quiet():
            run = carry_out(
                module,
                fed,
                experiment.algorithm,
                experiment.training,
                experiment.plan(seed),
                engine=experiment.settings.run.engine,
                device=experiment.settings.run.device,
                speed=experiment.settings.run.speed,
                attack=experiment.attack,
                folder=folder,
                hooks=[lambda event: watcher.round(event), lambda event: interrupt.asked, *loggers(experiment, folder.path)],
                tell=watcher.note,
            )
    if interrupt.asked and run.stopped:
        run = replace(run, stopped="interrupted")
    watcher.end(run)
    return run


def loggers(experiment: Experiment, folder: Path) -> list[Hook]:
    """Hooks for the programs that the run is to tell how it goes."""
    return [LOGS[name](folder, experiment.resolved()) for name in experiment.settings.run.log]


@contextmanager
def quiet() -> Iterator[None]:
    """Within it a skipped round raises no warning: the watcher tells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedRound)
        yield


@contextmanager
def opened(experiment: Experiment, seed: int, resume: bool, fresh: bool) -> Iterator[RunFolder]:
    """The seed's run folder, locked."""
    path = experiment.folder(seed)
    try:
        if fresh:
            discard(path)
        recorded = {"seed": seed, **experiment.resolved()}
        folder = RunFolder(path, recorded, experiment.settings.train.rounds, toml=experiment.text, resume=resume)
    except OSError as error:
        where = error.filename or path
        raise AccordError(
            f"run.folder must be a folder that can be written to, got {str(path.parent)!r}: {where}: {error.strerror}"
        ) from None
    try:
        yield folder
    finally:
        folder.close()


def reached(folder: RunFolder) -> int:
    """The rounds that a run folder holds for good."""
    return max(folder.finished_at, folder.state["round"] if folder.state else 0)


def discard(path: Path) -> None:
    """Removes a run folder, unless another process is at work in it."""
    if path.exists():
        remove_locked(path, take_lock(path))  # with the lock alone: what is thrown away may be damaged


def preview(experiment: Experiment, watcher: Watcher) -> dict[str, Any]:
    """What an experiment would do: its settings, what a run takes, and where it goes."""
    folders = [str(experiment.folder(seed)) for seed in experiment.settings.run.seeds]
    return {"settings": experiment.resolved(), "cost": cost(experiment, watcher), "folders": folders}


def as_text(ahead: dict[str, Any]) -> str:
    """A preview as an experiment file with every default filled in; what is not a setting is a comment."""
    lines = []
    for section, values in ahead["settings"].items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()), ""]
    for what, amount in ahead["cost"].items():
        lines.append(f"# {what.replace('_', ' ')}: " + (f"{amount:,}" if isinstance(amount, int) else amount))
    return "\n".join([*lines, *(f"# folder: {folder}" for folder in ahead["folders"])])


def cost(experiment: Experiment, watcher: Watcher) -> dict[str, Any]:
    """What one run of the experiment takes: client steps, and bytes a round between clients and server."""
    seed = experiment.settings.run.seeds[0]
    fed = experiment.federation(seed, watcher.data)
    module = experiment.module(fed, seed)
    layout = Layout.of(module)
    plan, training = experiment.plan(seed), experiment.training
    sizes = [len(rows) for rows in fed.train.values()]
    per_client = [steps_of(size, training.epochs, training.batch, training.steps) for size in sizes]
    if experiment.algorithm.local.full_batch:
        per_client = [1] * len(sizes)
    cohort = len(sizes) if plan.sample is None else plan.sample
    vectors = 2 if experiment.algorithm.local.variates else 1  # SCAFFOLD sends its control variates along, both ways
    width = layout.dtype.itemsize
    down = up = cohort * (vectors * layout.size * width + sum(b.size for b in layout.buffers) * 8)
    asked, vector = experiment.algorithm.asks_twice, cohort * layout.size * width
    up += vector * (asked + sum(name.endswith("gradient") for name in experiment.algorithm.average.needs))
    down += vector * asked
    if split := experiment.algorithm.local.split:
        seen = [min(training.epochs * size, steps * (training.batch or size)) for size, steps in zip(sizes, per_client, strict=True)]
        share = cohort / len(sizes)
        down, up = traffic(module, fed, split.at, share * sum(per_client), share * sum(seen))
    privacy = experiment.algorithm.privacy
    spent = privacy and privacy.spent(experiment.algorithm.mask is not None, len(sizes), plan.sample, plan.rounds)
    return {
        **({"privacy": spent_text(spent)} if spent else {}),
        "data_set": DATASETS[experiment.settings.data.name].about,
        "parameters": layout.size,
        "client_steps_a_round": round(cohort * sum(per_client) / len(per_client)),
        "client_steps_a_run": round(plan.rounds * cohort * sum(per_client) / len(per_client)),
        "bytes_down_a_round": down,
        "bytes_up_a_round": up,
        "runs": len(experiment.settings.run.seeds),
    }


def steps_of(samples: int, epochs: int, batch: int | None, limit: int | None) -> int:
    """Local steps of a client with so many samples."""
    steps = epochs * (1 if batch is None else -(-samples // batch))
    return steps if limit is None else min(steps, limit)
