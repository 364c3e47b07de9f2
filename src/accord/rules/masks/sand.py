"""The SAND-mask, which looks at how far clients differ (Shahtalebi et al., 2021, "SAND-mask: an enhanced gradient
masking strategy")."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Mask
from accord.core.record import Record, State, exact_total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.masks.votes import Tau, as_tau, enough, net_share, rescaled, tau_at


@dataclass(frozen=True)
class sand(Mask):
    """The SAND-mask: max(0, tanh(k / variance * (A - tau))), A the net vote and the variance that of the clients'
    updates (Shahtalebi et al., 2021). tau may be a fraction such as "5/7". `rescale` divides each parameter tensor by
    its mask's mean, which the authors' code always does.

    The variance is unbiased, and is that of the updates as they are: `k` has the unit of an update squared, so it goes
    with the clients' learning rate. Sums are in float64, because a variance is a small difference of large ones.
    """

    tau: Tau = 0.4
    k: Annotated[float, "how steeply it rises above tau"] = 10.0
    rescale: Annotated[bool, "divide each parameter tensor by the share of it that is kept"] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", as_tau(self.tau))
        if isinstance(self.k, bool) or not isinstance(self.k, int | float) or not 0.0 < self.k < math.inf:
            raise AccordError(f"k must be a number above 0, got {self.k!r}: it is how steeply the mask rises above tau")

    def lift(self, reports: Reports, sent: State) -> Record:
        delta = reports.delta
        sums, squares = exact_total(delta), exact_total(delta, torch.square)
        return Record(count=reports.count, votes=reports.votes, sums=sums, squares=squares)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        count = total["count"].double()
        # Both sides are the floats nearest to their fractions, so a tie at tau is exactly 0.
        above = total["votes"].double().abs() / count - float(tau_at(self.tau, round.number))
        spread = (total["squares"] - total["sums"].square() / count).clamp_(min=0.0) / (count - 1).clamp(min=1.0)
        # Where clients do not differ, and one client cannot, the slope is infinite: the limit is 1 above tau and 0
        # elsewhere.
        rising = torch.where(spread > 0, torch.tanh(self.k * above / spread), above.sign())
        mask = rising.clamp_(min=0.0).to(total["votes"].dtype)
        return rescaled(mask, round.layout) if self.rescale else mask, state

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor]:
        return net_share(total), enough(total, tau_at(self.tau, round.number))
