"""A sweep in lockstep against the same runs one by one, in one process. Two rounds that are not timed come first:
kernels are compiled once for all runs to come.

    python benchmarks/sweep.py experiments/sweep.toml [train.rounds=50 run.device=cuda ...]

Prints both times, and in how many runs the two ways wrote the same metrics, byte for byte.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console

from accord.console.progress import watcher_for
from accord.experiments.execute import Interrupt, execute_seed
from accord.experiments.sweep import PlannedRun, read, sweep


def in_lockstep(runs: list[PlannedRun]) -> None:
    with watcher_for(Console(stderr=True)) as watcher:
        sweep(runs, watcher, Interrupt(), lambda text: print(text, file=sys.stderr))


def one_by_one(runs: list[PlannedRun]) -> None:
    with watcher_for(Console(stderr=True)) as watcher:
        for run in runs:
            execute_seed(run.experiment, run.seed, watcher, Interrupt(), resume=True, fresh=False)


def main() -> None:
    file, *overrides = sys.argv[1:]
    ways = {"in lockstep": in_lockstep, "one by one": one_by_one}
    with tempfile.TemporaryDirectory() as scratch:
        for train in ways.values():
            train(read(file, [*overrides, "train.rounds=2", f"run.folder={Path(scratch) / train.__name__}"])[:2])
        written: dict[str, dict[str, bytes]] = {}
        for name, train in ways.items():
            runs = read(file, [*overrides, f"run.folder={Path(scratch) / name.replace(' ', '-')}"])
            started = time.perf_counter()
            train(runs)
            seconds = time.perf_counter() - started
            written[name] = {run.folder.name: (run.folder / "metrics.jsonl").read_bytes() for run in runs}
            print(f"{len(runs)} runs x {runs[0].rounds} rounds {name}: {seconds:.1f} s", flush=True)
    same = sum(written["in lockstep"][run] == content for run, content in written["one by one"].items())
    print(f"the same metrics, byte for byte: {same} of {len(written['one by one'])} runs; torch {torch.__version__}")


if __name__ == "__main__":
    main()
