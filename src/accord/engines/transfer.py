"""Copies between host and device that neither waits for."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_SMALL = 1 << 16  # bytes that a copy to the device need not wait for
_ALIGNED = 16  # bytes: where an array of a parcel may begin
NUMPY: dict[torch.dtype, np.dtype] = {
    torch.int64: np.dtype(np.int64),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
_TORCH = {here: there for there, here in NUMPY.items()}

Form = tuple[tuple[str, np.dtype, tuple[int, ...]], ...]  # name, type and shape of arrays


@dataclass(frozen=True)
class Parcel:
    """Arrays of the host in one stretch of memory of the device: every copy costs the host as much as a kernel, however
    few bytes it brings."""

    memory: Tensor  # bytes
    form: Form

    @staticmethod
    def sent(arrays: Mapping[str, np.ndarray], device: torch.device) -> "Parcel":
        """The host does not wait for the copy: what it leaves from is pinned, and not used again until it is made."""
        form = tuple((name, values.dtype, values.shape) for name, values in arrays.items())
        sizes = [_room(values.nbytes) for values in arrays.values()]
        memory = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda")
        here, at = memory.numpy(), 0
        for values, size in zip(arrays.values(), sizes, strict=True):
            here[at : at + values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            at += size
        return Parcel(memory.to(device, non_blocking=True), form)

    def tensor(self, name: str) -> Tensor:
        """One of the arrays, as a view."""
        at = 0
        for other, dtype, shape in self.form:
            size = dtype.itemsize * math.prod(shape)
            if other == name:
                return self.memory[at : at + size].view(_TORCH[dtype]).view(shape)
            at += _room(size)
        raise KeyError(name)


def _room(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def in_precision(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Row numbers and keys as they are, other numbers in the model's precision."""
    return values if values.dtype == np.int64 else values.astype(NUMPY[dtype], copy=False)


def sent(values: np.ndarray, device: torch.device) -> Tensor:
    """The values on the device, in a copy that the host does not wait for: it has the next round to plan. Of few values
    CUDA keeps a copy of its own until they are sent."""
    here = torch.from_numpy(values)
    if device.type == "cuda" and here.nbytes > _SMALL:
        here = here.pin_memory()
    return here.to(device, non_blocking=True)


def fetched(values: Tensor) -> Callable[[], Tensor]:
    """The values on the host, once they are asked for: then the host waits for what the device was given before, and
    for nothing after."""
    if values.device.type != "cuda":
        return values.cpu
    here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    here.copy_(values, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def wait() -> Tensor:
        arrived.synchronize()
        return here

    return wait
