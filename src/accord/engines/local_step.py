"""The local step in plain torch: the gradient of a batch, and SGD with momentum along it. Every engine takes this step,
or one from a kernel that is held to it."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from accord.core import draws
from accord.core.losses import PerSample
from accord.rules.local import Training


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


class Piece(NamedTuple):
    """What a step moves and goes by: of one client, vectors or a parameter's views of them; of lanes, `[L, P]`."""

    w: Tensor
    velocity: Tensor
    start: Tensor
    drift: Tensor | None = None
    gradients: Tensor | None = None  # sums what there is before the local rule adds to it


def step_(
    gradient: Sequence[Tensor],
    pieces: Sequence[Piece],
    *,
    lr: Tensor,
    momentum: Tensor,
    factor: Tensor | None = None,
    weight_decay: Tensor | None = None,
    mu: Tensor | None = None,
) -> None:
    """Moves every piece's `w` and `velocity` by SGD with momentum along gradient + mu (w - start) + drift. Numbers have
    no dimension or, of lanes, are columns; `factor` clips the gradient."""
    for part, (w, velocity, start, drift, gradients) in zip(gradient, pieces, strict=True):
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
        torch.addcmul(along, velocity, momentum, out=velocity)
        w.addcmul_(velocity, lr, value=-1)


def step_of(training: Training, number: Callable[[float], Tensor], mu: float = 0.0) -> Callable[..., None]:
    """One client's `step_` with what stays the same in all rounds; `number` makes tensors of numbers. The rate is the
    round's."""
    return partial(
        step_,
        momentum=number(training.momentum),
        weight_decay=number(training.weight_decay) if training.weight_decay else None,
        mu=number(mu) if mu else None,
    )


def clipping(gradient: Tensor, clip: Tensor | float) -> Tensor:
    """What brings a gradient's norm down to `clip`: a factor for `[P]`, a column of them for `[L, P]`."""
    return (clip / (gradient.norm(dim=-1, keepdim=gradient.ndim > 1) + 1e-12)).clamp(max=1.0)
