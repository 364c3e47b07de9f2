"""A local rule: data, not code.

Every local step follows

    gradient + mu (w - w_start) + drift

with `mu` and `drift` fixed for the round. That is SGD (both zero), FedProx (mu) and SCAFFOLD (drift = c - c_n), and it lets engines that
batch clients, replay a captured step or mix algorithms share one step.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.local.split import Split
from accord.rules.local.variates import Variates


@dataclass(frozen=True)
class Local:
    """A local rule. Made by `sgd`, `prox` and `control_variates`, or from its fields."""

    mu: float = 0.0
    variates: Variates | None = None
    full_batch: bool = False  # one step on all of a client's data: FedSGD
    alone: bool = False  # each client goes on from its own last model: no federation at all
    pooled: bool = False  # clients' data in one place: no federation either
    split: Split | None = None  # clients hold half of the network, and send representations: CausalFed

    def __post_init__(self) -> None:
        if not (self.mu >= 0.0 and math.isfinite(self.mu)):
            raise AccordError(f"mu must be 0 or more, got {self.mu}: it pulls a client back to where the round began")

    @property
    def needs(self) -> frozenset[str]:
        """What the engine must report besides the delta."""
        return self.variates.needs if self.variates else frozenset()

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of the vectors that a client keeps between rounds: its control variate `[P]`, or its own model `[P]` and buffers `[B]`."""
        return ("c",) if self.variates else ("w", "b") if self.alone else ()

    def init(self, layout: Layout, clients: int) -> State:
        return {"c": torch.zeros(layout.size, dtype=layout.dtype)} if self.variates else {}

    def fresh(self, vector: Tensor, buffers: Tensor) -> State:
        """What a client that never took part remembers, given the model that the run began with."""
        if self.alone:
            return {"w": vector, "b": buffers}
        return {name: torch.zeros_like(vector) for name in self.remembers}

    def start(self, vector: Tensor, buffers: Tensor, own: State) -> tuple[Tensor, Tensor]:
        """Where a client begins: at the server's model and buffers, or at its own."""
        return (own["w"], own["b"]) if self.alone else (vector, buffers)

    def drift(self, sent: State, own: State) -> Tensor | None:
        return self.variates.drift(sent, own) if self.variates else None

    def keep(self, sent: State, own: State, reports: Reports, lr: float) -> State:
        """What the clients will remember if their reports are accepted."""
        if self.variates:
            return self.variates.keep(sent, own, reports, lr)
        return {"w": own["w"] + reports.delta, "b": own["b"] + reports.buffers} if self.alone else {}

    def lift(self, reports: Reports, sent: State) -> Record:
        return self.variates.lift(reports) if self.variates else Record()

    def lower(self, total: Record, state: State, round: Round) -> State:
        return self.variates.lower(total, state, round) if self.variates else state
