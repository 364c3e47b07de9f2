"""Memory that processes share, and a line between two of them on which tensors travel through it, not through a pipe.

What is pickled here goes from one process of a run to another, on this machine or, with Ray, on another of its cluster.
It is never read from a file, nor from a stranger.
"""

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection, reduction
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError

ALIGNED = 64  # bytes: as torch aligns its own memory, because a kernel may round differently on memory that is not

Place = tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]  # where a tensor begins, its type, shape and strides


class Area:
    """Memory that several processes see: a file without a name, which each of them maps. It grows with what is put into
    it.

    Nothing is left behind when its processes end; and /dev/shm, which is small in containers, does not limit it.
    """

    def __init__(self, file: int | None = None) -> None:
        self._file = _nameless() if file is None else file
        self._bytes = torch.zeros(0, dtype=torch.uint8)  # as much of it as is mapped here

    def dump(self, value: object) -> bytes:
        """The value as bytes for `load`. Its tensors are laid down here, over whatever was here before."""
        stream = io.BytesIO()
        pickler = _Pickler(stream)
        pickler.dump(value)
        if pickler.end > os.fstat(self._file).st_size:
            os.ftruncate(self._file, pickler.end)
        for place, tensor in pickler.laid.values():
            self.at(place).copy_(tensor)
        return stream.getvalue()

    def load(self, data: bytes, copy: bool = False) -> Any:
        """What was dumped, in whichever process. Its tensors are views, good until the next dump, unless copied."""
        return Unpickler(data, self, copy).load()

    def at(self, place: Place) -> Tensor:
        """The tensor that lies there, as a view."""
        if end_of(place) > len(self._bytes):
            self._bytes = torch.frombuffer(mmap.mmap(self._file, 0), dtype=torch.uint8)
        return lying_in(self._bytes, place)

    def __reduce__(self) -> tuple[Any, ...]:
        return _sent_along, (reduction.DupFd(self._file),)

    # bound here: when Python ends, `os` may be gone before this is
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._file)


def end_of(place: Place) -> int:
    start, dtype, shape, _ = place
    return start + torch.Size(shape).numel() * dtype.itemsize


def lying_in(memory: Tensor, place: Place) -> Tensor:
    """The tensor that lies there in `memory`, which is bytes, as a view."""
    start, dtype, shape, stride = place
    return memory[start : end_of(place)].view(dtype).as_strided(shape, stride)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("accord")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _sent_along(file: Any) -> Area:
    return Area(file.detach())


class Line:
    """One end of a line between two processes. Messages lie in two areas in turn: a side may send one more before its
    last one was read, but not two."""

    def __init__(self, pipe: connection.Connection, mine: list[Area], theirs: list[Area]) -> None:
        self.pipe, self.mine, self.theirs = pipe, mine, theirs
        self.early: list[Any] = []  # came in before the reply that was waited for

    def send(self, *message: Any) -> None:
        self.mine.reverse()
        data = self.mine[0].dump(message)
        with suppress(OSError):  # nobody is there any more: whoever listens next will hear of it
            self.pipe.send_bytes(data)

    def receive(self) -> Any:
        return self.early.pop(0) if self.early else self._next()

    def ask(self, *question: Any) -> Any:
        """The other side's reply."""
        self.send("ask", *question)
        while (message := self._next())[0] != "reply":
            self.early.append(message)
        return message[1]

    def _next(self) -> Any:
        data = self.pipe.recv_bytes()
        self.theirs.reverse()
        return self.theirs[0].load(data, copy=True)


def check_sendable(what: str, value: object) -> None:
    """Refuses what cannot be rebuilt in another process."""
    try:
        _Pickler(io.BytesIO()).dump(value)
    except Exception as error:
        raise AccordError(
            f"the {what} cannot be sent to a spawned process: {error} (define it by name, at the top of a module)"
        ) from None


class Laying:
    """For a pickler: keeps plain tensors apart, each once, and says where they are to lie."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)  # type: ignore[call-arg]
        self.laid: dict[int, tuple[Place, Tensor]] = {}
        self.end = 0

    def persistent_id(self, value: object) -> Place | None:
        if type(value) is not Tensor or value.requires_grad or value.layout is not torch.strided:
            return None
        if id(value) not in self.laid:
            strides = torch.empty_like(value, device="meta").stride()  # its own, if it is dense: kernels go by them
            # kept: no other may get its id
            self.laid[id(value)] = (self.end, value.dtype, tuple(value.shape), strides), value
            self.end += -(-value.numel() * value.dtype.itemsize // ALIGNED) * ALIGNED
        return self.laid[id(value)][0]


class _Pickler(Laying, pickle.Pickler):
    pass


class Unpickler(pickle.Unpickler):
    """Reads what such a pickler wrote; `area.at` says where its tensors lie."""

    def __init__(self, data: bytes, area: Any, copy: bool) -> None:
        super().__init__(io.BytesIO(data))
        self.area, self.copy = area, copy
        self.tensors: dict[Place, Tensor] = {}

    def persistent_load(self, place: Place) -> Tensor:
        if place not in self.tensors:  # what was one tensor is one again
            view = self.area.at(place)
            self.tensors[place] = view.clone() if self.copy else view
        return self.tensors[place]
