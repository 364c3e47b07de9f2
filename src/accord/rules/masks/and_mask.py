"""The AND-mask (Parascandolo et al., 2021, "Learning explanations that are hard to vary", ICLR)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from accord.core.record import Record, State
from accord.core.round import Round
from accord.rules.masks.votes import Memory, OfVotes, Scope, Tau, rescaled


@dataclass(frozen=True)
class and_mask(OfVotes):
    """The AND-mask: a coordinate passes when the net vote on its sign reaches tau, and is dropped where it does not
    (Parascandolo et al., 2021). tau may be a fraction such as "5/7". `rescale` divides each parameter tensor by the
    share of it that was kept. The rest as for `gma`."""

    tau: Tau = 0.4
    rescale: Annotated[bool, "divide each parameter tensor by the share of it that is kept"] = False
    scope: Scope = "coordinate"
    memory: Memory = 0.0

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        state = self._remembered(total, state)
        mask = self.agreement(total, state, round)[1].to(total["votes"].dtype)
        return rescaled(mask, round.layout) if self.rescale else mask, state
