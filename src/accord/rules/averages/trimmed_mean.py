"""The trimmed mean of every coordinate (Yin et al., 2018, "Byzantine-robust distributed learning: towards optimal
statistical rates")."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.record import Record, State
from accord.core.round import Round
from accord.rules.averages.rows import OfEveryUpdate, by_coordinate


@dataclass(frozen=True)
class trimmed_mean(OfEveryUpdate):
    """The mean of every coordinate without its largest and its smallest values, a `share` of the clients at either end,
    rounded down (Yin et al., 2018). It bears that share of attackers."""

    share: Annotated[float, "share of the clients left out at either end of a coordinate's values"] = 0.2

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0.0 <= self.share < 0.5:
            raise AccordError(
                f"share must be at least 0 and below 0.5, got {self.share!r}: it is left out at either end"
            )

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        clients = total["deltas"].shape[-2]
        # 0.29 of 100 is 29, though 0.29 * 100 is a little less
        cut = math.floor(Fraction(repr(float(self.share))) * clients)
        return by_coordinate(total["deltas"], lambda x: x[..., cut : clients - cut, :].mean(-2)), state
