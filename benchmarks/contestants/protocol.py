"""What all contestants share: the work with its data on disk, and the conversation with `benchmarks/engines.py`.

A contestant is `python -m contestants.NAME --work W1 --data FOLDER --device cpu`. It does one round and one evaluation
that nobody times, then writes a line of JSON that says who it is. From then on it answers every line `measure` with a
line of JSON, and sleeps in between. Answers go where standard output went at first; what libraries print there goes to
standard error instead.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from works import SMOKE, T1, W1, WORKS, Work

W5 = replace(W1, name="W5", what="160 clients x 6000, LeNet, batch 32: 160 lanes of W1", clients=160, sample=160)
EVERY = {**WORKS, W5.name: W5, **SMOKE, T1.name: T1}
MOST_ROUNDS = 1000  # towards a target: whoever needs more will not reach it


@dataclass(frozen=True)
class Stored(Work):
    """The same work on the same data, mapped from files: nobody's start has to wait for random numbers to be drawn."""

    folder: str = ""

    def data(self) -> tuple[Tensor, Tensor]:
        x, y = (torch.from_numpy(np.load(Path(self.folder) / f"{part}.npy", mmap_mode="c")) for part in ("x", "y"))
        return x, y


def store(work: Work, folder: Path) -> None:
    """Writes the work's data, for `Stored` to map."""
    for part, values in zip(("x", "y"), work.data(), strict=True):
        np.save(folder / f"{part}.npy", values.numpy())


def stored(name: str, folder: str) -> Stored:
    return Stored(**asdict(EVERY[name]), folder=folder)


@dataclass(frozen=True)
class Measured:
    """How long the work took, in how many rounds, and the accuracy at its end."""

    seconds: float
    rounds: int
    accuracy: float


Run = Callable[[int], Measured]  # so many further rounds, and one evaluation


def until(work: Work, run: Run) -> Measured:
    """The work: its rounds once or, where it has a target, until that is reached."""
    done = run(work.rounds)
    while work.target is not None and not done.accuracy >= work.target:  # NaN is no target either
        if done.rounds >= MOST_ROUNDS:
            raise SystemExit(f"{done.accuracy:.1%} after {done.rounds} rounds, and {work.target:.0%} was the target")
        more = run(work.rounds)
        done = Measured(done.seconds + more.seconds, done.rounds + more.rounds, more.accuracy)
    return done


@dataclass(frozen=True)
class Ready:
    """A contestant that has its data. `first` does one round and one evaluation; `measure` does the work, where it has
    a target from a fresh model."""

    first: Callable[[], object]
    measure: Callable[[], Measured]
    versions: dict[str, str]
    note: str  # how it was set up, for those who doubt that it was fair


def compete(prepare: Callable[[Stored, argparse.Namespace], Ready], *options: str) -> None:
    """Prepares, does a first round, then answers until its input ends. `options` are further arguments, each with a
    value."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    parser = argparse.ArgumentParser()
    for option in ("--work", "--data", "--device", *options):
        parser.add_argument(option, required=True)
    asked = parser.parse_args()

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    ready = prepare(stored(asked.work, asked.data), asked)
    ready.first()
    threads = torch.get_num_threads()
    answer(
        versions={**ready.versions, "torch": torch.__version__, "python": sys.version.split()[0]},
        note=ready.note,
        threads=threads,
    )
    for line in sys.stdin:
        if line.strip() != "measure":
            raise SystemExit(f"a contestant understands only the word measure, got {line!r}")
        done = asdict(ready.measure())
        answer(**done, gpu_mb=torch.cuda.max_memory_allocated() / 2**20 if asked.device == "cuda" else None)
