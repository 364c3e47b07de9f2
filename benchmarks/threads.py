"""What torch's threads cost and bring: each work with `engine="auto"` as it is, and with one thread by
OMP_NUM_THREADS=1.

    python benchmarks/threads.py [--works logistic,W2,W1] [--repeats 3]

`torch's threads` is what a run without accord's choice would have: the sequential engine with as many threads as torch
takes by itself. A measurement is a process of its own that times `accord.fit` alone, start of workers included. Ways
are asked in turn within each repeat, and ratios are medians over repeats, so that a noisy machine is noisy for all;
processor time, of the process and its workers, is what hardly hangs on what else the machine does. A way that takes too
long is asked no more.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import replace

import torch
from works import W1, W2, Work

import accord
from accord.data import Federation, Scale

# W1 and W2 as in benchmarks/works.py, shorter: their steps, which are what threads change, are the same.
_WHAT = "10 of 100 clients x 120, logistic regression, batch 20, 40 rounds"
LOGISTIC = Work("logistic", _WHAT, 100, 10, 120, 20, (1, 28, 28), 10, "logistic", rounds=40)
WORKS = {
    "logistic": LOGISTIC,
    "W2": replace(W2, what=f"{W2.what}, 5 rounds", rounds=5),
    "W1": replace(W1, what="10 clients x 600 of W1's 6000, LeNet, batch 32, 1 round", samples=600),
}
WAYS = {"OMP_NUM_THREADS=1": "one", "auto": "auto", "torch's threads": "all"}
LIMIT = 15.0  # seconds: with threads that wait for each other a work may take a hundred times as long


Seconds = tuple[float, float]  # by the clock, and of processor time


def measure(work: Work, way: str) -> Seconds:
    """Seconds of `fit`, in this process and its workers."""
    x, y = work.data()
    held = work.clients * work.samples
    rows = torch.arange(len(x))
    train = {f"c{number}": part for number, part in enumerate(rows[:held].split(work.samples))}
    fed = Federation(x, y, train, test=rows[held : held + 1000], prepare=Scale(), name=work.name)
    if way == "all":
        os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())  # a choice, which accord keeps
    engine = "sequential" if way == "all" else "auto"
    started, used = time.perf_counter(), sum(os.times()[:4])
    options = {"rounds": work.rounds, "sample": work.sample, "batch": work.batch, "evaluate_every": work.rounds}
    accord.fit(work.module(), fed, **options, device="cpu", engine=engine, verbose=False)  # type: ignore[arg-type]
    return time.perf_counter() - started, sum(os.times()[:4]) - used


def ask(work: str, way: str) -> Seconds | None:
    """The same in a process of its own; None if it takes too long."""
    env = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    env |= {"OMP_NUM_THREADS": "1"} if way == "one" else {}
    command = [sys.executable, __file__, "--works", work, "--way", way]
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT)
        clock, processor = map(float, done.stdout.split())
        return clock, processor
    except subprocess.TimeoutExpired:
        return None


def compare(work: Work, repeats: int) -> None:
    seconds: dict[str, list[Seconds]] = {name: [] for name in WAYS}
    late: set[str] = set()
    for _ in range(repeats):
        for name, way in WAYS.items():
            if name not in late and (took := ask(work.name, way)) is not None:
                seconds[name].append(took)
            else:
                late.add(name)
    one = seconds["OMP_NUM_THREADS=1"]
    print(f"{work.name}: {work.what}; times that of OMP_NUM_THREADS=1")
    for name, times in seconds.items():
        if name in late:
            print(f"  {name:18s} more than {LIMIT:g} s")
            continue
        clock, processor = (_against(times, one, which) for which in (0, 1))
        print(f"  {name:18s} {clock}   processor {processor}")


def _against(times: list[Seconds], one: list[Seconds], which: int) -> str:
    """The median, and its ratio to one thread's: `0.310 s, 1.02 times`."""
    seconds = statistics.median(pair[which] for pair in times)
    # one thread, too, may have been too slow
    ratios = [mine[which] / its[which] for mine, its in zip(times, one, strict=False)]
    return f"{seconds:7.3f} s" + (f", {statistics.median(ratios):5.2f} times" if ratios else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", choices=WAYS.values(), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(*measure(WORKS[asked.works], asked.way))
        return
    print(
        f"torch {torch.__version__}, {os.cpu_count()} cores, {platform.machine()}, load average"
        f" {os.getloadavg()[0]:.1f}"
    )
    for name in asked.works.split(","):
        compare(WORKS[name], asked.repeats)


if __name__ == "__main__":
    main()
