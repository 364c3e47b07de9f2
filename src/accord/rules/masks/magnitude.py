"""Magnitude agreement: `gma` with the clients' weighted updates in the place of their signs. It is accord's own
(docs/explanation/masks.md)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from accord.core.protocols import Mask
from accord.core.record import Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.masks.votes import Tau, as_tau, tau_at


@dataclass(frozen=True)
class magnitude(Mask):
    """Magnitude agreement: |sum of w delta| / sum of w |delta| in the place of `gma`'s net vote, with the weights of
    the average.

    A client that hardly moves a coordinate then hardly has a say in it. It is 1 where all pull one way and 0 where they
    cancel out; a coordinate that nobody moves has no agreement. tau may be a fraction such as "5/7".
    """

    tau: Tau = 0.4

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", as_tau(self.tau))

    def lift(self, reports: Reports, sent: State) -> Record:
        # Added up in one order, so that where all signs agree both sums have the same bits and their ratio is 1.
        return Record(net=reports.total, gross=total(reports.delta.abs(), reports.weight, "update"))

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        share, whole = self.agreement(total, state, round)
        return share.masked_fill_(whole, 1.0), state

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor]:
        gross = total["gross"]
        share = torch.where(gross > 0, total["net"].abs() / gross, 0.0)
        return share, share >= float(tau_at(self.tau, round.number))
