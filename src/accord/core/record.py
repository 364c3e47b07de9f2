"""What clients add up. A record is all a server ever sees of a cohort.

Almost every field is a sum over clients, so records of parts of a cohort add to the record of the whole: a loop, a
batch of lanes, a pool of processes and a secure sum all end in the same record. Two other ways to combine exist: the
minimum, and `rows`, which keeps every client apart and gives up the O(parameters) promise.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from accord import kernels

State = dict[str, Tensor]  # what a part of an algorithm remembers between rounds, by name
# What one client's share of a field is: its weighted update, a sign for every coordinate, a one, its weight, or any
# other number. Privacy and secure sums go by it: each of these has a bound of its own.
Kind = Literal["update", "votes", "count", "weight", "number"]

_SMALL = 1 << 22  # numbers that a CUDA device multiplies and sums in two kernels, for the memory of one copy
BLOCK = 1 << 19  # coordinates summed at a time: the running sum and one client's slice then stay in a core's cache


@dataclass(frozen=True)
class Field:
    """A value, how two of it combine, and what a client's share of it is."""

    value: Tensor
    how: Literal["sum", "min", "rows"] = "sum"
    kind: Kind = "number"

    def __add__(self, other: "Field") -> "Field":
        if (self.how, self.kind) != (other.how, other.kind):
            raise ValueError(f"a {self.how} of {self.kind} met a {other.how} of {other.kind}")
        if self.how == "sum":
            return replace(self, value=self.value + other.value)
        if self.how == "min":
            return replace(self, value=torch.minimum(self.value, other.value))
        return replace(self, value=torch.cat([self.value, other.value], dim=-2))


class Record:
    """Named fields, and records of parts. Adding makes a new record. `record["delta"]` is a field's value,
    `record.part("mask")` a part.

    >>> record = Record(votes=Field(torch.tensor([2.0])))
    >>> (record + record)["votes"]
    tensor([4.])
    """

    def __init__(self, **fields: "Field | Record") -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Tensor:
        entry = self._entry(name)
        if isinstance(entry, Record):
            raise KeyError(f"{name!r} is a part of the record, not a field: it has {', '.join(entry._fields)}")
        return entry.value

    def part(self, name: str) -> "Record":
        """The record of one part."""
        entry = self._entry(name)
        if isinstance(entry, Field):
            raise KeyError(f"{name!r} is a field of the record, not a part")
        return entry

    def _entry(self, name: str) -> "Field | Record":
        if name not in self._fields:
            raise KeyError(f"the record has no {name!r}, only {', '.join(self._fields)}")
        return self._fields[name]

    def __add__(self, other: "Record") -> "Record":
        if self._fields.keys() != other._fields.keys():
            raise ValueError(
                f"records of different rules do not add: {sorted(self._fields)} and {sorted(other._fields)}"
            )
        added = {name: entry + other._fields[name] for name, entry in self._fields.items()}  # type: ignore[operator]
        return Record(**added)

    def add_(self, other: "Record") -> "Record":
        """Adds `other` into this record, sums in place: for a running total that `copy` or `+` made and nobody else
        holds. A vector of many parameters is fresh memory each time it is made, and that costs several times the
        addition."""
        if self._fields.keys() != other._fields.keys():
            return self + other  # which says what is wrong
        for name, entry in self._fields.items():
            more = other._fields[name]
            if isinstance(entry, Record) and isinstance(more, Record):
                entry.add_(more)
            elif (
                isinstance(entry, Field)
                and isinstance(more, Field)
                and entry.how == more.how == "sum"
                and entry.kind == more.kind
            ):
                entry.value.add_(more.value)
            else:
                self._fields[name] = entry + more  # type: ignore[operator]
        return self

    def copy(self) -> "Record":
        """The same record in memory of its own. Two fields of one that was just lifted may share theirs."""
        return self.mapped(lambda field: replace(field, value=field.value.clone()))

    def mapped(self, change: "Callable[[Field], Field]") -> "Record":
        """The record with every field changed, those of its parts included."""
        return Record(
            **{name: entry.mapped(change) if isinstance(entry, Record) else change(entry) for name, entry in self}
        )

    def fields(self, path: str = "") -> "dict[str, Field]":
        """All fields by their path: `average.delta`."""
        by_path: dict[str, Field] = {}
        for name, entry in self:
            by_path |= entry.fields(f"{path}{name}.") if isinstance(entry, Record) else {f"{path}{name}": entry}
        return by_path

    def __iter__(self) -> Iterator[tuple[str, "Field | Record"]]:
        return iter(self._fields.items())

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={entry!r}' for name, entry in self)})"


