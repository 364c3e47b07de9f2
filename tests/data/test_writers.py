"""MNIST's writers from QMNIST's labels: small changes to tables in the official form, and the real files."""

import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import accord.data
from accord.data import cache
from accord.data.readers.writers import by_writer, read_writers
from accord.data.samples import Samples
from conftest import sentence

NAMES = ("qmnist-train-labels-idx2-int", "qmnist-test-labels-idx2-int")


def idx(table: np.ndarray) -> bytes:
    return struct.pack(">HBBII", 0, 0x0C, 2, *table.shape) + table.astype(">i4").tobytes()


def tables() -> tuple[np.ndarray, np.ndarray]:
    """60,000 x 8 each: class, series, writer, index...; writers 0 to 5 of series 0 and 2100 to 2105 of series 4, half
    of them in each."""
    row = np.arange(60_000)
    made = []
    for part in (0, 1):
        series = np.where(row % 4 == 0, 4, 0)
        writer = (row % 3) + 3 * part + np.where(series == 4, 2100, 0)
        made.append(np.stack([row * 7 % 10, series, writer, row, row % 10 + 30, row, row * 0, row * 0], axis=1))
    return made[0], made[1]


def mnist_of(classes: Tensor) -> Samples:
    return Samples(
        torch.zeros(70_000, 1, 1, 1, dtype=torch.uint8), classes.to(torch.uint8), test=torch.arange(60_000, 70_000)
    )


def known() -> tuple[Samples, Tensor, Tensor, Tensor]:
    """What `by_writer` takes."""
    train, test = tables()
    classes, series, writers = read_writers(idx(train), idx(test))
    return mnist_of(classes), classes, series, writers


def test_the_first_rows_of_both_files_are_mnists() -> None:
    train, test = tables()
    columns = read_writers(idx(train), idx(test))
    for number, column in enumerate(columns):
        assert column.dtype == torch.int64
        assert column.tolist() == train[:, number].tolist() + test[:10_000, number].tolist()


def test_writers_become_clients_and_those_of_the_test_set_never_train() -> None:
    mnist, classes, series, writers = known()
    samples = by_writer(mnist, classes, series, writers)
    assert samples.owners == tuple(f"writer-{number:04d}" for number in [*range(6), *range(2100, 2106)])
    assert samples.apart == {f"writer-{number:04d}" for number in (3, 4, 5, 2103, 2104, 2105)}
    assert samples.populations == {name: "hsf_4" if name >= "writer-2100" else "hsf_0" for name in samples.owners}
    assert samples.test is None
    assert samples.owner is not None
    assert [samples.owners[owner] for owner in samples.owner[:5]] == [
        f"writer-{int(number):04d}" for number in writers[:5]
    ]
    assert torch.equal(torch.tensor([int(name[7:]) for name in samples.owners])[samples.owner], writers)
    assert torch.equal(samples.y, classes)
    assert samples.y.dtype == samples.owner.dtype == torch.int64
    assert samples.x is mnist.x


TRAIN, TEST = (idx(table) for table in tables())
SPOILT = [
    (
        TRAIN[:-4],
        TEST,
        (NAMES[0], "holds 1,920,008 bytes where its 60,000 rows make 1,920,012: it is cut short or not whole"),
    ),
    (TRAIN, TEST + b"?", (NAMES[1], "holds 1,920,013 bytes where its 60,000 rows make 1,920,012")),
    (b"\0\0\x08\x01" + TRAIN[4:], TEST, (NAMES[0], "begins with 00 00 08 01", "begins with 00 00 0c 02")),
    (TRAIN, b"", (NAMES[1], "begins with nothing")),
    (TRAIN, TEST[:9], (NAMES[1], "declares no shape: at least 10,000 rows of 8 columns are right")),
    (idx(np.zeros((60_000, 7))), TEST, (NAMES[0], "declares 60000 x 7: at least 60,000 rows of 8 columns are right")),
    (idx(np.zeros((59_999, 8))), TEST, (NAMES[0], "declares 59999 x 8: at least 60,000 rows")),
    (TRAIN, idx(np.zeros((9_999, 8))), (NAMES[1], "declares 9999 x 8: at least 10,000 rows")),
]


@pytest.mark.parametrize(("train", "test", "said"), SPOILT)
def test_spoilt_files_get_a_sentence(train: bytes, test: bytes, said: tuple[str, ...]) -> None:
    with sentence(*said):
        read_writers(train, test)


def test_tables_that_do_not_fit_get_a_sentence() -> None:
    mnist, classes, series, writers = known()
    other = classes.clone()
    other[[41, 60_007]] += 1
    with sentence(
        f"picture 41 is a {int(classes[41])} in MNIST but a {int(other[41])} in QMNIST's labels (2 of 70,000 differ)"
    ):
        by_writer(mnist, other, series, writers)
    with sentence("MNIST has 70,000 pictures, but here are 69,999"):
        by_writer(replace(mnist, y=mnist.y[:-1]), classes, series, writers)
    torn = series.clone()
    torn[1] = 1
    with sentence("writer 1 is in two NIST series"):
        by_writer(mnist, classes, torn, writers)
    shared = writers.clone()
    shared[60_001] = writers[1]
    with sentence("writer 1 is in MNIST's training and in its test set"):
        by_writer(mnist, classes, series, shared)


# --------------------------------------------------------------------------------------------- the real files


@pytest.fixture(scope="module")
def real() -> tuple[Tensor, Tensor, Tensor]:
    places = [Path(__file__).resolve().parents[3] / "shared" / "data"]
    if mine := os.environ.get("ACCORD_DATA"):
        places.append(Path(mine).expanduser())
    for place in places:
        if all((place / f"{name}.gz").is_file() for name in NAMES):
            train, test = (gzip.decompress((place / f"{name}.gz").read_bytes()) for name in NAMES)
            return read_writers(train, test)
    return pytest.skip(
        f"{' and '.join(f'{name}.gz' for name in NAMES)} are in none of {', '.join(map(str, places))}; set ACCORD_DATA"
    )


def test_the_real_writers_are_the_known_ones(real: tuple[Tensor, Tensor, Tensor]) -> None:
    samples = by_writer(mnist_of(real[0]), *real)
    assert samples.y.bincount().tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    training = [name for name in samples.owners if name not in samples.apart]
    counts = {
        (part, group): sum(samples.populations[name] == group for name in names)
        for part, names in (("train", training), ("test", samples.apart))
        for group in ("hsf_0", "hsf_4")
    }
    assert counts == {("train", "hsf_0"): 289, ("train", "hsf_4"): 250, ("test", "hsf_0"): 48, ("test", "hsf_4"): 249}
    assert len(samples.owners) == 539 + 297
    assert samples.owner is not None
    assert samples.owner.bincount().min() > 0


def test_the_real_writers_fit_the_real_mnist(real: tuple[Tensor, Tensor, Tensor]) -> None:
    if not accord.data.available("mnist"):
        pytest.skip("MNIST is not in the cache: run `accord data get mnist`")
    mnist = cache.read(cache.path("mnist"))
    samples = by_writer(mnist, *real)
    assert torch.equal(samples.y, mnist.y.long())
