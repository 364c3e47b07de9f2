# More samples than fit in memory: they are written once, part by part, to a file that is mapped, and batches are read
# from there. This one is small (12 MB); the pattern is the same for a file of a terabyte. Run it with: python
# examples/data/from_memmap.py

import tempfile
from pathlib import Path

import numpy as np

import accord

CLIENTS, EACH, SHAPE = 20, 200, (3, 32, 32)


def pictures(client: int) -> tuple[np.ndarray, np.ndarray]:
    """One client's samples; in earnest, what is read from its files. The class is the channel that is brightest."""
    draw = np.random.default_rng(client)
    y = draw.integers(0, 3, EACH)
    x = draw.integers(0, 150, (EACH, *SHAPE), dtype=np.uint8)
    x[np.arange(EACH), y] += 40 + 2 * client % 60
    return x, y


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "samples.npy")
    samples = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(CLIENTS * EACH, *SHAPE))
    labels, owners = np.empty(len(samples), dtype=np.int64), np.empty(len(samples), dtype=np.int64)
    for client in range(CLIENTS):
        rows = slice(client * EACH, (client + 1) * EACH)
        samples[rows], labels[rows] = pictures(client)
        owners[rows] = client
    samples.flush()

    mapped = np.load(path, mmap_mode="r")  # nothing is read yet; labels and owners are short and stay in memory
    scale = accord.data.Scale(mean=(0.3,) * 3, std=(0.2,) * 3)
    fed = accord.data.from_samples(mapped, labels, owners, unseen=5, prepare=scale, name="from disk")
    print(fed)
    print("read from the file, not copied:", fed.x.data_ptr() == mapped.ctypes.data)
    print(accord.fit(accord.models.logistic(channels=3, size=32, classes=3), fed, accord.fedavg(), rounds=3, lr=0.001))
