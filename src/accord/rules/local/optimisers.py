"""Optimisers of clients: their settings, and the numbers that their steps go by. `accord.rules.local.step` has the
steps."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from accord.core.errors import AccordError
from accord.kernels import chain, lane_step
from accord.rules.local.step import Optimiser, adam_, sgd_


@dataclass(frozen=True)
class SGD:
    """SGD with momentum; weight decay is part of the gradient, as in `torch.optim.SGD`."""

    momentum: float = 0.9
    weight_decay: float = 0.0

    vectors: ClassVar[int] = 1
    rest: ClassVar[Mapping[str, float]] = {"lr": 0.0, "momentum": 1.0}
    move_: ClassVar[Callable[..., None]] = staticmethod(sgd_)
    fused: ClassVar[Callable[..., None] | None] = staticmethod(lane_step.sgd_)
    compiled: ClassVar[Callable[..., None] | None] = staticmethod(chain.sgd_)

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
    compiled: ClassVar[Callable[..., None] | None] = None

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
