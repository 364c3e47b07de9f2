"""Every client trains on from its own last model: no federation at all, the baseline `local_only`."""

from dataclasses import dataclass

from torch import Tensor

from accord.core.protocols import Local
from accord.core.record import State
from accord.core.reports import Reports


@dataclass(frozen=True)
class own_model(Local):
    """A client keeps its model `w: [P]` and buffers `b: [B]`, and starts where it ended."""

    @property
    def remembers(self) -> tuple[str, ...]:
        return "w", "b"

    @property
    def unchecked(self) -> frozenset[str]:
        return frozenset({"b"})

    @property
    def reports_updates(self) -> bool:
        return False

    @property
    def own_models(self) -> bool:
        return True

    def fresh(self, vector: Tensor, buffers: Tensor) -> State:
        return {"w": vector, "b": buffers}

    def start(self, vector: Tensor, buffers: Tensor, client_state: State) -> tuple[Tensor, Tensor]:
        return client_state["w"], client_state["b"]

    def keep(self, sent: State, client_state: State, reports: Reports, lr: float) -> State:
        return {"w": client_state["w"] + reports.delta, "b": client_state["b"] + reports.buffers}
