"""A client's optimiser: what it makes of the gradient that its local rule gives it. It starts afresh every round.

An optimiser is a small dataclass. Its step is a function of tensors alone, so that engines can take it for one client
or for many lanes at once: numbers are tensors without dimensions or, of lanes, columns `[L, 1]`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.kernels import lane_step


class Optimiser(Protocol):
    """What engines ask of an optimiser."""

    @property
    def vectors(self) -> int:
        """How many vectors `[P]` it keeps during a round, all zero at its start."""
        ...

    @property
    def rest(self) -> Mapping[str, float]:
        """Which of its numbers must be what for a step that changes nothing: what a lane takes that has nothing to
        do."""
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
        """A Triton kernel for the whole step of lanes, if there is one: see `accord.kernels.lane_step`."""
        ...


def sgd_(along: Tensor, w: Tensor, velocity: Tensor, *, lr: Tensor, momentum: Tensor) -> None:
    """The step of SGD with momentum."""
    torch.addcmul(along, velocity, momentum, out=velocity)
    w.addcmul_(velocity, lr, value=-1)


@dataclass(frozen=True)
class SGD:
    """SGD with momentum; weight decay is part of the gradient, as in `torch.optim.SGD`."""

    momentum: float = 0.9
    weight_decay: float = 0.0

    vectors: ClassVar[int] = 1
    rest: ClassVar[Mapping[str, float]] = {"lr": 0.0, "momentum": 1.0}
    move_: ClassVar[Callable[..., None]] = staticmethod(sgd_)
    fused: ClassVar[Callable[..., None] | None] = staticmethod(lane_step.sgd_)

    def __post_init__(self) -> None:
        _check_numbers(momentum=self.momentum)
        if not 0.0 <= self.momentum < 1.0:
            raise AccordError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        _check_decay(self.weight_decay)

    @property
    def penalty(self) -> float:
        return self.weight_decay

    def constants(self, lr: float) -> dict[str, float]:
        return {"lr": lr, "momentum": self.momentum}

    def corrections(self, lr: float, steps: np.ndarray) -> dict[str, np.ndarray]:
        return {}


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


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), with the corrections of `torch.optim.Adam`. Weight decay is part of the gradient or,
    where it is `decoupled`, shrinks the weights by themselves (AdamW: Loshchilov and Hutter, 2019)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = field(default=False, kw_only=True)

    vectors: ClassVar[int] = 2
    momentum: ClassVar[float | None] = None
    rest: ClassVar[Mapping[str, float]] = {"new": 0.0, "beta": 1.0, "new_square": 0.0, "size": 0.0, "keep": 1.0}
    move_: ClassVar[Callable[..., None]] = staticmethod(adam_)
    fused: ClassVar[Callable[..., None] | None] = staticmethod(lane_step.adam_)

    def __post_init__(self) -> None:
        pair = list(self.betas) if isinstance(self.betas, list | tuple) else [self.betas]
        if len(pair) != 2 or not all(isinstance(beta, int | float) and 0.0 <= beta < 1.0 for beta in pair):
            raise AccordError(f"betas must be two numbers of at least 0 and below 1, got {self.betas}")
        object.__setattr__(self, "betas", tuple(pair))
        _check_numbers(eps=self.eps)
        if not 0.0 < self.eps < math.inf:
            raise AccordError(f"eps must be above 0, got {self.eps}: it keeps steps along small gradients finite")
        _check_decay(self.weight_decay)

    @property
    def penalty(self) -> float:
        return 0.0 if self.decoupled else self.weight_decay

    def constants(self, lr: float) -> dict[str, float]:
        beta1, beta2 = self.betas
        keep = 1.0 - lr * self.weight_decay if self.decoupled else 1.0
        return {"new": 1.0 - beta1, "beta": beta2, "new_square": 1.0 - beta2, "keep": keep}

    def corrections(self, lr: float, steps: np.ndarray) -> dict[str, np.ndarray]:
        """The factors of torch's `m / c1 / (sqrt(v / c2) + eps)`, moved to `size` and `eps`: two passes fewer."""
        beta1, beta2 = self.betas
        root = np.sqrt(1.0 - beta2**steps)
        return {"size": lr * root / (1.0 - beta1**steps), "eps": self.eps * root}


def adamw(betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01) -> Adam:
    """Adam whose weight decay shrinks the weights by themselves, as `torch.optim.AdamW`."""
    return Adam(betas, eps, weight_decay, decoupled=True)


def adam(betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0) -> Adam:
    """Adam as `torch.optim.Adam`."""
    return Adam(betas, eps, weight_decay)


def _check_numbers(**numbers: object) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise AccordError(f"{name} must be a number, got {value!r}")


def _check_decay(weight_decay: float) -> None:
    _check_numbers(weight_decay=weight_decay)
    if not weight_decay >= 0.0:
        raise AccordError(f"weight_decay must be 0 or more, got {weight_decay}")


OPTIMISERS: dict[str, Callable[..., Optimiser]] = {"sgd": SGD, "adam": adam, "adamw": adamw}
