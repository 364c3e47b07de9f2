"""The local step in plain torch: the gradient of a batch, what the local rule adds to it, and the optimiser's step
along it. Every engine takes this step, or one from a kernel that is held to it.

An optimiser starts afresh every round. Its step is a function of tensors alone, so that engines can take it for one
client or for many lanes at once: numbers are tensors without dimensions or, of lanes, columns `[L, 1]`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from accord.core import draws
from accord.core.losses import PerSample


def gradient_of(
    forward: Callable[[Tensor], Tensor],
    loss: PerSample,
    parameters: Sequence[Tensor],
    x: Tensor,
    y: Tensor,
    dropout: int | None = None,
) -> tuple[Sequence[Tensor], Tensor]:
    """Gradient of a batch's mean loss, by parameter, and its value, with the model as it is. `dropout` is the key that
    its draws come from, if it drops out."""
    with nullcontext() if dropout is None else draws.Routed(dropout):
        output = forward(x)
    value = loss(output, y).mean()
    # a parameter that took no part has a gradient of 0
    return torch.autograd.grad(value, parameters, materialize_grads=True), value.detach()


class Optimiser(Protocol):
    """What engines ask of an optimiser."""

    @property
    def vectors(self) -> int:
        """How many vectors `[P]` it keeps during a round, all zero at its start."""
        ...

    @property
    def rest(self) -> Mapping[str, float]:
        """The values of its numbers with which a step changes nothing, for a lane that has nothing to do."""
        ...

    @property
    def momentum(self) -> float | None:
        """That of SGD; None if its steps are not SGD's."""
        ...

    @property
    def penalty(self) -> float:
        """Weight decay that is part of the gradient."""
        ...

    def constants(self, lr: float) -> dict[str, float]:
        """The numbers of all steps of a round. Optimisers of one class have the same names here."""
        ...

    def corrections(self, lr: float, steps: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers, `[S]` each, of the steps of these numbers, the first of which is 1."""
        ...

    @property
    def move_(self) -> Callable[..., None]:
        """`move_(along, w, *vectors, **numbers)` moves the weights, and the vectors that are kept, in place."""
        ...

    @property
    def fused(self) -> Callable[..., None] | None:
        """A CUDA kernel for the whole step of lanes, if there is one (see `accord.kernels.lane_step`)."""
        ...

    @property
    def compiled(self) -> Callable[..., None] | None:
        """The whole step of one client in the compiled library, if it is there (see `accord.kernels.chain`)."""
        ...


class Piece(NamedTuple):
    """What a step moves and goes by: of one client, vectors or a parameter's views of them; of lanes, `[L, P]`."""

    w: Tensor
    start: Tensor
    drift: Tensor | None = None
    gradients: Tensor | None = None  # sums what there is before the local rule adds to it
    kept: Sequence[Tensor] = ()  # by the optimiser


def step_(
    gradient: Sequence[Tensor],
    pieces: Sequence[Piece],
    move_: Callable[..., None],
    *,
    factor: Tensor | None = None,
    weight_decay: Tensor | None = None,
    mu: Tensor | None = None,
    **numbers: Tensor,
) -> None:
    """Moves every piece's `w` and what is kept for it along gradient + mu (w - start) + drift, by the optimiser's
    `move_` with its `numbers`. Numbers have no dimension or, of lanes, are columns; `factor` clips the gradient."""
    for part, (w, start, drift, gradients, kept) in zip(gradient, pieces, strict=True):
        along = part.to(w.dtype)
        if factor is not None:
            along = along * factor
        if weight_decay is not None:
            along = along + weight_decay * w
        if gradients is not None:
            gradients += along
        if mu is not None:
            along = along + mu * (w - start)
        if drift is not None:
            along = along + drift
        move_(along, w, *kept, **numbers)


def sgd_(along: Tensor, w: Tensor, velocity: Tensor, *, lr: Tensor, momentum: Tensor) -> None:
    """The step of SGD with momentum."""
    torch.addcmul(along, velocity, momentum, out=velocity)
    w.addcmul_(velocity, lr, value=-1)


def adam_(
    along: Tensor,
    w: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    new: Tensor,
    beta: Tensor,
    new_square: Tensor,
    size: Tensor,
    eps: Tensor,
    keep: Tensor,
) -> None:
    """The step of Adam: `new` and `new_square` are 1 - beta1 and 1 - beta2, `beta` is beta2; `size` and `eps` are the
    rate and eps with the corrections for means that began at zero. `keep` is what decay leaves of the weights."""
    mean.lerp_(along, new)
    square.mul_(beta).addcmul_(along, along * new_square)
    w.mul_(keep).addcdiv_(mean * size, square.sqrt().add_(eps), value=-1)


Gradient = Callable[[Tensor, Tensor, int | None], tuple[Sequence[Tensor], Tensor]]  # of a batch: see `gradient_of`
LocalStep = Callable[..., tuple[Tensor, Tensor | None]]  # of a step, its pieces and a batch: see `local_step`


def local_step(
    gradient: Gradient,
    clip: float | None,
    flatten: Callable[[Sequence[Tensor]], Tensor],
    step: Callable[..., None],
    pieces: Sequence[Piece],
    x: Tensor,
    y: Tensor,
    dropout: int | None,
    keeps: bool,
) -> tuple[Tensor, Tensor | None]:
    """One step of one client: the batch's loss and, if somebody `keeps` it, its gradient `[P]` as it is: what a step
    follows may be clipped, decayed and corrected."""
    parts, loss = gradient(x, y, dropout)
    kept = flatten(parts) if keeps else None
    step(parts, pieces, factor=None if clip is None else clipping(flatten(parts), clip))
    return loss, kept


class Steps:
    """The steps of one client: what they have in common in all rounds, and each one's numbers. `number` makes tensors
    of numbers."""

    def __init__(self, optimiser: Optimiser, number: Callable[..., Tensor], mu: float = 0.0) -> None:
        self._optimiser, self._number = optimiser, number
        self._added = {"weight_decay": self._optimiser.penalty, "mu": mu}
        self._always: dict[str, Any] = {name: number(value) for name, value in self._added.items() if value}
        # clients with as many samples take the same steps; a cache of this object's own, which goes with it
        self.of_round = lru_cache(16)(self._of_round)

    def begin(self, w: Tensor) -> list[Tensor]:
        """What the optimiser keeps of `w` when a round begins."""
        return [torch.zeros_like(w) for _ in range(self._optimiser.vectors)]

    def numbers(self, lr: float) -> dict[str, float]:
        """What all steps of a round go by, as plain numbers."""
        return {**self._added, **self._optimiser.constants(lr)}

    def _of_round(self, lr: float, count: int, first: int = 1) -> tuple[Callable[..., None], ...]:
        """`step_` for each of `count` steps of a round, at the round's rate, from the step number `first` on."""
        constants: dict[str, Any] = {name: self._number(value) for name, value in self._optimiser.constants(lr).items()}
        step = partial(step_, move_=self._optimiser.move_, **self._always, **constants)
        by_step = self._optimiser.corrections(lr, np.arange(first, first + count, dtype=np.float64))
        if not by_step:
            return (step,) * count
        columns = [self._number(values).unbind(0) for values in by_step.values()]
        return tuple(partial(step, **dict(zip(by_step, each, strict=True))) for each in zip(*columns, strict=True))


def clipping(gradient: Tensor, clip: Tensor | float) -> Tensor:
    """What brings a gradient's norm down to `clip`: a factor for `[P]`, a column of them for `[L, P]`."""
    return (clip / (gradient.norm(dim=-1, keepdim=gradient.ndim > 1) + 1e-12)).clamp(max=1.0)
