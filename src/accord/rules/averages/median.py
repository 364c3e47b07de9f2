"""The median of every coordinate (Yin et al., 2018, "Byzantine-robust distributed learning: towards optimal statistical
rates")."""

from dataclasses import dataclass

from torch import Tensor

from accord.core.protocols import Average
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.averages.rows import by_coordinate, lift_all


@dataclass(frozen=True)
class median(Average):
    """The median of every coordinate; of an even number of clients, the mean of the two in the middle (Yin et al.,
    2018)."""

    @property
    def sums_only(self) -> bool:
        return False

    def weights(self, reports: Reports) -> Tensor:
        return reports.one

    def lift(self, reports: Reports, sent: State) -> Record:
        return lift_all(reports)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        last = total["deltas"].shape[-2] - 1
        return by_coordinate(total["deltas"], lambda x: (x[..., last // 2, :] + x[..., -(-last // 2), :]) / 2), state
