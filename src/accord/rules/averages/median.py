"""The median of every coordinate (Yin et al., 2018, "Byzantine-robust distributed learning: towards optimal statistical
rates")."""

from dataclasses import dataclass

from torch import Tensor

from accord.core.record import Record, State
from accord.core.round import Round
from accord.rules.averages.rows import OfEveryUpdate, by_coordinate


@dataclass(frozen=True)
class median(OfEveryUpdate):
    """The median of every coordinate; of an even number of clients, the mean of the two in the middle (Yin et al.,
    2018)."""

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        last = total["deltas"].shape[-2] - 1
        return by_coordinate(total["deltas"], lambda x: (x[..., last // 2, :] + x[..., -(-last // 2), :]) / 2), state
