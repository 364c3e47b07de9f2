"""What data costs: the time until a federation is ready, the memory it takes beyond its samples, and what shifts and
augmentation add.

    python benchmarks/data.py [--device cuda] [--folder /tmp]

FEMNIST and TinyImageNet are stood in for by files of their size: it is size that costs here, not what the pictures
show. They take 2 GB in the folder while the script runs.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

import accord
from accord.data import CropFlip, Federation, Samples, cache, coloured, natural, rotated, shifted

REPEATS = 9


def median(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median seconds, after one call that does not count."""
    run()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def resident() -> float:
    """MB of memory this process holds, mapped files left out: the system can take those back at any time."""
    fields = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in fields if line.startswith("RssAnon:")) / 1024


def ready() -> None:
    for clients in (10, 100, 500):
        seconds = median(partial(accord.data.mnist, clients=clients, split="labels", unseen=clients // 5))
        print(f"MNIST, label skew, {clients} clients and {clients // 5} unseen, from the cache: {1e3 * seconds:.0f} ms")


def femnist() -> None:
    """805,263 pictures of 3,550 writers, as LEAF counts them."""
    count, writers = 805_263, 3_550
    cache.once(
        "femnist",
        lambda scratch: Samples(
            torch.zeros(count, 1, 28, 28, dtype=torch.uint8),
            torch.arange(count) % 62,
            owner=torch.arange(count) * 7919 % writers,
            owners=tuple(f"writer-{number:04d}" for number in range(writers)),
        ),
    )
    before, started = resident(), time.perf_counter()
    loaded = cache.read(cache.path("femnist"))
    fed = natural(loaded, clients=3000)
    seconds = time.perf_counter() - started
    assert fed.x.data_ptr() == loaded.x.data_ptr()
    print(
        f"FEMNIST's size, {fed.x.nbytes / 2**20:,.0f} MB, {len(fed.train):,} writers and {len(fed.unseen)} unseen: "
        f"{1e3 * seconds:.0f} ms, {resident() - before:.0f} MB beyond the file, no copy of the samples"
    )


def tiny_imagenet() -> None:
    count = 110_000
    cache.once(
        "tiny-imagenet",
        lambda scratch: Samples(torch.zeros(count, 3, 64, 64, dtype=torch.uint8), torch.arange(count) % 200),
    )
    before, started = resident(), time.perf_counter()
    fed = accord.data.tiny_imagenet(clients=500, split="labels", classes=20)
    seconds = time.perf_counter() - started
    for rows in fed.train.values():
        fed.read(rows[:32])
    print(
        f"TinyImageNet's size, {fed.x.nbytes / 2**20:,.0f} MB mapped from its file, 500 clients: ready in"
        f" {1e3 * seconds:.0f} ms, {resident() - before:.0f} MB beyond the file after reading a batch of every client"
    )


def reading(device: torch.device) -> None:
    """A batch of 32 as the model reads it: what shift and augmentation add to it, and to a client's round."""
    grey = accord.data.mnist(clients=10)
    colour = accord.data.cifar10(clients=10)
    variants: dict[str, tuple[Federation, int | None]] = {
        "MNIST": (grey, None),
        "MNIST, coloured": (shifted(grey, coloured(), 0), None),
        "MNIST, coloured, background": (shifted(grey, coloured(background=True), 0), None),
        "MNIST, rotated": (shifted(grey, rotated(), 0), None),
        "CIFAR-10": (colour, None),
        "CIFAR-10, crop and flip": (replace(colour, augment=CropFlip()), 7),
    }
    for name, (fed, key) in variants.items():
        here = fed.to(device)
        rows = fed.train[fed.clients[0]][:32].to(device)

        def read(here: Federation = here, rows: torch.Tensor = rows, key: int | None = key) -> None:
            for _ in range(50):
                here.read(rows, key)
            if device.type == "cuda":
                torch.cuda.synchronize()

        print(f"a batch of 32 on {device}, {name}: {1e6 * median(read) / 50:.0f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", default=None, help="where the 2 GB of stand-in files go while this runs")
    chosen = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads, torch"
        f" {torch.__version__}"
    )
    ready()
    reading(torch.device(chosen.device))
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        os.environ["ACCORD_CACHE"] = folder
        femnist()
        tiny_imagenet()


if __name__ == "__main__":
    main()
