"""The user's own arrays in an .npz file, and every way in which they may be wrong."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accord.data.readers.npz import read_npz
from conftest import sentence


def write(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


FEATURES = np.array([[0.5, 1], [2, 3], [4, 5]])
LABELS = np.array([1, 0, 2])


def test_features_clients_and_a_test_set(tmp_path: Path) -> None:
    samples = read_npz(
        write(
            tmp_path, x=FEATURES, y=LABELS, client=np.array(["bob", "ann", "bob"]), test=np.array([False, False, True])
        )
    )
    assert samples.x.dtype == torch.float32
    assert samples.x.tolist() == FEATURES.tolist()
    assert samples.y.dtype == torch.int64
    assert samples.y.tolist() == [1, 0, 2]
    assert samples.owners == ("ann", "bob")
    assert samples.owner is not None and samples.test is not None
    assert samples.owner.tolist() == [1, 0, -1]  # a row of the test set is nobody's
    assert samples.test.tolist() == [2]


def test_without_clients_and_test_set_there_are_none(tmp_path: Path) -> None:
    samples = read_npz(write(tmp_path, x=FEATURES, y=LABELS))
    assert samples.owner is None
    assert samples.owners == ()
    assert samples.test is None


def test_compressed_files_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "mine.npz", x=FEATURES, y=LABELS)
    assert read_npz(tmp_path / "mine.npz").x.tolist() == FEATURES.tolist()


@pytest.mark.parametrize(
    ("x", "shape", "dtype"),
    [
        (np.ones((3, 5, 6), dtype=np.uint8), (3, 1, 5, 6), torch.uint8),
        (np.ones((3, 3, 5, 6), dtype=np.uint8), (3, 3, 5, 6), torch.uint8),
        (np.ones((3, 7), dtype=np.uint8), (3, 7), torch.float32),
        (np.ones((3, 7), dtype=np.float16), (3, 7), torch.float32),
        (np.ones((3, 7), dtype=">f8"), (3, 7), torch.float32),
        (np.ones((3, 5, 6), dtype=np.float32), (3, 5, 6), torch.float32),
        (np.asfortranarray(np.ones((3, 5, 6), dtype=np.uint8)), (3, 1, 5, 6), torch.uint8),
    ],
)
def test_shapes_and_kinds_of_x(tmp_path: Path, x: np.ndarray, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    samples = read_npz(write(tmp_path, x=x, y=LABELS))
    assert samples.x.shape == shape
    assert samples.x.dtype == dtype
    assert samples.x.is_contiguous()
    assert samples.x.float().min() == samples.x.float().max() == 1


@pytest.mark.parametrize(
    ("y", "dtype"),
    [
        (np.array([3, 0, 1], dtype=np.uint8), torch.int64),
        (np.array([3, 0, 1], dtype=">i4"), torch.int64),
        (np.array([True, False, True]), torch.int64),
        (np.array([0.5, -1, 2.0]), torch.float32),
    ],
)
def test_kinds_of_labels(tmp_path: Path, y: np.ndarray, dtype: torch.dtype) -> None:
    samples = read_npz(write(tmp_path, x=FEATURES, y=y))
    assert samples.y.dtype == dtype
    assert samples.y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("client", "owners", "owner"),
    [
        (np.array([10, 9, 10]), ("9", "10"), [1, 0, 1]),
        (np.array([-1, 2, -1], dtype=np.int8), ("-1", "2"), [0, 1, 0]),
        (np.array(["10", "9", "x"]), ("10", "9", "x"), [0, 1, 2]),
        (np.array(["é".encode(), b"a", b"a"]), ("a", "é"), [1, 0, 0]),
    ],
)
def test_kinds_of_clients(tmp_path: Path, client: np.ndarray, owners: tuple[str, ...], owner: list[int]) -> None:
    samples = read_npz(write(tmp_path, x=FEATURES, y=LABELS, client=client))
    assert samples.owners == owners
    assert samples.owner is not None
    assert samples.owner.tolist() == owner


@pytest.mark.parametrize(
    ("test", "rows"),
    [
        (np.array([True, False, True]), [0, 2]),
        (np.array([2, 0]), [0, 2]),
        (np.array([1], dtype=np.uint8), [1]),
        (np.array([False] * 3), None),
        (np.array([], dtype=np.int64), None),
    ],
)
def test_kinds_of_test_sets(tmp_path: Path, test: np.ndarray, rows: list[int] | None) -> None:
    samples = read_npz(write(tmp_path, x=FEATURES, y=LABELS, test=test))
    assert (None if samples.test is None else samples.test.tolist()) == rows


def test_a_client_with_test_rows_alone_is_left_out(tmp_path: Path) -> None:
    samples = read_npz(write(tmp_path, x=FEATURES, y=LABELS, client=np.array(["a", "b", "c"]), test=np.array([1])))
    assert samples.owners == ("a", "c")
    assert samples.owner is not None
    assert samples.owner.tolist() == [0, -1, 1]


_TEST = "true or false for each of the 3 samples, or different row numbers from 0 to 2, are right"
SPOILT: list[tuple[dict[str, Any], str]] = [
    ({"x": None}, "PATH holds no array x: x and y are needed, client and test may be there"),
    ({"y": None}, "PATH holds no array y"),
    ({"X": FEATURES}, "PATH holds X, which is none of x, y, client, test: leave it out"),
    ({"x": np.float64(3)}, "x in PATH has shape []: one entry for each sample is right, and at least one sample"),
    ({"x": np.zeros((0, 4)), "y": LABELS[:0]}, "x in PATH has shape [0, 4]: one entry for each sample is right"),
    ({"x": np.zeros((3, 0, 5), dtype=np.uint8)}, "x in PATH has shape [3, 0, 5]: a sample needs at least one number"),
    ({"x": FEATURES[:, 0]}, "x in PATH has shape [3]: a sample needs a dimension of its own"),
    ({"x": np.ones((3, 4), dtype=np.int64)}, "x in PATH holds int64: uint8 (pictures) or floats (features) are right"),
    ({"x": np.array([["a"], ["b"], ["c"]])}, "x in PATH holds <U1"),
    (
        {"x": np.ones((3, 8, 9, 3), dtype=np.uint8)},
        "x in PATH has shape [3, 8, 9, 3]: pictures are [N, H, W] or [N, C, H, W], with the",
    ),
    ({"x": np.ones((3, 1, 2, 2, 2), dtype=np.uint8)}, "x in PATH has shape [3, 1, 2, 2, 2]: pictures are"),
    (
        {"x": np.array([[1.0], [2.0], [np.nan]])},
        "x in PATH has nan in row 2, column 0: finite float32 numbers are right",
    ),
    (
        {"x": np.array([[1.0], [1e39], [0.0]])},
        "x in PATH has 1e+39 in row 1, column 0: finite float32 numbers are right",
    ),
    ({"y": LABELS[:2]}, "y in PATH has shape [2]: [3] is right, one entry for each sample in x"),
    ({"y": LABELS[:, None]}, "y in PATH has shape [3, 1]: [3] is right"),
    ({"y": np.array([0, -2, 1])}, "y in PATH has a label of -2: classes are whole numbers from 0 on"),
    (
        {"y": np.array([0, 2**63, 1], dtype=np.uint64)},
        "y in PATH has a label of 9223372036854775808: classes are whole numbers",
    ),
    (
        {"y": np.array([0, 10**6, 1])},
        "y in PATH has a label of 1000000: classes are whole numbers from 0 on, below 1,000,000",
    ),
    (
        {"y": np.array(["a", "b", "c"])},
        "y in PATH holds <U1: whole numbers (classes) or floats (a regression's targets) are right",
    ),
    ({"y": np.array([0.5, np.inf, 1])}, "y in PATH has inf in row 1: finite float32 numbers are right"),
    ({"client": np.array(["a", "b"])}, "client in PATH has shape [2]: [3] is right"),
    ({"client": np.array([0.5, 1, 2])}, "client in PATH holds float64: whole numbers or text are right"),
    ({"test": np.array([True, False])}, f"test in PATH is bool of shape [2]: {_TEST}"),
    ({"test": np.array([0.0, 1.0])}, f"test in PATH is float64 of shape [2]: {_TEST}"),
    ({"test": np.array([0, 3])}, f"test in PATH names row 3: {_TEST}"),
    ({"test": np.array([0, -1])}, f"test in PATH names row -1: {_TEST}"),
    ({"test": np.array([1, 1])}, f"test in PATH names a row twice: {_TEST}"),
    (
        {"y": np.array([1, "a", None], dtype=object)},
        "y in PATH is an array of Python objects, which may hide code: save plain numbers",
    ),
]


@pytest.mark.parametrize(("changes", "said"), SPOILT)
def test_spoilt_arrays_get_a_sentence(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    arrays = {"x": FEATURES, "y": LABELS} | changes
    path = write(tmp_path, **{name: values for name, values in arrays.items() if values is not None})
    with sentence(said.replace("PATH", str(path))):
        read_npz(path)


def test_damaged_files_get_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, x=FEATURES, y=LABELS)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(FEATURES.tobytes())] ^= 1
    headless = whole.replace(b"(3, 2)", b"(3, 2 ")
    single = tmp_path / "one.npy"
    np.save(single, FEATURES)
    for damaged in (
        whole[:-40],
        whole[: len(whole) // 2],
        b"",
        b"<html>",
        bytes(flipped),
        headless,
        single.read_bytes(),
    ):
        path.write_bytes(damaged)
        with sentence(f"{path} is damaged or no .npz file"):
            read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", "no array")
    with sentence(f"{path} is damaged or no .npz file: its x is no array"):
        read_npz(path)
    with sentence(f"{tmp_path / 'nowhere.npz'} is not there"):
        read_npz(tmp_path / "nowhere.npz")
    with sentence(f"{tmp_path} is damaged or no .npz file: [Errno 21] Is a directory"):
        read_npz(tmp_path)


def test_a_header_that_asks_for_too_much_memory_gets_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    head = str({"descr": "<f8", "fortran_order": False, "shape": (2**45,)}).encode()  # 256 TB
    head += b" " * (117 - len(head)) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with sentence(f"{path} is damaged or no .npz file"):
        read_npz(path)
