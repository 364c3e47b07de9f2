"""Momentum on the server: FedAvgM (Hsu et al., 2019, "Measuring the effects of non-identical data distribution")."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from accord.core.protocols import Server
from accord.core.record import State
from accord.rules.servers.step import Placement, Rate, check


@dataclass(frozen=True)
class momentum(Server):
    """Heavy-ball momentum on the server (FedAvgM): z = beta z + update, along z."""

    lr: Rate = 1.0
    beta: Annotated[float, "the server's momentum"] = 0.9
    placement: Placement = "after"

    def __post_init__(self) -> None:
        check(self.lr, self.placement, beta=self.beta)

    def init(self, vector: Tensor) -> State:
        return {"z": torch.zeros_like(vector)}

    def direction(self, state: State, update: Tensor) -> tuple[State, Tensor]:
        z = self.beta * state["z"] + update
        return {"z": z}, z
