"""The plain step of FedAvg, FedProx and SCAFFOLD, and what all servers have in common: a rate, and a place for the
mask."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Server
from accord.core.record import State

Placement = Annotated[
    Literal["after", "before"], "the mask scales the step, after the server normalises, or the update before it"
]
Rate = Annotated[float, "the server's learning rate"]


def check(lr: float, placement: str, **shares: float) -> None:
    """Refuses a rate, a placement or shares that no server can take."""
    if not isinstance(lr, int | float) or not 0.0 <= lr < math.inf:
        raise AccordError(f"lr must be a number of 0 or more for the server, got {lr!r}")
    if placement not in ("after", "before"):
        raise AccordError(
            "placement must be 'after' (the mask scales the step) or 'before' (it scales the update), got"
            f" {placement!r}"
        )
    for name, value in shares.items():
        if not 0.0 <= value < 1.0:
            raise AccordError(f"{name} must be at least 0 and below 1, got {value}")


@dataclass(frozen=True)
class step(Server):
    """The update as it is: FedAvg, FedProx, SCAFFOLD."""

    lr: Rate = 1.0
    placement: Placement = "after"

    def __post_init__(self) -> None:
        check(self.lr, self.placement)

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        return state, update
