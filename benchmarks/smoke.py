"""A look at speed in 20 seconds: a few steps of each work against a naive loop, and masked against plain averaging.

    python benchmarks/smoke.py [--json FILE]

Only ratios are printed, each a median over turns: seconds mean nothing on a machine that others use. They are rougher
than those of benchmarks/engines.py, and nothing is asked of them: it fails only if something crashes.
"""

import argparse
import contextlib
import io
import os
import sys
from pathlib import Path

import torch
from contestants.process import OWN
from contestants.protocol import EVERY
from machine import in_words, machine, write
from works import SMOKE

from accord import kernels
from core import aggregation
from engines import HERE, compare, contestants, ratio

TURNS = 3
LIMIT = 120.0  # seconds for one answer: it is stuck then


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file to write machine and ratios to")
    asked = parser.parse_args()
    here = machine(without=OWN)
    print(in_words(here))
    kernels.available()  # once, so that nobody's first round waits for the compiler
    print(f"the compiled kernel: {kernels.why_not() or 'built'}")
    if os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        print("others use this machine: a naive loop, whose threads wait for each other, suffers most, and ratios rise")
    ratios: dict[str, float] = {}
    for name in SMOKE:
        everyone = contestants(["auto"], [], HERE.parent / ".venvs")
        with contextlib.redirect_stderr(io.StringIO()):
            compare(EVERY[name], everyone, "cpu", TURNS, LIMIT)
        for one in everyone:
            if one.error is not None:
                sys.exit(f"{name}: {one.name} failed: {one.error}")
        naive, auto = everyone
        ratios[name] = found = ratio(naive, auto) or 0.0
        print(f"{name}: auto is {found:.1f} times as fast as a naive loop ({EVERY[name].what})", flush=True)
    with contextlib.redirect_stdout(io.StringIO()):
        times = aggregation(torch.device("cpu"), 50, 500_000)
    ratios["averaging"] = times["gma"] / times["mean"]
    print(f"masked averaging takes {ratios['averaging']:.2f} times as long as plain (50 x 500,000)")
    write(asked.json, {"machine": here, "load average after": round(os.getloadavg()[0], 1), "ratios": ratios})


if __name__ == "__main__":
    main()
