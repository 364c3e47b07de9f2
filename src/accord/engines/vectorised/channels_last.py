"""Large models of pictures with channels innermost, as a CUDA device's convolutions read them.

Weights of convolutions lie so too, in every vector of a round: they are turned around when it begins, and its updates
when it has ended. GroupNorm, what a residual block adds to it and the ReLU after it are one kernel each way.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.layout import Layout
from accord.data.federated import Federation
from accord.engines.vectorised.twin import difference
from accord.kernels import group_norm
from accord.models.block import hooked
from accord.models.resnet import Block

_ALIGNED = 64  # numbers: from weights that begin elsewhere, cuDNN chooses kernels that are several times as slow
_ROUNDING = 1e-2  # between outputs, relative to them: convolutions round to TF32, and these in an order of their own


@dataclass(frozen=True)
class Arrangement:
    """How the parameters of `layout` lie in a lane's vectors: as everywhere, or `apart`, each where a library likes
    memory to begin, and with the channels of convolutions `innermost`. What lies between them is 0."""

    layout: Layout
    apart: bool = False
    innermost: bool = False

    @cached_property
    def sizes(self) -> list[int]:
        """Of each parameter, with what lies behind it."""
        sizes = [entry.size for entry in self.layout.parameters]
        return [-(-size // _ALIGNED) * _ALIGNED for size in sizes] if self.apart else sizes

    @cached_property
    def size(self) -> int:
        """Of a vector."""
        return sum(self.sizes)

    def arranged(self, vectors: Tensor) -> Tensor:
        """Vectors `[..., P]` of the layout, in this order."""
        if not self.apart:
            return vectors
        arranged = vectors.new_zeros(*vectors.shape[:-1], self.size)
        for place, piece in zip(self.pieces(arranged), self.layout.pieces(vectors), strict=True):
            place.copy_(piece)
        return arranged

    def restored(self, vectors: Tensor) -> Tensor:
        """Vectors in this order, as the layout has them."""
        return self.layout.flatten(self.pieces(vectors), vectors.shape[:-1]) if self.apart else vectors

    def pieces(self, vectors: Tensor) -> list[Tensor]:
        """Views of vectors in this order, `[..., *shape]` for each parameter."""
        pieces, lead = [], vectors.shape[:-1]
        for entry, part in zip(self.layout.parameters, self._cut(vectors), strict=True):
            if self.innermost and len(entry.shape) == 4:
                kernels, channels, high, wide = entry.shape
                pieces.append(part.view(*lead, kernels, high, wide, channels).movedim(-1, -3))
            else:
                pieces.append(part.view(*lead, *entry.shape))
        return pieces

    def gather(self, parts: Sequence[Tensor], vector: Tensor) -> None:
        """Writes tensors by parameter to their places in one vector of this order, in one kernel for each precision
        that they have."""
        by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for part, place in zip(parts, self._cut(vector), strict=True):
            places, values = by_type.setdefault(part.dtype, ([], []))
            places.append(place)
            values.append((part.movedim(-3, -1) if self.innermost and part.ndim == 4 else part).reshape(-1))
        for places, values in by_type.values():
            torch._foreach_copy_(places, values)

    def _cut(self, vectors: Tensor) -> list[Tensor]:
        cut = zip(self.layout.parameters, vectors.split(self.sizes, dim=-1), strict=True)
        return [part[..., : entry.size] for entry, part in cut]


# --------------------------------------------------------------------------------------------------- the model


def with_channels_last(module: nn.Module, fed: Federation) -> tuple[nn.Module | None, str]:
    """A copy of the module that reads pictures with their channels innermost; or None, and why there is none."""
    x, _ = fed.read(torch.zeros(2, dtype=torch.int64, device=fed.x.device))
    twin = _fused(module)
    try:
        apart = difference(twin, module, x, last(x))
    except Exception as error:  # such as that of a model which views a picture as a row of numbers
        return (
            None,
            f"it does not take pictures whose channels lie innermost ({str(error).strip().partition(chr(10))[0]})",
        )
    if not apart <= _ROUNDING:
        return None, "it would not compute the same with layers made for that"
    for name, part in twin.named_modules():
        if isinstance(part, nn.GroupNorm) and not (isinstance(part, LastNorm) and part.fits):
            layer = module.get_submodule(name)
            return None, f"there is no kernel for its layer {name}, {layer}: groups of 4, 8, 12, ... channels have one"
    return twin, ""


def last(x: Tensor) -> Tensor:
    """Pictures with their channels innermost; others as they are."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def _fused(module: nn.Module) -> nn.Module:
    """A copy in which GroupNorms take over what follows them. One that has other uses takes over nothing."""
    module = copy.deepcopy(module)
    uses = Counter(id(child) for part in module.modules() for child in part._modules.values())
    parts = [part for part in module.modules() if not hooked(part)]
    for norm in parts:
        if type(norm) is nn.GroupNorm and norm.affine and all(p.dtype == torch.float32 for p in norm.parameters()):
            norm.__class__ = LastNorm
    for part in parts:
        if type(part) is nn.Sequential:
            names, layers = list(part._modules), list(part)
            for at, (layer, after) in enumerate(pairwise(layers)):
                takes_over = type(after) is nn.ReLU and not hooked(after) and uses[id(layer)] == 1
                if isinstance(layer, LastNorm) and takes_over:
                    layer.relu = True
                    part._modules[names[at + 1]] = nn.Identity()
        elif type(part) is Block and _ends_with_norm(part.body):
            part.__class__ = LastBlock
    return module


