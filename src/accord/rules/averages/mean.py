"""The mean of the clients' updates (McMahan et al., 2017, "Communication-efficient learning of deep networks from
decentralized data")."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Average
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round

Weighting = Annotated[Literal["samples", "uniform"], "clients count by their samples, or uniformly"]


@dataclass(frozen=True)
class mean(Average):
    """The mean of the clients' updates, weighted by their training samples (McMahan et al.) or uniformly."""

    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        if self.weighting not in ("samples", "uniform"):
            raise AccordError(f"weighting must be 'samples' or 'uniform', got {self.weighting!r}")

    @property
    def label(self) -> str:
        return ""  # what averages do unless something else is said

    def weights(self, reports: Reports) -> Tensor:
        return reports.weight if self.weighting == "samples" else reports.one

    def lift(self, reports: Reports, sent: State) -> Record:
        return Record(delta=reports.total, weight=reports.total_weight)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        return total["delta"] / total["weight"], state
