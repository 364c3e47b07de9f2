"""The AND-mask (Parascandolo et al., 2021, "Learning explanations that are hard to vary", ICLR)."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from accord.core.layout import Layout
from accord.core.protocols import Mask
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.masks.votes import Ballot, Memory, Scope, Tau, check_tau, rescaled, tau_at


@dataclass(frozen=True)
class and_mask(Mask):
    """The AND-mask: a coordinate passes when the net vote on its sign reaches tau, and is dropped where it does not
    (Parascandolo et al., 2021). `rescale` divides each parameter tensor by the share of it that was kept. The rest as
    for `gma`."""

    tau: Tau = 0.4
    rescale: Annotated[bool, "divide each parameter tensor by the share of it that is kept"] = False
    scope: Scope = "coordinate"
    memory: Memory = 0.0

    def __post_init__(self) -> None:
        check_tau(self.tau)
        Ballot(self.scope, self.memory)

    def init(self, layout: Layout, clients: int) -> State:
        return Ballot(self.scope, self.memory).init(layout)

    def lift(self, reports: Reports, sent: State) -> Record:
        return Record(count=reports.count, votes=reports.votes)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        state = Ballot(self.scope, self.memory).remember(total, state)
        mask = self.agreement(total, state, round)[1].to(total["votes"].dtype)
        return rescaled(mask, round.layout) if self.rescale else mask, state

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor]:
        return Ballot(self.scope, self.memory).judge(total, state, tau_at(self.tau, round.number), round.layout)
