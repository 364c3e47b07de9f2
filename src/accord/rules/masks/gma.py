"""Gradient masked averaging (Tenison et al., 2023, "Gradient masked averaging for federated learning", TMLR, eq. 3)."""

from dataclasses import dataclass

from torch import Tensor

from accord.core.layout import Layout
from accord.core.protocols import Mask
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.masks.votes import Ballot, Memory, Scope, Tau, check_tau, tau_at


@dataclass(frozen=True)
class gma(Mask):
    """Gradient masked averaging: a coordinate passes whole when the clients' net vote on its sign reaches tau, and is
    scaled by the vote where it does not (Tenison et al., TMLR 2023, eq. 3). tau may be a schedule; for `scope` and
    `memory` see `Ballot`."""

    tau: Tau = 0.4
    scope: Scope = "coordinate"
    memory: Memory = 0.0

    def __post_init__(self) -> None:
        check_tau(self.tau)
        Ballot(self.scope, self.memory)  # which says what is wrong with them

    def init(self, layout: Layout, clients: int) -> State:
        return Ballot(self.scope, self.memory).init(layout)

    def lift(self, reports: Reports, sent: State) -> Record:
        return Record(count=reports.count, votes=reports.votes)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        ballot = Ballot(self.scope, self.memory)
        state = ballot.remember(total, state)
        share, whole = ballot.judge(total, state, tau_at(self.tau, round.number), round.layout)
        return share.masked_fill_(whole, 1.0).to(total["votes"].dtype), state

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor]:
        return Ballot(self.scope, self.memory).judge(total, state, tau_at(self.tau, round.number), round.layout)
