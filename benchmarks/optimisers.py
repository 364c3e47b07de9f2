"""What a local optimiser, or a last layer that stays with the clients, costs in lanes: rounds of W1 with sgd, adam,
adamw, and sgd with that layer personal, in turn, in one process.

    python benchmarks/optimisers.py [--samples 6000] [--turns 5] [--device cpu]

Ratios are medians over turns, each with sgd's time of the same turn: of the clock, and of processor time, which on a
CPU that others use as well says more. A step costs the same whatever the number of samples, so fewer will do.
"""

import argparse
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from contestants import accord_engine
from contestants.protocol import Ready, Stored, store
from works import W1

VARIANTS = {"sgd": ("sgd", []), "adam": ("adam", []), "adamw": ("adamw", []), "personal": ("sgd", ["11.*"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=W1.samples, help="of each of the 10 clients")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    asked = parser.parse_args()
    work = replace(W1, samples=asked.samples, test=asked.samples)
    with TemporaryDirectory() as folder:
        store(work, Path(folder))
        stored = Stored(**asdict(work), folder=folder)
        lanes = {name: prepared(stored, *how, asked.device) for name, how in VARIANTS.items()}
        for ready in lanes.values():
            ready.first()
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
        for _ in range(asked.turns):
            for name, ready in lanes.items():
                began = time.process_time()
                seconds = ready.measure().seconds
                found[name].append((seconds, time.process_time() - began))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {asked.device}, {asked.samples} samples")
    for name, times in found.items():
        pairs = list(zip(times, found["sgd"], strict=True))
        clock, processor = (statistics.median(mine[of] / sgd[of] for mine, sgd in pairs) for of in (0, 1))
        seconds = statistics.median(mine[0] for mine in times)
        print(
            f"{name:8} {seconds:8.3f} s a round   {clock:.2f} times sgd by the clock, {processor:.2f} of processor time"
        )


def prepared(work: Stored, optimiser: str, personal: list[str], device: str) -> Ready:
    options = argparse.Namespace(engine="vectorised", speed="", optimiser=optimiser, device=device)
    return accord_engine.prepare(work, options, personal)


if __name__ == "__main__":
    main()
