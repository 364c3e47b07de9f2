"""What every worker of a run needs, packed once. A million clients are a million small tensors, which take minutes to pack and most of a GB
in every worker: here they travel as one tensor, of which a client's rows are a slice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.federated import Rows
from accord.engines.contract import Job
from accord.engines.ray.payload import Parcel


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
    light = replace(job, fed=replace(job.fed, train=rows, heldout=none, unseen=none, populations=none))  # workers are told what to evaluate
    settings = torch.get_default_dtype(), torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    try:
        return Parcel.of(Luggage(light, *settings))
    except Exception as error:
        named = {"model": job.module, "loss": job.loss, "metrics": job.metrics, "algorithm": job.algorithm, "training": job.training}
        what = next((name for name, value in named.items() if not _goes(value)), "data")
        raise AccordError(f"the {what} cannot be sent to another node: {error}") from None


def _goes(value: object) -> bool:
    try:
        Parcel.of(value)
    except Exception:
        return False
    return True
