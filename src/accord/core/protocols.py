"""What the parts of an algorithm must be able to do, so that others can stand in for accord's own."""

from typing import Protocol

from torch import Tensor

from accord.core.layout import Layout
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round


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
