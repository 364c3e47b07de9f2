"""Adagrad on the server: FedAdagrad (Reddi et al., 2021, "Adaptive federated optimization", ICLR, algorithm 2)."""

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


def start(vector: Tensor, eps: float, inside: bool) -> Tensor:
    """The running square before the first round."""
    # Reddi et al. start v at eps^2 or above. With eps under the root the papers' own form needs no such start.
    return torch.zeros_like(vector) if inside else torch.full_like(vector, eps**2)


def normalise(z: Tensor, v: Tensor, eps: float, inside: bool) -> Tensor:
    """z over the root of v, kept finite by eps: beside the root, or under it."""
    return z / (v + eps).sqrt() if inside else z / (v.sqrt() + eps)


def check_eps(eps: float) -> None:
    """Refuses an eps that bounds nothing."""
    if not eps > 0.0:
        raise AccordError(f"eps must be above 0, got {eps}: it bounds the step where the update vanishes")


@dataclass(frozen=True)
class adagrad(Server):
    """FedAdagrad: v = v + update^2, along update / (sqrt(v) + eps)."""

    lr: Rate = 0.02
    eps: Eps = 1e-3
    eps_inside: EpsInside = False
    placement: Placement = "after"

    def __post_init__(self) -> None:
        check(self.lr, self.placement)
        check_eps(self.eps)

    def init(self, vector: Tensor) -> State:
        return {"v": start(vector, self.eps, self.eps_inside)}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        v = state["v"] + update.square()
        return {"v": v}, normalise(update, v, self.eps, self.eps_inside)
