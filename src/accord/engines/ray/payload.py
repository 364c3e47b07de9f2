"""Values on their way through a cluster. All tensors of a parcel lie in one array, which Ray keeps in a node's shared memory: every process
of the node reads the same bytes, and none copies them."""

import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ray import cloudpickle
from torch import Tensor

from accord.engines.shared_memory import ALIGNED, Laying, Place, Unpickler, lying_in


@dataclass(frozen=True)
class Parcel:
    """A value, made ready to travel with `Parcel.of` and taken out with `open`."""

    data: bytes
    lying: np.ndarray  # uint8

    @staticmethod
    def of(value: object) -> "Parcel":
        """The value's tensors are copied, from whatever device, so that it may change afterwards."""
        stream = io.BytesIO()
        pickler = _Pickler(stream)
        pickler.dump(value)
        memory = torch.zeros(pickler.end, dtype=torch.uint8)
        for place, tensor in pickler.laid.values():
            lying_in(memory, place).copy_(tensor)
        return Parcel(stream.getvalue(), memory.numpy())

    def open(self, copy: bool = False) -> Any:
        """The value, with its tensors on the CPU. Unless copied they are views of memory that others read too: never write to them."""
        return Unpickler(self.data, _Opened(self.lying), copy).load()

    @property
    def nbytes(self) -> int:
        return len(self.data) + self.lying.nbytes


class _Pickler(Laying, cloudpickle.Pickler):
    """Ray's own pickler also takes what was defined in a script or a notebook."""


class _Opened:
    def __init__(self, lying: np.ndarray) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            memory = torch.from_numpy(lying)
        # A small parcel travels inside a message and may lie anywhere, but kernels may round differently on memory that is not aligned.
        self.memory = memory.clone() if memory.data_ptr() % ALIGNED else memory

    def at(self, place: Place) -> Tensor:
        return lying_in(self.memory, place)
