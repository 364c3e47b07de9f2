"""Run-rounds a second of a study while it trains, and evaluation's share of them.

    python benchmarks/study_pace.py reproduce tmlr-table2 --only dataset=mnist,split=noniid,clients=500 --rounds 200 \
        --folder /tmp/pace run.device=cuda

What follows the name is a command of accord's, which runs in this process. A line for every 5,000 run-rounds: starting,
compiling and the table at the end are outside of them.
"""

import sys
import time
from contextlib import suppress
from itertools import pairwise

from accord.cli.main import main as accord
from accord.training.loop import Loop

EVERY = 5_000


def main() -> None:
    marks = [(time.monotonic(), 0.0)]
    count, spent, record = 0, 0.0, Loop.record

    def counted(loop: Loop, row, evaluated, training: float, evaluating: float) -> None:  # type: ignore[no-untyped-def]
        nonlocal count, spent
        count, spent = count + 1, spent + evaluating
        if count % EVERY == 0:
            marks.append((time.monotonic(), spent))
        record(loop, row, evaluated, training, evaluating)

    Loop.record = counted  # type: ignore[method-assign,assignment]
    with suppress(SystemExit):
        accord()
    print(f"{count:,} run-rounds in {time.monotonic() - marks[0][0]:.1f} s", file=sys.stderr)
    for number, ((began, before), (ended, after)) in enumerate(pairwise(marks[1:]), 2):
        seconds = ended - began
        share = 100 * (after - before) / seconds
        print(f"  to {number * EVERY:>9,}: {EVERY / seconds:7,.0f} a second, evaluation {share:.0f} %", file=sys.stderr)


if __name__ == "__main__":
    main()
