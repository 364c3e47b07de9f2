"""Ditto's local rules (Li, Hu, Beirami and Smith, 2021, "Ditto: fair and robust federated learning through
personalization", ICML)."""

import math
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Local
from accord.core.record import State
from accord.rules.local.own_model import own_model


@dataclass(frozen=True)
class anchored(own_model):
    """A client's own model, pulled towards the model `w` that the server sent: lam (v - w) in every step.

    With v0 where the round starts that is lam (v - v0) + lam (v0 - w): a pull back to the start, and a drift.
    """

    lam: float = 0.1

    @property
    def mu(self) -> float:
        return self.lam

    def drift(self, sent: State, client_state: State) -> Tensor:
        return self.lam * (client_state["w"] - sent["w"])


@dataclass(frozen=True)
class ditto(Local):
    """Clients train the common model as in FedAvg and report that; beside it each trains a model of its own, which it
    keeps and uses on its own data."""

    lam: Annotated[float, "how strongly a client's own model is pulled towards the common one"] = 0.1

    def __post_init__(self) -> None:
        if not (self.lam >= 0.0 and math.isfinite(self.lam)):
            raise AccordError(f"lam must be 0 or more, got {self.lam}: it pulls a client's own model to the common one")

    @property
    def remembers(self) -> tuple[str, ...]:
        return self.beside.remembers

    @property
    def unchecked(self) -> frozenset[str]:
        return self.beside.unchecked

    @property
    def beside(self) -> anchored:
        return anchored(self.lam)

    def fresh(self, vector: Tensor, buffers: Tensor) -> State:
        return self.beside.fresh(vector, buffers)
