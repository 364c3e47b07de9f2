"""What clients add up. A record is all a server ever sees of a cohort.

Almost every field is a sum over clients, so records of parts of a cohort add to the record of the whole: a loop, a batch of lanes,
a pool of processes and a secure sum all end in the same record. Two other ways to combine exist: the minimum, and `rows`,
which keeps every client apart and gives up the O(parameters) promise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

State = dict[str, Tensor]  # what a part of an algorithm remembers between rounds, by name

BLOCK = 1 << 19  # coordinates summed at a time: the running sum and one client's slice then stay in a core's cache


@dataclass(frozen=True)
class Field:
    """A value and how two of it combine."""

    value: Tensor
    how: Literal["sum", "min", "rows"] = "sum"

    def __add__(self, other: "Field") -> "Field":
        if self.how != other.how:
            raise ValueError(f"a field that combines by {self.how} met one that combines by {other.how}")
        if self.how == "sum":
            return Field(self.value + other.value, "sum")
        if self.how == "min":
            return Field(torch.minimum(self.value, other.value), "min")
        return Field(torch.cat([self.value, other.value], dim=-2), "rows")


class Record:
    """Named fields, or records of parts. Adding makes a new record; reading a field by name gives its value."""

    def __init__(self, **fields: "Field | Record") -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:  # a Tensor, or a Record for a part
        try:
            entry = self.__dict__["_fields"][name]
        except KeyError:
            raise AttributeError(f"the record has no field {name!r}, only {', '.join(self.__dict__.get('_fields', ()))}") from None
        return entry.value if isinstance(entry, Field) else entry

    def __add__(self, other: "Record") -> "Record":
        if self._fields.keys() != other._fields.keys():
            raise ValueError(f"records of different rules do not add: {sorted(self._fields)} and {sorted(other._fields)}")
        return Record(**{name: entry + other._fields[name] for name, entry in self._fields.items()})  # type: ignore[operator]

    def __iter__(self) -> Iterator[tuple[str, "Field | Record"]]:
        return iter(self._fields.items())

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={entry!r}' for name, entry in self)})"


def total(x: Tensor, weight: Tensor | None = None) -> Field:
    """The sum over clients, `[..., K, P] -> [..., P]`, each times its `weight: [..., K, 1]`, in float32 or wider.

    Clients are added one after another, so however a cohort is cut into blocks the additions are the same.
    """
    out = x.new_zeros(_summed(x), dtype=torch.promote_types(x.dtype, torch.float32))
    for part in _blocks(x):
        accumulator = out[..., part]
        for k in range(x.shape[-2]):
            row = x[..., k, part]
            accumulator.add_(row) if weight is None else accumulator.addcmul_(row.to(out.dtype), weight[..., k, :].to(out.dtype))
    return Field(out)


def votes(x: Tensor) -> Field:
    """The sum over clients of the signs, `[..., K, P] -> [..., P]`: whole numbers, which float32 holds exactly up to 2^24."""
    out = x.new_zeros(_summed(x), dtype=torch.promote_types(x.dtype, torch.float32))
    for part in _blocks(x):
        accumulator = out[..., part]
        for k in range(x.shape[-2]):
            accumulator.add_(x[..., k, part].sign())
    return Field(out)


def _summed(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:-2], x.shape[-1])


def _blocks(x: Tensor) -> Iterator[slice]:
    """Slices of coordinates. A GPU has no use for small ones: there every slice is one more kernel to launch."""
    size = BLOCK if x.device.type == "cpu" else max(x.shape[-1], 1)
    for start in range(0, x.shape[-1], size):
        yield slice(start, start + size)