def _ends_with_norm(body: nn.Module) -> bool:
    return type(body) is nn.Sequential and not hooked(body) and isinstance(body[-1], LastNorm)


class LastBlock(Block):
    """A residual block whose last norm adds what comes from around it."""

    def forward(self, x: Tensor) -> Tensor:
        *layers, norm = self.body
        assert isinstance(norm, LastNorm)
        body = x
        for layer in layers:
            body = layer(body)
        return norm.joined(body, self.around(x))


class LastNorm(nn.GroupNorm):
    """A GroupNorm, and the ReLU after it where there is one."""

    relu = False
    fits = True  # until it meets pictures that there is no kernel for

    def forward(self, input: Tensor) -> Tensor:
        return self._normalised(input, None, self.relu)

    def joined(self, input: Tensor, around: Tensor) -> Tensor:
        """ReLU of the sum of both."""
        return self._normalised(input, around, True)

    def _normalised(self, x: Tensor, more: Tensor | None, relu: bool) -> Tensor:
        narrow = x.dtype == torch.bfloat16
        shape = group_norm.Shape(self.num_channels, x[0, 0].numel(), self.num_groups, relu, more is not None, narrow)
        self.fits = self.fits and x.ndim == 4 and shape.fits
        if self.fits and group_norm.takes(x):
            more = None if more is None else last(more.to(x.dtype))
            output: Tensor = _Norm.apply(last(x), self.weight, self.bias, more, self.eps, shape)
            return output
        output = super().forward(x)
        output = output if more is None else output + more
        return F.relu(output) if relu else output


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        more: Tensor | None,
        eps: float,
        shape: group_norm.Shape,
    ) -> Tensor:
        y, statistics = group_norm.forward(x, weight, bias, more, eps, shape)
        # without a ReLU the output is not needed, and may be changed in place by whoever gets it
        ctx.save_for_backward(x, y if shape.relu else None, weight, statistics)
        ctx.shape = shape
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, statistics = ctx.saved_tensors
        dx, dmore, (dweight, dbias) = group_norm.backward(
            x, x if y is None else y, last(g), weight, statistics, ctx.shape
        )
        return dx, dweight, dbias, dmore, None, None
