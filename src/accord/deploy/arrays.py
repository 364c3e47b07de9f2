"""Models as other frameworks carry them, arrays by name, laid out as accord's vectors and back."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout, entries_of

Arrays = Mapping[str, Any]  # numpy arrays or tensors, by name
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # what BatchNorm calls its buffers


def layout_of(arrays: Arrays) -> Layout:
    """Which array lies where. Whole numbers and BatchNorm's statistics are buffers: they are averaged, and never
    masked."""
    tensors = {name: torch.as_tensor(value) for name, value in arrays.items()}
    buffers = {
        name: t for name, t in tensors.items() if not t.is_floating_point() or name.rpartition(".")[2] in _STATISTICS
    }
    parameters = {name: t for name, t in tensors.items() if name not in buffers}
    if not parameters:
        raise AccordError(
            f"a model must have arrays of floating-point numbers, got {', '.join(arrays) or 'none at all'}"
        )
    wide = reduce(torch.promote_types, (t.dtype for t in parameters.values()), torch.float32)
    return Layout(entries_of(parameters), entries_of(buffers), wide)


def packed(arrays: Arrays, layout: Layout) -> tuple[Tensor, Tensor]:
    """The arrays as vectors `[P]` of parameters and `[B]` of buffers."""
    tensors = {name: torch.as_tensor(value).detach().cpu() for name, value in arrays.items()}
    for entry in (*layout.parameters, *layout.buffers):
        if entry.name not in tensors:
            raise AccordError(f"{entry.name} is missing")
        if tuple(tensors[entry.name].shape) != entry.shape:
            raise AccordError(f"wrong shape {tuple(tensors[entry.name].shape)} of {entry.name}, expected {entry.shape}")
    if len(tensors) > len(layout.parameters) + len(layout.buffers):
        known = {entry.name for entry in (*layout.parameters, *layout.buffers)}
        raise AccordError(f"the model has no {', '.join(sorted(set(tensors) - known))}")
    return layout.flatten([tensors[entry.name] for entry in layout.parameters]), layout.pack_buffers(tensors)


def unpacked(vector: Tensor, buffers: Tensor, layout: Layout, like: Arrays) -> dict[str, Any]:
    """The vectors as arrays of the names, order and kind of `like`."""
    tensors = {**layout.unpack(vector), **layout.unpack_buffers(buffers)}
    return {
        name: tensors[name].to(value.device) if isinstance(value, Tensor) else tensors[name].numpy()
        for name, value in like.items()
    }
