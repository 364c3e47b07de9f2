"""The user's own arrays in one .npz file: `numpy.savez("mine.npz", x=x, y=y, client=client, test=test)`."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.files import check_plain
from accord.core.names import in_order
from accord.data.samples import Samples

KEYS = ("x", "y", "client", "test")
# a model has an output for every number up to the largest label, so one of 10^9 is an id, not a class
CLASSES = 1_000_000


def read_npz(path: str | Path) -> Samples:
    """`x` and `y`, and if they are there `client`, each row's owner, and `test`, the rows of a test set (their numbers,
    or a mask).

    Bytes of shape [N, H, W] or [N, C, H, W] are pictures, floats are features; labels that are floats are a
    regression's targets. Rows of the test set are nobody's, whatever `client` says of them: nobody may train on them.
    """
    path = Path(path)
    check_plain(path)
    arrays = _arrays(path)
    for name in ("x", "y"):
        if name not in arrays:
            raise AccordError(f"{path} holds no array {name}: x and y are needed, client and test may be there")
    rows = len(arrays["x"]) if arrays["x"].ndim else 0
    if not rows:
        raise AccordError(
            f"x in {path} has shape {_shape(arrays['x'])}: one entry for each sample is right, and at least one sample"
        )
    for name in ("y", "client"):
        if name in arrays and arrays[name].shape != (rows,):
            raise AccordError(
                f"array {name} in {path} has shape {_shape(arrays[name])}: [{rows}] is right, one entry for each sample"
                " in x"
            )
    test = _test(arrays["test"], rows, path) if "test" in arrays else None
    owner, owners = _owners(_names(arrays["client"], path), test) if "client" in arrays else (None, ())
    whose = arrays.get("client")
    x, y = _x(arrays["x"], path, whose), _y(arrays["y"], path, whose)
    return Samples(x, y, test=test, owner=owner, owners=owners)


def owned(clients: Sequence[str]) -> tuple[Tensor, tuple[str, ...]]:
    """Each row's owner as a number, and the owners' names.

    >>> owned(["b", "a", "b"])
    (tensor([1, 0, 1]), ('a', 'b'))
    """
    names = in_order(set(clients))
    number = {name: place for place, name in enumerate(names)}
    return torch.tensor([number[client] for client in clients], dtype=torch.int64), tuple(names)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    arrays = {}
    try:
        # tells a damaged file better than numpy, which takes it for something else
        with zipfile.ZipFile(path) as archive:
            unknown = sorted(name for name in archive.namelist() if name.removesuffix(".npy") not in KEYS)
        if unknown:
            raise AccordError(
                f"{path} holds {unknown[0].removesuffix('.npy')}, which is none of {', '.join(KEYS)}: leave it out"
            )
        with np.load(path, allow_pickle=False) as held:
            for name in held.files:
                try:
                    values = held[name]
                except ValueError as error:
                    if "Object arrays" not in str(error):
                        raise
                    raise AccordError(
                        f"{name} in {path} is an array of Python objects, which may hide code: save plain numbers"
                    ) from None
                if not isinstance(values, np.ndarray):  # numpy hands out what it does not know as bytes
                    raise ValueError(f"its {name} is no array")
                arrays[name] = values
    except FileNotFoundError:
        raise AccordError(f"{path} is not there") from None
    # a header that is damaged may ask for any amount of memory
    except (EOFError, MemoryError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise AccordError(f"{path} is damaged or no .npz file: {' '.join(str(error).split())}") from None
    return arrays


def _x(x: np.ndarray, path: Path, whose: np.ndarray | None) -> Tensor:
    where = f"x in {path}"
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise AccordError(f"{where} holds {x.dtype}: uint8 (pictures) or floats (features) are right")
    if not x.size:
        raise AccordError(f"{where} has shape {_shape(x)}: a sample needs at least one number")
    if x.ndim < 2:
        raise AccordError(
            f"{where} has shape {_shape(x)}: a sample needs a dimension of its own, [N, F] or [N, C, H, W]"
        )
    if x.dtype.kind == "f":
        return _finite(x, where, whose)
    if x.ndim == 2:
        return torch.from_numpy(x.astype(np.float32))  # bytes in a row are features
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or (x.shape[1] not in (1, 3) and x.shape[3] in (1, 3)):
        raise AccordError(
            f"{where} has shape {_shape(x)}: pictures are [N, H, W] or [N, C, H, W], with the channels before the rows"
        )
    return torch.from_numpy(np.ascontiguousarray(x))


def _y(y: np.ndarray, path: Path, whose: np.ndarray | None) -> Tensor:
    where = f"y in {path}"
    if y.dtype.kind == "f":
        return _finite(y, where, whose)
    if y.dtype.kind not in "iub":
        raise AccordError(
            f"{where} holds {y.dtype}: whole numbers (classes) or floats (a regression's targets) are right"
        )
    if y.min() < 0 or y.max() >= CLASSES:
        raise AccordError(
            f"{where} has a label of {y.min() if y.min() < 0 else y.max()}: classes are whole numbers from 0 on, below"
            f" {CLASSES:,}"
        )
    return torch.from_numpy(y.astype(np.int64))


def _finite(values: np.ndarray, where: str, whose: np.ndarray | None) -> Tensor:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is found
        single = np.ascontiguousarray(values, dtype=np.float32)
    for row in range(0, len(single), 10_000):  # some at a time: a mask of all may not fit in memory
        bad = ~np.isfinite(single[row : row + 10_000])
        if bad.any():
            first = np.argwhere(bad)[0]
            column = f", column {', '.join(map(str, first[1:]))}" if len(first) > 1 else ""
            client = "" if whose is None else f" of client {whose[row + first[0]]}"
            raise AccordError(
                f"{where} has {values[row:][tuple(first)]} in row {row + first[0]}{column}{client}: finite float32"
                " numbers are right"
            )
    return torch.from_numpy(single)


def _owners(names: list[str], test: Tensor | None) -> tuple[Tensor, tuple[str, ...]]:
    mine = torch.ones(len(names), dtype=torch.bool)
    if test is not None:
        mine[test] = False
    numbers, owners = owned([name for name, taken in zip(names, mine.tolist(), strict=True) if taken])
    return torch.full((len(names),), -1).masked_scatter(mine, numbers), owners


def _names(clients: np.ndarray, path: Path) -> list[str]:
    if clients.dtype.kind not in "iuUS":
        raise AccordError(f"array client in {path} holds {clients.dtype}: whole numbers or text are right")
    if clients.dtype.kind == "S":
        return [name.decode("utf-8", "replace") for name in clients.tolist()]
    return [str(name) for name in clients.tolist()]


def _test(test: np.ndarray, rows: int, path: Path) -> Tensor | None:
    """Sorted row numbers."""
    right = (
        f"true or false for each of the {rows:,} samples, or different row numbers from 0 to {rows - 1:,}, are right"
    )
    if test.dtype == bool and test.shape == (rows,):
        marked = np.flatnonzero(test)
    elif test.dtype.kind in "iu" and test.ndim == 1:
        marked = np.unique(test).astype(np.int64)
        if len(marked) < len(test):
            raise AccordError(f"test in {path} names a row twice: {right}")
        if len(marked) and (marked[0] < 0 or marked[-1] >= rows):
            raise AccordError(f"test in {path} names row {marked[0] if marked[0] < 0 else marked[-1]}: {right}")
    else:
        raise AccordError(f"test in {path} is {test.dtype} of shape {_shape(test)}: {right}")
    return torch.from_numpy(marked) if len(marked) else None


def _shape(values: np.ndarray) -> str:
    return f"[{', '.join(str(size) for size in values.shape)}]"
