"""How far each coordinate of the step may be trusted: masks made of the clients' votes on its sign (docs/mathematics.md, "Masks").

A mask is a vector `[P]` that multiplies the server's step. Votes are whole numbers, and are compared as whole numbers.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from accord.errors import AccordError
from accord.layout import Layout
from accord.record import Record, State, total, votes
from accord.reports import Reports
from accord.rounds import Round


def threshold(tau: float, count: int) -> int:
    """The fewest net votes of `count` that reach a share `tau`, in exact arithmetic.

    `tau` is read as the decimal a person wrote: 0.4 of ten clients is four votes, though the float nearest to 0.4 lies above it.

    >>> threshold(0.4, 10), threshold(0.41, 10)
    (4, 5)
    """
    return math.ceil(Fraction(repr(float(tau))) * count)


def net_share(total: Record) -> Tensor:
    """A, the net agreement of every coordinate: |sum of signs| / clients, between 0 and 1."""
    return total.votes.abs().div_(total.count)


def enough(total: Record, tau: float) -> Tensor:
    """Where the net vote reaches tau. Counts may differ by lane, so the threshold has the shape of `count: [..., 1]`."""
    counts = total.count
    least = [threshold(tau, round(count)) for count in counts.reshape(-1).tolist()]
    return total.votes.abs() >= torch.tensor(least, dtype=total.votes.dtype, device=total.votes.device).view(counts.shape)


def _check_tau(tau: float) -> None:
    if not isinstance(tau, int | float) or not 0.0 <= tau <= 1.0:
        raise AccordError(f"tau must be between 0 and 1, got {tau!r}: it is the share of net agreement a coordinate needs to pass whole")


def _lift_votes(reports: Reports) -> Record:
    return Record(votes=votes(reports.delta), count=total(reports.one))


@dataclass(frozen=True)
class gma:
    """Gradient masked averaging: a coordinate passes whole when the clients' net vote on its sign reaches tau, and is scaled by
    the vote where it does not (Tenison et al., TMLR 2023, eq. 3)."""

    tau: float = 0.4
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        _check_tau(self.tau)

    def init(self, layout: Layout, clients: int) -> State:
        return {}

    def lift(self, reports: Reports, sent: State) -> Record:
        return _lift_votes(reports)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        whole = enough(total, self.tau)
        return net_share(total).masked_fill_(whole, 1.0), state


@dataclass(frozen=True)
class and_mask:
    """The AND-mask: a coordinate passes when the net vote on its sign reaches tau, and is dropped where it does not
    (Parascandolo et al., 2021). `rescale` divides each parameter tensor by the share of it that was kept."""

    tau: float = 0.4
    rescale: bool = False
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        _check_tau(self.tau)

    def init(self, layout: Layout, clients: int) -> State:
        return {}

    def lift(self, reports: Reports, sent: State) -> Record:
        return _lift_votes(reports)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        mask = enough(total, self.tau).to(total.votes.dtype)
        if self.rescale:
            for _, part in round.layout.layers(mask):
                kept = part.sum(-1, keepdim=True, dtype=torch.float64)  # a count, exact on every device
                part.mul_(torch.where(kept > 0, part.shape[-1] / kept, kept))
        return mask, state


Mask = gma | and_mask
MASKS = {"gma": gma, "and": and_mask}


def masked(tau: float = 0.4, soft: bool = True) -> Mask:
    """Both masks under one name: the soft one (`gma`) or the hard one (`and_mask`)."""
    return gma(tau) if soft else and_mask(tau)
