"""A module as one flat vector, and back.

Everything the clients and the server exchange is a vector `[P]` of the trainable parameters and a vector `[B]` of the
buffers. Tied parameters appear once, frozen ones stay in the module, and parameters of several precisions share one
vector in the widest of them (float32 or wider, because that is what gets summed).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from accord.core.errors import AccordError
from accord.core.personal import personal_names


@dataclass(frozen=True)
class Entry:
    """One tensor of the module and where it lies in the vector."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def where(self) -> slice:
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True)
class Layout:
    """Which parameter and which buffer lies where. Made once per model with `Layout.of(module)`.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> layout.size, [entry.name for entry in layout.parameters]
    (8, ['weight', 'bias'])
    """

    parameters: tuple[Entry, ...]
    buffers: tuple[Entry, ...] = ()
    dtype: torch.dtype = torch.float32

    @staticmethod
    def of(module: nn.Module, personal: Sequence[str] = ()) -> "Layout":
        """The layout of a module: trainable parameters (tied ones once) and every numeric buffer, but for those that
        are `personal` (see `personal_names`)."""
        if any(is_lazy(p) for p in module.parameters()):
            raise AccordError("the model has parameters without a shape yet: run one batch through it first")
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not trainable:
            raise AccordError("the model has no trainable parameters: at least one needs requires_grad=True")
        odd = [name for name, p in trainable.items() if not p.dtype.is_floating_point]
        if odd:
            raise AccordError(
                f"parameter {odd[0]} has type {trainable[odd[0]].dtype}: accord trains real floating-point parameters"
            )
        # A truth value has no average: bool buffers stay in the module, as frozen parameters do.
        numeric = {name: b for name, b in module.named_buffers() if b.dtype != torch.bool and not b.is_complex()}
        dtype = reduce(torch.promote_types, (p.dtype for p in trainable.values()), torch.float32)
        home = personal_names(module, personal) if personal else set()
        shared, held = ({name: t for name, t in ts.items() if name not in home} for ts in (trainable, numeric))
        return Layout(entries_of(shared), entries_of(held), dtype)

    def whole(self, module: nn.Module) -> "Layout":
        """The layout of all of the module: what this one has comes first, in its order, then what it leaves out."""
        every = Layout.of(module)
        if len(every.parameters) == len(self.parameters) and len(every.buffers) == len(self.buffers):
            return self
        parameters = _followed_by(self.parameters, every.parameters)
        return Layout(parameters, _followed_by(self.buffers, every.buffers), self.dtype)

    @cached_property
    def buffer_size(self) -> int:
        """B, the length of the vector of buffers."""
        return sum(entry.size for entry in self.buffers)

    @staticmethod
    def flat(size: int, dtype: torch.dtype = torch.float32) -> "Layout":
        """The layout of a bare vector, for those who have deltas but no module."""
        return Layout((Entry("all", (size,), dtype, 0),), (), dtype)

    @cached_property
    def size(self) -> int:
        """P, the length of the parameter vector."""
        return sum(entry.size for entry in self.parameters)

    def pack(self, module: nn.Module) -> Tensor:
        """The module's trainable parameters as a fresh vector `[P]`."""
        named = dict(module.named_parameters())
        return self.flatten([named[entry.name] for entry in self.parameters])

    def flatten(self, parts: Sequence[Tensor], lead: Sequence[int] = ()) -> Tensor:
        """Tensors by parameter as a fresh vector `[P]`; `[*lead, P]` of stacked ones."""
        return _flatten(parts, self.dtype, lead)

    def pieces(self, vector: Tensor) -> list[Tensor]:
        """Views of `vector: [..., P]`, `[..., *shape]` for each parameter."""
        lead, pieces = vector.shape[:-1], vector.split([entry.size for entry in self.parameters], dim=-1)
        return [piece.view(lead + entry.shape) for entry, piece in zip(self.parameters, pieces, strict=True)]

    def by_parameter(self, *vectors: Tensor | None) -> list[tuple[Tensor | None, ...]]:
        """For each parameter its pieces of several vectors; of a vector that is None, None."""
        nothing = [None] * len(self.parameters)
        return list(zip(*(nothing if vector is None else self.pieces(vector) for vector in vectors), strict=True))

    def pack_buffers(self, buffers: dict[str, Tensor], lead: Sequence[int] = ()) -> Tensor:
        """Buffers as a fresh vector `[B]`, in float64 so that counters and identifiers survive the trip; `[*lead, B]`
        of stacked ones."""
        return _flatten([buffers[entry.name] for entry in self.buffers], torch.float64, lead)

    def unpack(self, vector: Tensor) -> dict[str, Tensor]:
        """Named parameters as views of `vector: [P]`, differentiable, cast where the module has another precision."""
        return {e.name: piece.to(e.dtype) for e, piece in zip(self.parameters, self.pieces(vector), strict=True)}

    def unpack_buffers(self, vector: Tensor) -> dict[str, Tensor]:
        """Named buffers of `[..., B]` as fresh tensors; whole-number ones are rounded, since an average of counters
        need not be whole."""
        return {
            e.name: _restore(vector[..., e.where].reshape((*vector.shape[:-1], *e.shape)), e.dtype)
            for e in self.buffers
        }

    def load(self, module: nn.Module, vector: Tensor, buffers: Tensor) -> nn.Module:
        """Writes both vectors into the module, in place."""
        named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, value in {**self.unpack(vector), **self.unpack_buffers(buffers)}.items():
                named[name].copy_(value)
        return module

    def layers(self, per_coordinate: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Cuts a vector `[..., P]` into (name, part) by parameter."""
        for entry in self.parameters:
            yield entry.name, per_coordinate[..., entry.where]


def change_of_buffers(start: Tensor, end: Tensor) -> Tensor:
    """How far buffers moved, `[..., B]`. They may hold infinities on purpose (attention masks): what stayed the same
    moved by nothing."""
    same = (start == end) | (start.isnan() & end.isnan())
    return torch.where(same, torch.zeros_like(end), end - start)


def entries_of(tensors: Mapping[str, Tensor]) -> tuple[Entry, ...]:
    """Where each tensor lies if they stand one after the other."""
    entries, start = [], 0
    for name, tensor in tensors.items():
        entries.append(Entry(name, tuple(tensor.shape), tensor.dtype, start))
        start += tensor.numel()
    return tuple(entries)


def _followed_by(entries: tuple[Entry, ...], every: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The entries, then all others, one after the other."""
    known, end, followed = {entry.name for entry in entries}, sum(entry.size for entry in entries), list(entries)
    for entry in every:
        if entry.name not in known:
            followed.append(replace(entry, start=end))
            end += entry.size
    return tuple(followed)


def _flatten(tensors: Sequence[Tensor], dtype: torch.dtype, lead: Sequence[int] = ()) -> Tensor:
    if not tensors:
        return torch.zeros(*lead, 0, dtype=dtype)
    return torch.cat([t.detach().reshape(*lead, -1).to(dtype) for t in tensors], dim=-1)


def _restore(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype, copy=True) if dtype.is_floating_point else value.round().to(dtype)
