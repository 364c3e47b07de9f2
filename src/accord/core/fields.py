"""Samples that are several tensors, as one.

A text is token numbers and a mask, a patient a picture and a table row. A federation holds one tensor of samples, and
engines hand batches of it around; so such samples are laid out flat, one field after another, and `Fields` says where
each lies. They are taken apart again only at the model's door (`accord.engines.model_inputs`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError

# by name: a preparation.json is data, and getattr(torch, name) would import some of torch's modules
_KINDS = {str(kind).removeprefix("torch."): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}


@dataclass(frozen=True)
class Input:
    """One tensor of a sample: the argument of the model that it is (empty: by its place), its shape and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # as torch calls it

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def kind(self) -> torch.dtype:
        return _KINDS[self.dtype]

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.shape)) or "one"
        return f"{self.name}: {shape} {self.dtype}" if self.name else f"{shape} {self.dtype}"


@dataclass(frozen=True)
class Fields:
    """What samples are made of, in order.

    >>> fields = Fields.of({"ids": torch.zeros(5, 3, dtype=torch.int64), "age": torch.zeros(5)})
    >>> fields.pack({"ids": torch.ones(2, 3, dtype=torch.int64), "age": torch.ones(2)}).shape
    torch.Size([2, 4])
    """

    inputs: tuple[Input, ...]

    @staticmethod
    def of(tensors: Mapping[str, Tensor] | Sequence[Tensor]) -> "Fields":
        """Of tensors `[N, ...]` by name, or in order."""
        if not tensors:
            raise AccordError("a sample has no inputs: at least one is needed")
        return Fields(tuple(_input(name, tensor) for name, tensor in _named(tensors)))

    @cached_property
    def dtype(self) -> torch.dtype:
        """What all of them are laid out in. Whole numbers beside others survive float64, which holds them up to
        2^53."""
        kinds = [field.kind for field in self.inputs]
        mixed = len({kind.is_floating_point for kind in kinds}) > 1
        return torch.float64 if mixed else reduce(torch.promote_types, kinds)

    def pack(self, tensors: Mapping[str, Tensor] | Sequence[Tensor], whose: str = "the data") -> Tensor:
        """Tensors `[N, ...]` as one, `[N, numbers of a sample]`."""
        got, keys = dict(_named(tensors)), self.names if self.by_name else list(range(len(self.inputs)))
        if set(got) != set(keys):
            counts = [", ".join(map(str, names)) if self.by_name else f"{len(names)}" for names in (got, keys)]
            raise AccordError(f"a sample of {whose} has the inputs {counts[0]}, but the first one has {counts[1]}")
        for key, field in zip(keys, self.inputs, strict=True):
            seen = _input(field.name, got[key])
            if seen.shape != field.shape or seen.kind.is_floating_point != field.kind.is_floating_point:
                raise AccordError(f"an input of {whose} holds {seen}, but the first {field}: they must be alike")
        return torch.cat([got[key].reshape(len(got[key]), -1).to(self.dtype) for key in keys], dim=1)

    def unpack(self, x: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """`[B, numbers of a sample]` as a model's arguments, by place or by name."""
        parts = x.split([field.size for field in self.inputs], dim=-1)
        tensors = [
            part.reshape(*x.shape[:-1], *field.shape).to(field.kind)
            for part, field in zip(parts, self.inputs, strict=True)
        ]
        return ((), dict(zip(self.names, tensors, strict=True))) if self.by_name else (tuple(tensors), {})

    @property
    def by_name(self) -> bool:
        return bool(self.inputs[0].name)

    @property
    def names(self) -> list[Any]:
        return [field.name for field in self.inputs]

    def to_json(self) -> list[dict[str, Any]]:
        return [{"name": field.name, "shape": list(field.shape), "dtype": field.dtype} for field in self.inputs]

    @staticmethod
    def from_json(form: Sequence[Mapping[str, Any]]) -> "Fields":
        """As `to_json` writes it; a type that torch does not have is a ValueError."""
        for field in form:
            if field["dtype"] not in _KINDS:
                raise ValueError(f"{field['dtype']!r} is not a torch dtype")
        return Fields(tuple(Input(field["name"], tuple(field["shape"]), field["dtype"]) for field in form))

    def __str__(self) -> str:
        return ", ".join(map(str, self.inputs))


def _named(tensors: Any) -> list[tuple[Any, Any]]:
    """By name, or by number where they have none."""
    return list(tensors.items() if isinstance(tensors, Mapping) else enumerate(tensors))


def _input(name: Any, tensor: Tensor) -> Input:
    shape, kind = tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch.")
    return Input(name if isinstance(name, str) else "", shape, kind)
