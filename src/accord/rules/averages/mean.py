"""The mean of the clients' updates (McMahan et al., 2017, "Communication-efficient learning of deep networks from decentralized data")."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round


@dataclass(frozen=True)
class mean:
    """The mean of the clients' updates, weighted by their training samples (McMahan et al.) or uniformly."""

    weighting: Literal["samples", "uniform"] = "samples"
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.weighting not in ("samples", "uniform"):
            raise AccordError(f"weighting must be 'samples' or 'uniform', got {self.weighting!r}")

    def weights(self, reports: Reports) -> Tensor:
        """Each client's weight, `[..., K, 1]`; buffers are averaged with the same ones."""
        return reports.weight if self.weighting == "samples" else reports.one

    def init(self, layout: Layout, clients: int) -> State:
        return {}

    def lift(self, reports: Reports, sent: State) -> Record:
        weights = self.weights(reports)
        return Record(delta=total(reports.delta, weights), weight=total(weights))

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        return total.delta / total.weight, state
