"""What a user waits for before anything happens, and what clients cost in memory: both on the command line, as `accord
run`.

    python benchmarks/startup.py [--repeats 5] [--engine auto] [--clients 500,1000,3550] [--rounds 2]

First, seconds from the start of `accord run` to the first finished round of W2 (10 of 500 clients), against the seconds
it takes to import torch, in turn. Then the peak memory of a run like W3 (30 clients a round, LEAF's CNN) with more and
more clients. Data sets are stood in for by files of their size in accord's cache.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from contestants.memory import tree_mb
from works import W2, W3

from accord.data import Samples, cache

LIMIT = 300.0  # seconds until a run that shows no round is given up
GOAL = 6.0  # seconds that the first round may take beyond the import of torch

W2_FILE = f"""
[data]
name = "mnist"
clients = {W2.clients}
split = "iid"
heldout = 0.0
[model]
name = "lenet"
[train]
rounds = 1000
sample = {W2.sample}
batch = {W2.batch}
evaluate_every = 1000
"""
W3_FILE = f"""
[data]
name = "femnist"
split = "natural"
heldout = 0.0
[model]
name = "leaf-cnn"
[train]
rounds = 1000
sample = {W3.sample}
batch = {W3.batch}
evaluate_every = 1000
"""


def mnist(scratch: Path) -> Samples:
    x, y = W2.data()
    return Samples(x, y, test=torch.arange(W2.clients * W2.samples, len(x)))


def femnist(clients: int) -> Samples:
    owner = torch.arange(clients * W3.samples) // W3.samples
    x = torch.randint(0, 256, (len(owner), *W3.shape), dtype=torch.uint8)
    return Samples(
        x,
        torch.arange(len(owner)) % W3.classes,
        owner=owner,
        owners=tuple(f"writer-{number:04d}" for number in range(clients)),
    )


def importing() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - started


def watch(experiment: str, folder: Path, engine: str, rounds: int = 1, *, memory: bool = False) -> tuple[float, float]:
    """Runs `accord run` until so many rounds are recorded, then interrupts it: seconds it took, and the peak of its
    memory in MB."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = Path(place) / "experiment.toml"
        file.write_text(f'{experiment}\n[run]\nfolder = "{place}/runs"\nengine = "{engine}"\ndevice = "cpu"\n')
        environment = {**os.environ, "ACCORD_CACHE": str(folder)}
        peak, started = 0.0, time.perf_counter()
        with (Path(place) / "said").open("w+") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "accord", "run", str(file)], env=environment, stdout=said, stderr=said
            )
            try:
                while (done := _rounds(Path(place))) < rounds:
                    if process.poll() is not None or time.perf_counter() - started > LIMIT:
                        said.seek(0)
                        raise SystemExit(
                            f"accord run recorded {done} of {rounds} rounds within {LIMIT:.0f} s; it"
                            f" said:\n{said.read()}"
                        )
                    if memory:
                        peak = max(peak, tree_mb(process.pid))
                    time.sleep(0.1 if memory else 0.01)
                seconds = time.perf_counter() - started
            finally:
                process.send_signal(signal.SIGINT)  # it stops after the round it is in
                process.wait()
        return seconds, peak


def _rounds(place: Path) -> int:
    return sum(file.read_text().count("\n") for file in place.glob("runs/*/metrics.jsonl"))


def startup(repeats: int, engine: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ACCORD_CACHE"] = scratch
        cache.once("mnist", mnist)
        imports, firsts = [], []
        for _ in range(repeats):
            imports.append(importing())
            firsts.append(watch(W2_FILE, Path(scratch), engine)[0])
    beyond = statistics.median(first - plain for first, plain in zip(firsts, imports, strict=True))
    print(f"import torch: {statistics.median(imports):.2f} s ({min(imports):.2f}-{max(imports):.2f})")
    print(
        f"accord run to the first round of W2, engine {engine}: {statistics.median(firsts):.2f} s"
        f" ({min(firsts):.2f}-{max(firsts):.2f})"
    )
    print(
        f"beyond the import: {beyond:.2f} s; the goal is at most {GOAL:.0f} s:"
        f" {'reached' if beyond <= GOAL else 'missed'}"
    )


def growth(sizes: list[int], rounds: int, engine: str) -> None:
    for clients in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["ACCORD_CACHE"] = scratch
            cache.once("femnist", lambda _, clients=clients: femnist(clients))  # type: ignore[misc]
            _, peak = watch(W3_FILE, Path(scratch), engine, rounds, memory=True)
            size = cache.path("femnist").stat().st_size / 2**20
        print(
            f"W3 with {clients:,} clients, engine {engine}: {peak:,.0f} MB at the peak, beyond the {size:,.0f} MB of"
            " the mapped file",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--engine", default="auto")
    parser.add_argument(
        "--clients", default="500,1000,3550", help="how many clients the runs like W3 have; nothing: leave them out"
    )
    parser.add_argument("--rounds", type=int, default=2, help="rounds that memory is watched for")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped then, too
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    if asked.repeats:
        startup(asked.repeats, asked.engine)
    growth([int(size) for size in asked.clients.split(",") if size], asked.rounds, asked.engine)


if __name__ == "__main__":
    main()
