"""How much memory a run keeps for every round it has done: `python benchmarks/memory.py [ROUNDS]`.

A model of two weights trains for 10,000 rounds, each with an evaluation, with a run folder and without one. What
counts is the growth of Python's own allocations (tracemalloc) and of the process from a tenth of the rounds to all.
"""

import gc
import resource
import sys
import tempfile
import tracemalloc
from pathlib import Path

import torch
from torch import nn

import accord
from accord.training.loop import Event

_KB = 1024.0


def used() -> tuple[float, float]:
    """Kilobytes of Python objects, and of the process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return tracemalloc.get_traced_memory()[0] / _KB, pages * resource.getpagesize() / _KB


def growth(rounds: int, folder: str | None) -> tuple[float, float]:
    """Bytes a round, of Python objects and of the process."""
    x = torch.linspace(-1, 1, 32).reshape(-1, 1)
    groups = {f"c{client}": torch.arange(4 * client, 4 * client + 4) for client in range(8)}
    fed = accord.data.Federation(x, 2 * x[:, 0], groups, {c: rows[:1] for c, rows in groups.items()}, {})
    seen = {}

    def look(event: Event) -> None:
        if event.round in (rounds // 10, rounds):
            seen[event.round] = used()

    accord.fit(
        nn.Sequential(nn.Linear(1, 1), nn.Flatten(0)),
        fed,
        accord.fedavg(mask=accord.gma(0.4)),
        rounds=rounds,
        sample=2,
        batch=4,
        evaluate_every=1,
        folder=folder,
        engine="sequential",
        hooks=[look],
        verbose=False,
    )
    first, last = seen[rounds // 10], seen[rounds]
    python, process = (_KB * (b - a) / (rounds - rounds // 10) for a, b in zip(first, last, strict=True))
    return python, process


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    torch.set_num_threads(1)
    tracemalloc.start()
    with tempfile.TemporaryDirectory() as scratch:
        for name, folder in (("with a folder", scratch), ("without", None)):
            python, process = growth(rounds, folder)
            print(f"{name:15s} {python:8.0f} bytes a round of Python objects, {process:8.0f} of the process")


if __name__ == "__main__":
    main()
