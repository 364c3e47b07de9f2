"""The reference's loop with the compiled library's gradients and steps, and which models they are for: a chain of
blocks (convolution, ReLU, 2 x 2 max-pool) and linear layers with ReLU between them, trained with cross-entropy."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from accord.core.losses import cross_entropy
from accord.engines import sequential
from accord.engines.job import Job
from accord.kernels.block import block_sizes
from accord.kernels.chain import Chain, Layer
from accord.kernels.library import available, chosen
from accord.models.block import Sequential, fusable, hooked
from accord.rules.local.step import Piece, local_step


def one_by_one(job: Job) -> sequential.Sequential:
    """The engine that trains clients one after another: the reference, or, where the compiled library was chosen and
    has all of the model, the same loop with it."""
    chain = chain_of(job) if ("native" in job.speed or chosen()) and available() else None
    return sequential.Sequential(job) if chain is None else Compiled(job, chain)


class Compiled(sequential.Sequential):
    """Gradients are vectors `[P]`, not by parameter, and so is what a step moves. What the library leaves to torch, a
    batch with a label that is no class or a number that is not finite, torch does."""

    def __init__(self, job: Job, chain: Chain) -> None:
        super().__init__(job)
        self._chain, self._sgd = chain, job.training.rule.compiled
        self._by_torch, self._gradient = self._gradient, self._flat_gradient
        self._in_two = self._step = partial(local_step, self._gradient, job.training.clip, job.whole.flatten)
        if self._sgd is not None and job.training.clip is None:
            self._step = self._in_one_call

    def _load(self, vector: Tensor, buffers: Tensor) -> None:
        super()._load(vector, buffers)
        self._at = vector.contiguous()  # a rule may start anywhere

    def _round_steps(self, lr: float, count: int) -> Sequence[Callable[..., None]]:
        if self._sgd is None:
            return super()._round_steps(lr, count)
        return [partial(self._sgd, **self._steps.numbers(lr))] * count

    def _begin(
        self, w: Tensor, buffers: Tensor, start: Tensor, drift: Tensor | None, gradients: Tensor | None
    ) -> list[Piece]:
        self._load(w, buffers)
        # the library reads memory as it lies, and where a rule starts or drifts to may be any tensor of that shape
        drift = None if drift is None else drift.to(w).contiguous()
        return [Piece(w, start.contiguous(), drift, gradients, self._steps.begin(w))]

    def _in_one_call(
        self, step: Any, pieces: list[Piece], x: Tensor, y: Tensor, dropout: int | None, keeps: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Gradient and step together, where nothing is to be done with the gradient in between."""
        if not keeps and (loss := self._chain.step(x, y, *pieces, **step.keywords)) is not None:
            return loss, None
        return self._in_two(step, pieces, x, y, dropout, keeps)

    def _flat_gradient(self, x: Tensor, y: Tensor, dropout: int | None) -> tuple[Sequence[Tensor], Tensor]:
        if (made := self._chain.gradient(x, y, self._at)) is not None:
            return [made[0]], made[1]
        parts, loss = self._by_torch(x, y, dropout)
        return [self.job.whole.flatten(parts)], loss


def chain_of(job: Job) -> Chain | None:
    """The job's model as a chain; None if it is none, is computed otherwise, or is trained for another loss."""
    labelled = job.loss is cross_entropy and not job.fed.y.is_floating_point()
    if not labelled or "bf16" in job.speed or job.device.type != "cpu" or _has_any_global_hook():
        return None
    try:
        return Chain(list(_layers(job)), job.whole.size)
    except _NoChainError:
        return None


def has_blocks(module: nn.Module) -> bool:
    """Whether the model runs some of its layers as blocks, whatever the others are."""
    sequences = [list(part) for part in module.modules() if type(part) is Sequential and not hooked(part)]
    return any(fusable(layers[at : at + 3]) is not None for layers in sequences for at in range(len(layers)))


class _NoChainError(Exception):
    """Some layer is of another kind, or connected otherwise."""


def _layers(job: Job) -> Iterator[Layer]:
    """The layers of the model in order; `shape` is what those before have made of a sample."""
    layers, shape, starts = list(_in_order(job.module)), job.fed.shape, _Starts(job)
    while layers:
        if (conv := fusable(layers[:3])) is not None:
            whole = (1, *shape), tuple(conv.weight.shape), conv.weight.shape[:1] if conv.bias is not None else None
            padding = conv.padding if isinstance(conv.padding, str) else tuple(conv.padding)
            sizes = block_sizes(*whole, padding)
            if sizes is None:
                raise _NoChainError
            made = conv.out_channels, sizes[9] // 2, sizes[10] // 2
            yield Layer(*starts.of(conv), math.prod(shape), math.prod(made), tuple(sizes))
            shape, layers = made, layers[3:]
        elif type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
            shape, layers = (math.prod(shape),), layers[1:]
        elif type(layers[0]) is nn.Linear and shape == (layers[0].in_features,):
            shape = (layers[0].out_features,)
            yield Layer(*starts.of(layers[0]), layers[0].in_features, *shape)
            if len(layers) == 1 and starts.left:
                raise _NoChainError  # a sequence has parameters beside those of its layers
            if len(layers) == 1:
                return
            if type(layers[1]) is not nn.ReLU:
                raise _NoChainError
            layers = layers[2:]
        else:
            raise _NoChainError
    raise _NoChainError  # it does not end in a linear layer


def _in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of sequences, and of sequences within them."""
    if hooked(module):
        raise _NoChainError
    if type(module) in (nn.Sequential, Sequential):
        for child in module.children():
            yield from _in_order(child)
    else:
        yield module


class _Starts:
    """Where a layer's weight and bias begin in the flat parameters. A parameter that is frozen is not there, one that
    has a precision of its own is refused, and so is one that two layers share, the second time."""

    def __init__(self, job: Job) -> None:
        named = dict(job.module.named_parameters())
        self.left = {id(named[entry.name]): entry for entry in job.whole.parameters}

    def of(self, layer: nn.Conv2d | nn.Linear) -> tuple[int, int | None]:
        return self._start(layer.weight), None if layer.bias is None else self._start(layer.bias)

    def _start(self, parameter: Tensor) -> int:
        entry = self.left.pop(id(parameter), None)
        if entry is None or entry.dtype != torch.float32:
            raise _NoChainError
        return entry.start
