"""SCAFFOLD's local rule (Karimireddy et al., 2020, "SCAFFOLD: stochastic controlled averaging for federated learning",
ICML)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.protocols import Local
from accord.core.record import Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round

_NEEDS = {"mean": frozenset({"mean_gradient"}), "I": frozenset({"start_gradient"}), "II": frozenset[str]()}


@dataclass(frozen=True)
class control_variates(Local):
    """SCAFFOLD: each step is corrected by c - c_n. c is the server's, c_n every client's, all zero at first.

    After its steps a client's c_n becomes, by `option`:
    "I", the gradient of its data at the round's start point; "II", c_n - c + (w_start - w_n) / (K lr), for plain SGD
    only; "mean", the mean of the gradients it met, which equals "II" without momentum and stays right with it.
    """

    option: Annotated[Literal["mean", "I", "II"], "how control variates are updated"] = "mean"

    def __post_init__(self) -> None:
        if self.option not in _NEEDS:
            raise AccordError(f"option must be 'mean', 'I' or 'II', got {self.option!r}")

    @property
    def needs(self) -> frozenset[str]:
        return _NEEDS[self.option]

    @property
    def remembers(self) -> tuple[str, ...]:
        return ("c",)

    def check(self, momentum: float | None) -> None:
        if momentum is None and self.option == "II":
            raise AccordError(
                "optimiser must be 'sgd' for SCAFFOLD's option II: it divides the way that a client went by lr and"
                " steps, which is a gradient after steps of SGD alone; options 'mean' and 'I' take any optimiser"
            )
        if momentum and self.option == "II":
            raise AccordError(
                f"momentum must be 0 for SCAFFOLD's option II, got {momentum}: it assumes plain SGD; option 'mean'"
                " does not"
            )

    def init(self, layout: Layout, clients: int) -> State:
        return {"c": torch.zeros(layout.size, dtype=layout.dtype)}

    def drift(self, sent: State, client_state: State) -> Tensor:
        return sent["c"] - client_state["c"]

    def keep(self, sent: State, client_state: State, reports: Reports, lr: float) -> State:
        if self.option == "mean":
            return {"c": reports.extra["mean_gradient"]}
        if self.option == "I":
            return {"c": reports.extra["start_gradient"]}
        if lr == 0.0:  # the end of a schedule: nothing moved, nothing was learnt
            return {"c": client_state["c"]}
        return {"c": client_state["c"] - sent["c"] - reports.delta / (reports.steps * lr)}

    def lift(self, reports: Reports, sent: State) -> Record:
        return Record(change=total(reports.after["c"] - reports.before["c"]))

    def lower(self, total: Record, state: State, round: Round) -> State:
        # over all clients, so that c stays the mean of the c_n
        return {"c": state["c"] + total["change"] / round.clients}
