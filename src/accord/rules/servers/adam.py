"""What the server does with the averaged update (docs/mathematics.md, "Server steps"; Reddi et al., 2021).

Each class turns an update `[P]` into a direction `[P]` and remembers moments. `take_step` places the mask: on the direction, which
is what the papers do (algorithm 2 of the TMLR paper), or on the update before it is normalised.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.record import State

Placement = Literal["after", "before"]


def _check(lr: float, placement: str, **shares: float) -> None:
    if not isinstance(lr, int | float) or not 0.0 <= lr < math.inf:
        raise AccordError(f"lr must be a number of 0 or more for the server, got {lr!r}")
    if placement not in ("after", "before"):
        raise AccordError(f"placement must be 'after' (the mask scales the step) or 'before' (it scales the update), got {placement!r}")
    for name, value in shares.items():
        if not 0.0 <= value < 1.0:
            raise AccordError(f"{name} must be at least 0 and below 1, got {value}")


@dataclass(frozen=True)
class step:
    """The update as it is: FedAvg, FedProx, SCAFFOLD."""

    lr: float = 1.0
    placement: Placement = "after"

    def __post_init__(self) -> None:
        _check(self.lr, self.placement)

    def init(self, vector: Tensor) -> State:
        return {}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        return state, update


@dataclass(frozen=True)
class momentum:
    """Heavy-ball momentum on the server (FedAvgM): z = beta z + update, along z."""

    lr: float = 1.0
    beta: float = 0.9
    placement: Placement = "after"

    def __post_init__(self) -> None:
        _check(self.lr, self.placement, beta=self.beta)

    def init(self, vector: Tensor) -> State:
        return {"z": torch.zeros_like(vector)}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        z = self.beta * state["z"] + update
        return {"z": z}, z


def _start(vector: Tensor, eps: float, inside: bool) -> Tensor:
    # Reddi et al. start v at eps^2 or above. With eps under the root the papers' own form needs no such start.
    return torch.zeros_like(vector) if inside else torch.full_like(vector, eps**2)


def _normalise(z: Tensor, v: Tensor, eps: float, inside: bool) -> Tensor:
    return z / (v + eps).sqrt() if inside else z / (v.sqrt() + eps)


def _check_eps(eps: float) -> None:
    if not eps > 0.0:
        raise AccordError(f"eps must be above 0, got {eps}: it bounds the step where the update vanishes")


@dataclass(frozen=True)
class adagrad:
    """FedAdagrad: v = v + update^2, along update / (sqrt(v) + eps)."""

    lr: float = 0.02
    eps: float = 1e-3
    eps_inside: bool = False  # z / sqrt(v + eps), as T and M print it
    placement: Placement = "after"

    def __post_init__(self) -> None:
        _check(self.lr, self.placement)
        _check_eps(self.eps)

    def init(self, vector: Tensor) -> State:
        return {"v": _start(vector, self.eps, self.eps_inside)}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        v = state["v"] + update.square()
        return {"v": v}, _normalise(update, v, self.eps, self.eps_inside)


@dataclass(frozen=True)
class adam:
    """FedAdam, without bias correction: z and v are running means of the update and its square, along z / (sqrt(v) + eps).

    `bounded` moves v as Yogi does, by no more than a share of the square: v = v - (1 - beta2) update^2 sign(v - update^2).
    """

    lr: float = 0.02
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-3
    eps_inside: bool = False
    placement: Placement = "after"
    bounded: bool = False

    def __post_init__(self) -> None:
        _check(self.lr, self.placement, beta1=self.beta1, beta2=self.beta2)
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
        return {"z": z, "v": v}, _normalise(z, v, self.eps, self.eps_inside)


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


Server = step | momentum | adagrad | adam


def take_step(server: Server, state: State, update: Tensor, mask: Tensor | None) -> tuple[State, Tensor]:
    """The server's next state and what it adds to the model: lr times the direction, with the mask where `placement` puts it."""
    if mask is not None and server.placement == "before":
        update = mask * update
    state, direction = server.direction(state, update)
    if mask is not None and server.placement == "after":
        direction = mask * direction
    return state, server.lr * direction
