"""The gradient of a batch for a chain of layers, and the step of SGD along it, each as one call of the compiled
library. `accord.engines.compiled` says which models are such chains."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from accord.kernels.block import address, takes
from accord.kernels.library import functions


@dataclass(frozen=True)
class Layer:
    """A layer of a chain: where its weight and its bias (None: it has none) begin in the flat parameters, how many
    numbers of a sample it reads and writes, and of a block (convolution, ReLU, 2 x 2 max-pool) its sizes."""

    weight: int
    bias: int | None
    reads: int
    writes: int
    block: Sequence[int] | None = None


class Chain:
    """Blocks, then linear layers with ReLU between them, then cross-entropy, of one flat vector of parameters."""

    def __init__(self, layers: Sequence[Layer], parameters: int) -> None:
        self._reads = layers[0].reads
        self._count, self._layers = len(layers), (ctypes.c_int64 * (16 * len(layers)))()
        for number, layer in enumerate(layers):
            bias = -1 if layer.bias is None else layer.bias
            row: list[Any] = [
                layer.block is None,
                layer.weight,
                bias,
                layer.reads,
                layer.writes,
                *(layer.block or [0] * 11),
            ]
            self._layers[16 * number : 16 * (number + 1)] = row
        # kept: memory that is new every time costs a large model much
        self._gradient = torch.empty(parameters, dtype=torch.float32, device="cpu")

    def gradient(self, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor] | None:
        """The gradient `[P]` of the batch's mean loss at `w: [P]`, which is good until the next call, and the loss.
        None where torch must do it: the library was not chosen or cannot read these, something is not finite, or a
        label is no class."""
        loss = self._call("accord_chain_gradient", x, y, w)
        return None if loss is None else (self._gradient, loss)

    def step(
        self, x: Tensor, y: Tensor, piece: Any, *, weight_decay: float, mu: float, lr: float, momentum: float
    ) -> Tensor | None:
        """The same, and `sgd_` along it without a clip, in one pass: the loss. Where it is None nothing has moved."""
        w, start, drift, gradients, (velocity,) = piece
        vectors = map(address, (velocity, start if mu else None, drift, gradients))
        return self._call("accord_chain_step", x, y, w, *vectors, weight_decay, mu, momentum, lr)

    def _call(self, function: str, x: Tensor, y: Tensor, w: Tensor, *more: Any) -> Tensor | None:
        if (
            not takes(x, w)
            or not w.is_contiguous()
            or y.dtype != torch.int64
            or y.shape != x.shape[:1]
            or x.numel() != len(y) * self._reads
        ):
            return None
        x, y, loss = x.contiguous(), y.contiguous(), x.new_empty(())
        there = [t.data_ptr() for t in (x, y, w, self._gradient, loss)]
        odd = getattr(functions(), function)(self._layers, self._count, len(y), *there, *more)
        return None if odd else loss


def sgd_(
    gradient: Sequence[Tensor],
    pieces: Sequence[Any],
    *,
    factor: Tensor | None = None,
    weight_decay: float = 0.0,
    mu: float = 0.0,
    lr: float,
    momentum: float,
) -> None:
    """The step of `accord.rules.local.step.step_` with SGD, in one pass over memory. All are vectors of float32."""
    for part, (w, start, drift, gradients, (velocity,)) in zip(gradient, pieces, strict=True):
        vectors = map(address, (part, w, velocity, start if mu else None, drift, gradients))
        clipped = 1.0 if factor is None else float(factor)
        functions().accord_sgd(w.numel(), *vectors, clipped, weight_decay, mu, momentum, lr)
