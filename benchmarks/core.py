"""What the core costs: masked against plain averaging, memory while clients stream, import, and client steps.

    python benchmarks/core.py [--device cuda] [--clients 100] [--parameters 1000000] [--json FILE]

Machines are noisy: variants are timed in turn within one run, and medians and their ratio are reported.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from machine import in_words, machine, write

import accord
from accord.core.layout import Layout
from accord.core.record import Record
from accord.core.reports import Reports
from accord.data import Federation, Scale
from accord.rules.combine import combine

REPEATS = 9


def medians(variants: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """Median seconds of each variant, timed in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(REPEATS + 2):
        for name, run in variants.items():
            started = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(times[2:]) for name, times in seconds.items()}


def aggregation(device: torch.device, clients: int, parameters: int) -> dict[str, float]:
    deltas = torch.randn(clients, parameters, device=device)
    weights = torch.arange(1, clients + 1)
    rules: dict[str, accord.Average | accord.Mask] = {
        "mean": accord.mean(),
        "gma": accord.gma(),
        "and_mask": accord.and_mask(),
    }
    calls = {name: partial(combine, rule, deltas, weights) for name, rule in rules.items()}
    times = medians(calls, device)
    print(f"combine, {clients} clients x {parameters:,} parameters on {device}:")
    for name, seconds in times.items():
        print(f"  {name:9s} {1e3 * seconds:8.2f} ms   {seconds / times['mean']:.2f} times mean")
    return times


def streaming(parameters: int) -> None:
    """Peak memory of this process while clients' reports are made, added and dropped one at a time."""
    algorithm, layout = accord.fedavg(mask=accord.gma()), Layout.flat(parameters)
    memory = algorithm.init(layout, 1000, torch.zeros(parameters))
    one, none = torch.ones(1, 1), torch.zeros(1, 0)
    vector = 4 * parameters / 2**20
    before = _peak()
    total: Record | None = None
    for count in (10, 100, 400):
        for _ in range(count):
            record = algorithm.lift(Reports(torch.randn(1, parameters), one, one, none), memory)
            total = record if total is None else total + record
        print(f"  {count:4d} clients streamed: {(_peak() - before) / vector:4.1f} parameter vectors at the peak")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def importing() -> None:
    code = "import time, torch; t = time.perf_counter(); import accord; accord.fit; print(time.perf_counter() - t)"
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    print(f"import of accord and fit beyond torch: {statistics.median(seconds):.2f} s")


def rounds(device: torch.device) -> None:
    """Ten clients of 600 MNIST-sized samples, LeNet, batch 32: seconds per round of the reference engine."""
    x, y = torch.randint(0, 256, (6000, 1, 28, 28), dtype=torch.uint8), torch.randint(0, 10, (6000,))
    fed = Federation(x, y, {f"c{i}": rows for i, rows in enumerate(torch.arange(6000).split(600))}, prepare=Scale())
    seconds: list[float] = []
    accord.fit(
        accord.models.lenet(),
        fed,
        rounds=6,
        evaluate_every=6,
        engine="sequential",
        device=str(device),
        hooks=[lambda event: seconds.append(event.seconds)],
    )
    print(
        f"sequential engine on {device}, 10 clients x 600 samples: {statistics.median(seconds[1:-1]):.3f} s per round"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="a file to write the machine and the seconds of averaging to")
    asked = parser.parse_args()
    device, here = torch.device(asked.device), machine(asked.device)
    print(in_words(here))
    print("record of masked averaging, one client at a time:")
    streaming(asked.parameters)
    times = aggregation(device, asked.clients, asked.parameters)
    averaging = {"clients": asked.clients, "parameters": asked.parameters, "seconds": times}
    write(asked.json, {"machine": here, "averaging": averaging})
    rounds(device)
    importing()


if __name__ == "__main__":
    main()
