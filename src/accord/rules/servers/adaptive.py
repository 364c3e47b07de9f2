"""Adaptive steps on the server: FedAdagrad, FedAdam and FedYogi, three choices of v in one algorithm (Reddi et al.,
2021, "Adaptive federated optimization", ICLR, algorithm 2)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Server
from accord.core.record import State
from accord.rules.servers.step import Placement, Rate, check

Eps = Annotated[float, "bounds the step where the update vanishes"]
EpsInside = Annotated[bool, "eps under the root, z / sqrt(v + eps), as the papers print it"]


def _check_eps(eps: float) -> None:
    if not eps > 0.0:
        raise AccordError(f"eps must be above 0, got {eps}: it bounds the step where the update vanishes")


def _start(vector: Tensor, eps: float, inside: bool) -> Tensor:
    """The running square before the first round."""
    # Reddi et al. start v at eps^2 or above. With eps under the root the papers' own form needs no such start.
    return torch.zeros_like(vector) if inside else torch.full_like(vector, eps**2)


def _normalised(z: Tensor, v: Tensor, eps: float, inside: bool) -> Tensor:
    """z over the root of v, kept finite by eps: beside the root, or under it."""
    return z / (v + eps).sqrt() if inside else z / (v.sqrt() + eps)


@dataclass(frozen=True)
class adagrad(Server):
    """FedAdagrad: v = v + update^2, along update / (sqrt(v) + eps)."""

    lr: Rate = 0.02
    eps: Eps = 1e-3
    eps_inside: EpsInside = False
    placement: Placement = "after"

    def __post_init__(self) -> None:
        check(self.lr, self.placement)
        _check_eps(self.eps)

    def init(self, vector: Tensor) -> State:
        return {"v": _start(vector, self.eps, self.eps_inside)}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        v = state["v"] + update.square()
        return {"v": v}, _normalised(update, v, self.eps, self.eps_inside)


@dataclass(frozen=True)
class adam(Server):
    """FedAdam, without bias correction: z and v are running means of the update and its square, along z / (sqrt(v) +
    eps).

    `bounded` moves v as Yogi does, by no more than a share of the square: v = v - (1 - beta2) update^2 sign(v -
    update^2).
    """

    lr: Rate = 0.02
    beta1: Annotated[float, "decay of the first moment"] = 0.9
    beta2: Annotated[float, "decay of the second moment"] = 0.99
    eps: Eps = 1e-3
    eps_inside: EpsInside = False
    placement: Placement = "after"
    bounded: Annotated[bool, "the second moment changes by a bounded amount, as in Yogi"] = False

    def __post_init__(self) -> None:
        check(self.lr, self.placement, beta1=self.beta1, beta2=self.beta2)
        _check_eps(self.eps)

    def init(self, vector: Tensor) -> State:
        return {"z": torch.zeros_like(vector), "v": _start(vector, self.eps, self.eps_inside)}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        z, v, square = state["z"], state["v"], update.square()
        z = self.beta1 * z + (1 - self.beta1) * update
        if self.bounded:
            v = v - (1 - self.beta2) * square * torch.sign(v - square)
        else:
            v = self.beta2 * v + (1 - self.beta2) * square
        return {"z": z, "v": v}, _normalised(z, v, self.eps, self.eps_inside)


def yogi(
    lr: float = 0.02,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-3,
    eps_inside: bool = False,
    placement: Placement = "after",
) -> adam:
    """FedYogi: Adam whose v moves by a bounded amount."""
    return adam(lr, beta1, beta2, eps, eps_inside, placement, bounded=True)
