"""Values on their way through a cluster. All tensors of a parcel lie in one array, which Ray keeps in a node's shared
memory: every process of the node reads the same bytes, and none copies them.

What every worker of a run needs is packed once. A million clients are a million small tensors, which take minutes to
pack and most of a GB in every worker: they travel as one tensor, of which a client's rows are a slice.
"""

import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from ray import cloudpickle
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.federated import Rows
from accord.engines.contract import Job
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
        """The value, with its tensors on the CPU. Unless copied they are views of memory that others read too: never
        write to them."""
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
        # A small parcel travels inside a message and may lie anywhere, but kernels may round differently on memory that
        # is not aligned.
        self.memory = memory.clone() if memory.data_ptr() % ALIGNED else memory

    def at(self, place: Place) -> Tensor:
        return lying_in(self.memory, place)


# ---------------------------------------------------------------------------------------- what a worker needs


class Sliced(Mapping[str, Tensor]):
    """Clients' rows, cut from one tensor when they are asked for."""

    def __init__(self, rows: Rows) -> None:
        self._all = torch.cat(list(rows.values())) if rows else torch.zeros(0, dtype=torch.int64)
        bounds = accumulate(map(len, rows.values()), initial=0)
        self._where = dict(zip(rows, pairwise(bounds), strict=True))

    def __getitem__(self, client: str) -> Tensor:
        start, end = self._where[client]
        return self._all[start:end]

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)


@dataclass(frozen=True)
class Luggage:
    """A job, and settings of torch that another process would not have."""

    job: Job
    dtype: torch.dtype
    precision: str
    deterministic: bool

    def apply(self) -> None:
        torch.set_default_dtype(self.dtype)
        torch.set_float32_matmul_precision(self.precision)
        torch.use_deterministic_algorithms(self.deterministic)


def packed(job: Job) -> Parcel:
    """The job for its workers. What cannot travel is named."""
    none: Any = {}
    rows: Any = Sliced(job.fed.train)
    # workers are told what to evaluate
    light = replace(job, fed=replace(job.fed, train=rows, heldout=none, unseen=none, populations=none, refit=None))
    settings = (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
    )
    try:
        return Parcel.of(Luggage(light, *settings))
    except Exception as error:
        named = {
            "model": job.module,
            "loss": job.loss,
            "metrics": job.metrics,
            "algorithm": job.algorithm,
            "training": job.training,
        }
        what = next((name for name, value in named.items() if not _goes(value)), "data")
        raise AccordError(f"the {what} cannot be sent to another node: {error}") from None


def _goes(value: object) -> bool:
    try:
        Parcel.of(value)
    except Exception:
        return False
    return True
