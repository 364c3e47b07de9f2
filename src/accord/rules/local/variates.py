"""SCAFFOLD's control variates (Karimireddy et al., 2020, "SCAFFOLD: stochastic controlled averaging for federated learning", ICML)."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.record import Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round


@dataclass(frozen=True)
class Variates:
    """SCAFFOLD's control variates: c on the server, c_n on every client, all zero at first (Karimireddy et al., 2020).

    After its steps a client's c_n becomes, by `option`:
    "I", the gradient of its data at the round's start point; "II", c_n - c + (w_start - w_n) / (K lr), for plain SGD only; "mean", the mean
    of the gradients it met, which equals "II" without momentum and stays right with it.
    """

    option: Literal["mean", "I", "II"] = "mean"

    def __post_init__(self) -> None:
        if self.option not in ("mean", "I", "II"):
            raise AccordError(f"option must be 'mean', 'I' or 'II', got {self.option!r}")

    @property
    def needs(self) -> frozenset[str]:
        return {"mean": frozenset({"mean_gradient"}), "I": frozenset({"start_gradient"}), "II": frozenset[str]()}[self.option]

    def drift(self, sent: State, own: State) -> Tensor:
        return sent["c"] - own["c"]

    def keep(self, sent: State, own: State, reports: Reports, lr: float) -> State:
        """The clients' next c_n, `[..., K, P]`."""
        if self.option == "mean":
            return {"c": reports.extra["mean_gradient"]}
        if self.option == "I":
            return {"c": reports.extra["start_gradient"]}
        if lr == 0.0:  # the end of a schedule: nothing moved, nothing was learnt
            return {"c": own["c"]}
        return {"c": own["c"] - sent["c"] - reports.delta / (reports.steps * lr)}

    def lift(self, reports: Reports) -> Record:
        return Record(change=total(reports.after["c"] - reports.before["c"]))

    def lower(self, total: Record, state: State, round: Round) -> State:
        return {"c": state["c"] + total.change / round.clients}  # over all clients, so that c stays the mean of the c_n
