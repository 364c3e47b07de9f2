"""The local step in plain torch: the gradient of a batch, and SGD with momentum along it. Every engine takes this step,
or one from a kernel that is held to it."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

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


def step_(
    gradient: Tensor,
    w: Tensor,
    velocity: Tensor,
    start: Tensor,
    drift: Tensor | None = None,
    gradients: Tensor | None = None,
    *,
    lr: Tensor,
    momentum: Tensor,
    factor: Tensor | None = None,
    weight_decay: Tensor | None = None,
    mu: Tensor | None = None,
) -> None:
    """Moves `w` and `velocity` by SGD with momentum along gradient + mu (w - start) + drift.

    Of one client they are vectors, or a parameter's pieces of them, and the numbers have no dimension; of lanes they
    are `[L, P]`, the numbers columns. `factor` clips the gradient; `gradients` sums what there is before the local rule
    adds to it.
    """
    gradient = gradient.to(w.dtype)
    if factor is not None:
        gradient = gradient * factor
    if weight_decay is not None:
        gradient = gradient + weight_decay * w
    if gradients is not None:
        gradients += gradient
    if mu is not None:
        gradient = gradient + mu * (w - start)
    if drift is not None:
        gradient = gradient + drift
    torch.addcmul(gradient, velocity, momentum, out=velocity)
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
