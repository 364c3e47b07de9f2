"""Who wrote MNIST's digits: QMNIST traces every one to its writer (Yadav and Bottou, "Cold Case: The Lost MNIST
Digits", 2019)."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.samples import Samples

MAGIC = bytes((0, 0, 0x0C, 2))  # idx: two zeros, 32-bit whole numbers, two dimensions
COLUMNS = 8  # class, NIST series, writer, index among the writer's digits, and four that are not needed here
TRAINING, TEST = 60_000, 10_000  # MNIST's own digits are the first so many of QMNIST's training and of its test file


def read_writers(train: bytes, test: bytes) -> tuple[Tensor, Tensor, Tensor]:
    """Classes, NIST series and writers of MNIST's 70,000 digits in MNIST's order, each [70000].

    `train` and `test` are what `qmnist-train-labels-idx2-int` and `qmnist-test-labels-idx2-int` hold, decompressed.
    """
    kept = [_table(train, "qmnist-train-labels-idx2-int", TRAINING), _table(test, "qmnist-test-labels-idx2-int", TEST)]
    classes, series, writers = (torch.from_numpy(column.astype(np.int64)) for column in np.concatenate(kept).T)
    return classes, series, writers


def by_writer(mnist: Samples, classes: Tensor, series: Tensor, writers: Tensor) -> Samples:
    """MNIST with its writers as its natural clients.

    The writers of the test set are others than those of the training set, so they are clients that never train, and the
    test set is theirs. Populations are NIST's: `hsf_0` employees of the Census Bureau, `hsf_4` high-school students.
    """
    if len(mnist.y) != TRAINING + TEST:
        raise AccordError(
            f"MNIST has {TRAINING + TEST:,} pictures, but here are {len(mnist.y):,}: writers are known for all or none"
        )
    if (differing := torch.nonzero(mnist.y.long() != classes)).numel():
        row = int(differing[0])
        raise AccordError(
            f"picture {row} is a {int(mnist.y[row])} in MNIST but a {int(classes[row])} in QMNIST's labels "
            f"({len(differing):,} of {len(classes):,} differ): both must be in MNIST's own order"
        )
    numbers, owner = writers.unique(return_inverse=True)  # sorted
    group = torch.zeros_like(numbers).scatter_(0, owner, series)
    if (torn := torch.nonzero(group[owner] != series)).numel():
        raise AccordError(f"writer {int(writers[torn[0]])} is in two NIST series: QMNIST's labels give each writer one")
    if both := sorted(set(writers[:TRAINING].tolist()) & set(writers[TRAINING:].tolist())):
        raise AccordError(
            f"writer {both[0]} is in MNIST's training and in its test set: QMNIST's labels give each writer one of them"
        )
    owners = tuple(f"writer-{number:04d}" for number in numbers.tolist())
    return replace(
        mnist,
        y=mnist.y.long(),
        test=None,
        owner=owner,
        owners=owners,
        apart=frozenset(owners[number] for number in owner[TRAINING:].unique().tolist()),
        populations={name: f"hsf_{number}" for name, number in zip(owners, group.tolist(), strict=True)},
    )


def _table(data: bytes, name: str, rows: int) -> np.ndarray:
    """The first three columns of the first rows, [rows, 3]."""
    if data[:4] != MAGIC:
        raise AccordError(
            f"{name} begins with {data[:4].hex(' ') or 'nothing'}: an idx table of 32-bit numbers begins with"
            f" {MAGIC.hex(' ')}"
        )
    header = np.frombuffer(data[4:12], dtype=">u4").tolist() if len(data) >= 12 else []
    if len(header) != 2 or header[1] != COLUMNS or header[0] < rows:
        shape = " x ".join(str(number) for number in header) or "no shape"
        raise AccordError(f"{name} declares {shape}: at least {rows:,} rows of {COLUMNS} columns are right")
    size = 12 + 4 * header[0] * COLUMNS
    if len(data) != size:
        raise AccordError(
            f"{name} holds {len(data):,} bytes where its {header[0]:,} rows make {size:,}: it is cut short or not whole"
        )
    return np.frombuffer(data, dtype=">i4", offset=12).reshape(-1, COLUMNS)[:rows, :3]
