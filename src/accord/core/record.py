"""What clients add up. A record is all a server ever sees of a cohort.

Almost every field is a sum over clients, so records of parts of a cohort add to the record of the whole: a loop, a batch of lanes,
a pool of processes and a secure sum all end in the same record. Two other ways to combine exist: the minimum, and `rows`,
which keeps every client apart and gives up the O(parameters) promise.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from accord import kernels

State = dict[str, Tensor]  # what a part of an algorithm remembers between rounds, by name

_SMALL = 1 << 22  # numbers that a CUDA device multiplies and sums in two kernels, for the memory of one copy
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

    def add_(self, other: "Record") -> "Record":
        """Adds `other` into this record, sums in place: for a running total that nobody else holds. A vector of many parameters is fresh
        memory each time it is made, and that costs several times the addition."""
        if self._fields.keys() != other._fields.keys():
            return self + other  # which says what is wrong
        for name, entry in self._fields.items():
            more = other._fields[name]
            if isinstance(entry, Record) and isinstance(more, Record):
                entry.add_(more)
            elif isinstance(entry, Field) and isinstance(more, Field) and entry.how == more.how == "sum":
                entry.value.add_(more.value)
            else:
                self._fields[name] = entry + more  # type: ignore[operator]
        return self

    def __iter__(self) -> Iterator[tuple[str, "Field | Record"]]:
        return iter(self._fields.items())

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={entry!r}' for name, entry in self)})"


def total(x: Tensor, weight: Tensor | None = None) -> Field:
    """The sum over clients, `[..., K, P] -> [..., P]`, each times its `weight: [..., K, 1]`, in float32 or wider.

    Clients are added one after another, so however a cohort is cut into blocks the additions are the same.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.shape[-2] == 1:
        row = x[..., 0, :]
        return Field(row.to(wide, copy=True) if weight is None else row.to(wide) * weight[..., 0, :].to(wide))
    shared = _shared.get()
    if weight is not None and (made := _native(x, weight, shared is not None)) is not None:
        if shared is not None and made[1] is not None:
            shared.append((x, made[1]))
        return Field(made[0])
    if x.is_cuda and x.numel() <= _SMALL:
        return Field((x.to(wide) if weight is None else x.to(wide) * weight.to(wide)).sum(-2))
    out = x.new_zeros(_summed(x), dtype=wide)
    for part in _blocks(x):
        accumulator = out[..., part]
        for k in range(x.shape[-2]):
            row = x[..., k, part]
            accumulator.add_(row) if weight is None else accumulator.addcmul_(row.to(wide), weight[..., k, :].to(wide))
    return Field(out)


def _native(x: Tensor, weight: Tensor, votes: bool) -> tuple[Tensor, Tensor | None] | None:
    """The weighted sum, with the votes if they will be asked for, in one pass; None where no kernel is made for it."""
    return kernels.tally(x, weight, votes) if x.is_cuda else kernels.sums(x, weight) if votes else None


def votes(x: Tensor) -> Field:
    """The sum over clients of the signs, `[..., K, P] -> [..., P]`: whole numbers, which float32 holds exactly up to 2^24."""
    for counted, tally in _shared.get() or ():
        if counted is x:
            return Field(tally)
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.shape[-2] == 1:
        return Field(x[..., 0, :].to(wide).sign())
    out = x.new_zeros(_summed(x), dtype=wide)
    for part in _blocks(x):
        accumulator = out[..., part]
        for k in range(x.shape[-2]):
            accumulator.add_(x[..., k, part].sign())
    return Field(out)


def exact_total(x: Tensor, of: Callable[[Tensor], Tensor] = Tensor.double, weight: Tensor | None = None) -> Field:
    """The sum over clients of `of(x)`, each times its weight, as `total` but in float64: for sums whose small differences matter. Client by
    client, so that no copy of all of them is made."""
    out = x.new_zeros(_summed(x), dtype=torch.float64)
    for k in range(x.shape[-2]):
        value = of(x[..., k, :].double())
        out.add_(value) if weight is None else out.addcmul_(value, weight[..., k, :].double())
    return Field(out)


_shared: ContextVar[list[tuple[Tensor, Tensor]] | None] = ContextVar("_shared", default=None)


@contextmanager
def one_pass(wanted: bool = True) -> Iterator[None]:
    """Within it the weighted total of a tensor counts the votes on it too, for a call of `votes` that follows: clients' updates then come
    from memory once, not twice: on CUDA, and on a CPU where `accord.native` was chosen."""
    before = _shared.set([] if wanted else None)
    try:
        yield
    finally:
        _shared.reset(before)


def _summed(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:-2], x.shape[-1])


def _blocks(x: Tensor) -> Iterator[slice]:
    """Slices of coordinates. A GPU has no use for small ones: there every slice is one more kernel to launch."""
    size = BLOCK if x.device.type == "cpu" else max(x.shape[-1], 1)
    for start in range(0, x.shape[-1], size):
        yield slice(start, start + size)
