"""How clients' updates become one: the weighted mean, and by name what can take its place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.averages.corrective import corrective
from accord.rules.averages.geometric_mean import geometric_mean
from accord.rules.averages.krum import krum, median, trimmed_mean


class Average(Protocol):
    """How a cohort's updates become one. An average with `passes == 2` has a method `second` too: see `Algorithm.again`."""

    @property
    def needs(self) -> frozenset[str]:
        """What clients must report besides their delta."""

    def weights(self, reports: Reports) -> Tensor:
        """Each client's weight, `[..., K, 1]`; buffers are averaged with the same ones."""

    def init(self, layout: Layout, clients: int) -> State:
        """What it remembers before the first round."""

    def lift(self, reports: Reports, sent: State) -> Record:
        """What the clients add up."""

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        """The update `[..., P]` that the total comes to, and what is remembered now."""


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


# What any algorithm can take.
AVERAGES: dict[str, Callable[..., Average]] = {
    make.__name__: make for make in (mean, geometric_mean, median, trimmed_mean, krum, corrective)
}
