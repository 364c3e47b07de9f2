"""The naive loop of `benchmarks/naive.py` as a contestant."""

import argparse
from dataclasses import replace

from naive import Naive

from contestants.protocol import Ready, Stored, compete


def prepare(work: Stored, asked: argparse.Namespace) -> Ready:
    loop = Naive(work, asked.device)

    def run(rounds: int) -> float:
        loop.work = replace(work, rounds=rounds)
        return loop.measure()

    return Ready(
        lambda: run(1),
        lambda: run(work.rounds),
        {},
        "one process, torch's own number of threads, all samples as floats in memory",
    )


if __name__ == "__main__":
    compete(prepare)
