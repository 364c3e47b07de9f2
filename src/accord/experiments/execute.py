"""Runs experiments, seed by seed, and tells whoever is watching."""

import math
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Protocol, TextIO

from accord.core.errors import AccordError
from accord.core.locks import remove_locked, take_lock
from accord.data.common_class import caution_on_accuracy
from accord.data.federated import Federation
from accord.experiments.experiment import Experiment
from accord.runs.environment import OtherEnvironment
from accord.runs.folder import RunFolder
from accord.runs.run import Run
from accord.training.fit import carry_out
from accord.training.loggers import LOGS
from accord.training.loop import Event, Hook, SkippedRound


class Watcher(Protocol):
    """Shows a run as it goes."""

    def data(self, label: str, done: int, total: int | None) -> None: ...
    def start(self, title: str, rounds: int, reached: int) -> None: ...
    def round(self, event: Event) -> None: ...
    def end(self, run: Run) -> None: ...
    def note(self, text: str) -> None: ...


class Interrupt:
    """Ctrl-C asks for a stop after the round; a second one stops at once. So does the end of a span of time."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._ends, self._pressed = time.monotonic() + seconds, False

    @property
    def late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self._ends

    @property
    def asked(self) -> bool:
        return self._pressed or self.late

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it the first Ctrl-C only sets a flag, so that the round in progress is finished and written."""
        before = signal.signal(signal.SIGINT, self._handle)
        self._stop_at_once = before if callable(before) else signal.default_int_handler
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            self._stop_at_once(number, frame)
        self._pressed = True
        # print may be what the signal cut into
        os.write(2, b"\nFinishing this round. Ctrl-C once more stops at once.\n")


def execute(
    experiment: Experiment, watcher: Watcher, interrupt: Interrupt, *, resume: bool = False, fresh: bool = False
) -> Iterator[Run]:
    """Trains the experiment once per seed. A run stopped by Ctrl-C is given like any other, and is the last."""
    experiment.check_here()
    for number, seed in enumerate(experiment.settings.run.seeds):
        # once: shares of classes differ a little from seed to seed
        first = number == 0
        yield execute_seed(experiment, seed, watcher, interrupt, resume=resume, fresh=fresh, note_common_class=first)
        if interrupt.asked:
            return


def execute_seed(
    experiment: Experiment,
    seed: int,
    watcher: Watcher,
    interrupt: Interrupt,
    *,
    resume: bool,
    fresh: bool,
    note_common_class: bool = False,
    title: str = "",
) -> Run:
    """Trains the experiment with one of its seeds. `note_common_class`: says where accuracy would tell little. `title`:
    what sets it apart from others that are trained after one another."""
    fed = experiment.federation(seed, watcher.data)
    if note_common_class:
        caution(experiment, fed, watcher)
    module = experiment.module(fed, seed)
    with opened(experiment, seed, resume, fresh) as folder:
        so_far = reached(folder)
        if resume and not so_far:
            watcher.note(f"there is nothing to resume in {folder.path}: the run begins with round 1")
        watcher.start(
            title or f"{experiment.label} · seed {seed}",
            so_far if folder.over else experiment.settings.train.rounds,
            so_far,
        )
        with interrupt.watching(), quiet(watcher):
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
                metrics=experiment.metrics,
                folder=folder,
                hooks=[
                    lambda event: watcher.round(event),
                    lambda event: interrupt.asked,
                    *loggers(experiment, folder.path),
                ],
                tell=watcher.note,
            )
    if interrupt.asked and run.stopped:
        run = replace(run, stopped="interrupted")
    watcher.end(run)
    return run


def caution(experiment: Experiment, fed: Federation, watcher: Watcher) -> None:
    """Notes where accuracy judges and one class has most of the held-out samples, or of the training samples if none
    are held out."""
    by_accuracy = experiment.metrics is None or next(iter(experiment.metrics)) == "accuracy"
    rows, whose = (fed.heldout, "held-out") if any(map(len, fed.heldout.values())) else (fed.train, "training")
    if by_accuracy and (text := caution_on_accuracy(fed, rows.values(), f"the {whose} samples")):
        watcher.note(text)


def loggers(experiment: Experiment, folder: Path) -> list[Hook]:
    """Hooks for the programs that the run is to tell how it goes."""
    return [LOGS[name](folder, experiment.resolved()) for name in experiment.settings.run.log]


@contextmanager
def quiet(watcher: Watcher) -> Iterator[None]:
    """Within it the watcher tells of skipped rounds and of another environment, each in a line; Python's warnings would
    be two."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def tell(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, OtherEnvironment):
                watcher.note(str(message))
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = tell
        warnings.simplefilter("ignore", SkippedRound)
        warnings.simplefilter("always", OtherEnvironment)
        yield


@contextmanager
def opened(experiment: Experiment, seed: int, resume: bool, fresh: bool) -> Iterator[RunFolder]:
    """The seed's run folder, locked."""
    path = experiment.folder(seed)
    try:
        if fresh:
            discard(path)
        rounds = experiment.settings.train.rounds
        folder = RunFolder(path, experiment.recorded(seed), rounds, toml=experiment.text, resume=resume)
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
