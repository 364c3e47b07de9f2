"""The naive loop of `benchmarks/naive.py` as a contestant."""

import argparse
from dataclasses import replace

from naive import Naive

from contestants.protocol import Measured, Ready, Stored, compete, until


def prepare(work: Stored, asked: argparse.Namespace) -> Ready:
    loop = Naive(work, asked.device)

    def run(rounds: int) -> Measured:
        loop.work = replace(work, rounds=rounds)
        return Measured(loop.measure(), rounds, loop.accuracy)

    def measure() -> Measured:
        if work.target is not None:
            loop.model.load_state_dict(work.module().state_dict())
        return until(work, run)

    return Ready(
        lambda: run(1),
        measure,
        {},
        "one process, torch's own number of threads, all samples as floats in memory",
    )


if __name__ == "__main__":
    compete(prepare)