NOTHING = Record()  # of a part that adds nothing up


def total(x: Tensor, weight: Tensor | None = None, kind: Kind = "number") -> Field:
    """The sum over clients, `[..., K, P] -> [..., P]`, each times its `weight: [..., K, 1]`, in float32 or wider.

    Clients are added one after another, so however a cohort is cut into blocks the additions are the same.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    if not x.shape[-1]:  # the buffers of most models
        return Field(x.new_zeros(_summed(x), dtype=wide), kind=kind)
    if x.shape[-2] == 1:
        row = x[..., 0, :]
        return Field(
            row.to(wide, copy=True) if weight is None else row.to(wide) * weight[..., 0, :].to(wide), kind=kind
        )
    if weight is not None and (made := (kernels.tally if x.is_cuda else kernels.sums)(x, weight, False)) is not None:
        return Field(made[0], kind=kind)
    if x.is_cuda and x.numel() <= _SMALL:
        return Field((x.to(wide) if weight is None else x.to(wide) * weight.to(wide)).sum(-2), kind=kind)
    out = x.new_zeros(_summed(x), dtype=wide)
    for part in _blocks(x):
        accumulator = out[..., part]
        for k in range(x.shape[-2]):
            row = x[..., k, part]
            accumulator.add_(row) if weight is None else accumulator.addcmul_(row.to(wide), weight[..., k, :].to(wide))
    return Field(out, kind=kind)


def votes(x: Tensor) -> Field:
    """The sum over clients of the signs, `[..., K, P] -> [..., P]`: whole numbers, which float32 holds exactly up to
    2^24."""
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.shape[-2] == 1:
        return Field(x[..., 0, :].to(wide).sign(), kind="votes")
    out = x.new_zeros(_summed(x), dtype=wide)
    for part in _blocks(x):
        accumulator = out[..., part]
        for k in range(x.shape[-2]):
            accumulator.add_(x[..., k, part].sign())
    return Field(out, kind="votes")


def tally(x: Tensor, weight: Tensor) -> tuple[Field, Field]:
    """The weighted total of `x: [..., K, P]` and the votes on it, with the bits of `total` and `votes`, from one pass
    over memory where a kernel does both: on CUDA, and on a CPU where the compiled library is there."""
    made = None
    if x.shape[-2] > 1:
        made = (kernels.tally if x.is_cuda else kernels.sums)(x, weight, True)
    if made is None or made[1] is None:
        return total(x, weight, "update"), votes(x)
    return Field(made[0], kind="update"), Field(made[1], kind="votes")


def exact_total(
    x: Tensor, of: Callable[[Tensor], Tensor] = Tensor.double, weight: Tensor | None = None, kind: Kind = "number"
) -> Field:
    """The sum over clients of `of(x)`, each times its weight, as `total` but in float64: for sums whose small
    differences matter. Client by client, so that no copy of all of them is made."""
    out = x.new_zeros(_summed(x), dtype=torch.float64)
    for k in range(x.shape[-2]):
        value = of(x[..., k, :].double())
        out.add_(value) if weight is None else out.addcmul_(value, weight[..., k, :].double())
    return Field(out, kind=kind)


def _summed(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:-2], x.shape[-1])


def _blocks(x: Tensor) -> Iterator[slice]:
    """Slices of coordinates. A GPU has no use for small ones: there every slice is one more kernel to launch."""
    size = BLOCK if x.device.type == "cpu" else max(x.shape[-1], 1)
    for start in range(0, x.shape[-1], size):
        yield slice(start, start + size)
