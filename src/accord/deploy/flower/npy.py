"""Arrays that others sent, read without trusting what they say of themselves.

An array travels as the bytes of an .npy file. Its header is read first, and compared with what the server expects and
with how many bytes there are; only then is memory taken. Nothing is unpickled: of an object array the header is
refused.
"""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from types import EllipsisType
from typing import Literal

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.lib import format as npy
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.record import State

LARGEST_HEADER = 1024  # bytes: an honest one has some hundred, and numpy evaluates it as Python
MOST_DIMENSIONS = 8
# how many numbers along each dimension; `...` at the end: whatever the header says, as long as the bytes are there
Shape = tuple[int | EllipsisType, ...]
Wanted = Mapping[str, tuple[torch.dtype, Shape]]  # by name, what a group must hold: no more and no less

_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def arrays_in(received: RecordDict, group: str, wanted: Wanted) -> State:
    """A group of arrays of a message, each as it is wanted, or a sentence about one that is not."""
    record = received.get(group)
    if record is None and not wanted:
        return {}
    if not isinstance(record, ArrayRecord):
        seen = "nothing" if record is None else type(record).__name__
        raise AccordError(f"arrays were expected under {group!r}, got {seen}")
    if odd := sorted(record.keys() ^ wanted.keys()):
        raise AccordError(f"wrong fields: {', '.join(map(repr, odd[:3]))}")
    return {name: array_in(name, record[name], *wanted[name]) for name in wanted}


def array_in(name: str, array: Array, dtype: torch.dtype, shape: Shape) -> Tensor:
    """One array, if its header says what is expected and its bytes are as many as that takes."""
    return torch.from_numpy(numpy_in(name, array, [torch.empty(0, dtype=dtype).numpy().dtype], shape, "C"))


def numpy_in(name: str, array: Array, kinds: Sequence[np.dtype], shape: Shape, orders: str = "CF") -> np.ndarray:
    """The same for numpy, where several types will do, and arrays by column too."""
    kind, dimensions, order, data = _parts(name, array)
    if order not in orders:
        raise AccordError(f"{name} is written by column")
    if kind not in kinds or not _fits(dimensions, shape):
        wanted = ", ".join("..." if size is ... else str(size) for size in shape)
        raise AccordError(f"wrong shape or type of {name}: {dimensions} {kind}, expected ({wanted}) {kinds[0]}")
    if not data and shape[-1:] == (...,):  # of no bytes a header may claim whatever it likes along other dimensions
        raise AccordError(f"{name} is empty: {dimensions}")
    if len(data) != math.prod(dimensions) * kind.itemsize:
        raise AccordError(
            f"{name} has {len(data):,} bytes, and its header announces {math.prod(dimensions) * kind.itemsize:,}"
        )
    return np.frombuffer(data, kind).reshape(dimensions, order=order).copy()


def _parts(name: str, array: Array) -> tuple[np.dtype, tuple[int, ...], Literal["C", "F"], memoryview]:
    """Type, shape and order by the header, and the bytes after it."""
    if array.stype != "numpy.ndarray":
        raise AccordError(f"{name} is written as {array.stype!r:.40}, expected 'numpy.ndarray'")
    stream = BytesIO(array.data)  # shares the bytes
    try:
        # a header is text that numpy evaluates, or takes to pieces as Python's tokenizer does: whatever that may raise
        dimensions, by_column, kind = _READERS[npy.read_magic(stream)](stream, max_header_size=LARGEST_HEADER)
    except Exception as error:
        raise AccordError(f"the header of {name} cannot be read: {error!r:.200}") from None
    if len(dimensions) > MOST_DIMENSIONS or any(size < 0 for size in dimensions):
        raise AccordError(f"the header of {name} describes no array of ours: {dimensions!r:.100}")
    if (array.dtype, tuple(array.shape)) != (str(kind), dimensions):
        announced = f"{tuple(array.shape)!r:.60} {array.dtype:.40}"
        raise AccordError(f"{name} is announced as {announced}, and its header says {dimensions} {kind}")
    return kind, dimensions, "F" if by_column else "C", memoryview(array.data)[stream.tell() :]


def _fits(dimensions: tuple[int, ...], shape: Shape) -> bool:
    if shape and shape[-1] is ...:
        return dimensions[: len(shape) - 1] == shape[:-1]
    return dimensions == shape
