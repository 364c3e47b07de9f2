"""Gradient masked averaging (Tenison et al., 2023, "Gradient masked averaging for federated learning", TMLR, eq. 3)."""

from dataclasses import dataclass

from torch import Tensor

from accord.core.record import Record, State
from accord.core.round import Round
from accord.rules.masks.votes import Memory, OfVotes, Scope, Tau


@dataclass(frozen=True)
class gma(OfVotes):
    """Gradient masked averaging: a coordinate passes whole when the clients' net vote on its sign reaches tau, and is
    scaled by the vote where it does not (Tenison et al., TMLR 2023, eq. 3). tau is a number, a fraction such as "5/7"
    or a schedule; for `scope` and `memory` see `OfVotes`."""

    tau: Tau = 0.4
    scope: Scope = "coordinate"
    memory: Memory = 0.0

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        state = self._remembered(total, state)
        share, whole = self.agreement(total, state, round)
        return share.masked_fill_(whole, 1.0).to(total["votes"].dtype), state
