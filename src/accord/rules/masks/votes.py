"""The clients' votes on each coordinate's sign, and the share of net agreement they come to
(docs/explanation/masks.md).

Votes are whole numbers, and are compared as whole numbers.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Annotated, Literal

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.protocols import Mask
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.core.schedule import Schedule

Share = float | Fraction | str  # text is a fraction: "5/7"
Tau = Annotated[Share | Schedule, "net agreement a coordinate needs to pass whole"]
Scope = Annotated[Literal["coordinate", "layer", "model"], "what is judged as one"]
Memory = Annotated[float, "decay of past votes: the factor on them in each round"]

_ROUNDING = 1e-9  # of a remembered vote, which is no whole number: so much below tau still is a tie


def as_share(name: str, share: Share, what: str) -> float | Fraction:
    """A setting between 0 and 1 as a part keeps it: text such as "5/7" becomes a fraction.

    Args:
        name: The setting, which begins the error message.
        share: The setting's value.
        what: What the setting is, which ends the error message.

    Raises:
        AccordError: Anything but a number or a fraction between 0 and 1.
    """
    number: object = share
    if isinstance(share, str) and "/" in share:
        with suppress(ValueError, ZeroDivisionError):
            number = Fraction(share)
    if isinstance(number, bool) or not isinstance(number, int | float | Fraction) or not 0 <= number <= 1:
        raise AccordError(
            f'{name} must be between 0 and 1, got {share!r}: it is {what}, a number or a fraction such as "5/7"'
        )
    return number


def as_tau(tau: Share | Schedule) -> float | Fraction | Schedule:
    """tau as a mask keeps it, which is between 0 and 1 in every round: see `as_share`."""
    what = "the share of net agreement a coordinate needs to pass whole"
    if not isinstance(tau, Schedule):
        return as_share("tau", tau, what)
    for round in (1, 10**9):  # a schedule only rises, or only falls
        as_share("tau", tau.at(round), what)
    return tau


def as_written(share: Share) -> Fraction:
    """A share as an exact number. A float is read as the decimal that a person wrote: 0.4 is 2/5, though the float
    nearest to 0.4 lies above it."""
    return Fraction(share) if isinstance(share, Fraction | str) else Fraction(repr(float(share)))


def threshold(tau: Share, count: int) -> int:
    """The fewest net votes of `count` that reach a share `tau`, in exact arithmetic: see `as_written`.

    >>> threshold(0.4, 10), threshold(0.41, 10), threshold("5/7", 7)
    (4, 5, 5)
    """
    return math.ceil(as_written(tau) * count)


def net_share(total: Record) -> Tensor:
    """A, the net agreement of every coordinate: |sum of signs| / clients, between 0 and 1."""
    return _share(total["votes"], total["count"])


def enough(total: Record, tau: Share) -> Tensor:
    """Where the net vote reaches tau. Counts may differ by lane, so the threshold has the shape of `count: [...,
    1]`."""
    return _reached(total["votes"].abs(), total["count"], tau)


def _share(votes: Tensor, counts: Tensor) -> Tensor:
    return votes.abs().div_(counts)


def _reached(net: Tensor, counts: Tensor, tau: Share) -> Tensor:
    """Where `net` votes, without their sign, reach tau."""
    share = as_written(tau)
    # Then 64 bits hold the product for as many clients as votes can count, and the device need not be asked. Groups of
    # coordinates, whose counts are in float64, have as many voters as coordinates times clients.
    if share.numerator < 1 << 38 and share.denominator < 1 << 62 and counts.dtype != torch.float64:
        least = -(-counts.round().long() * share.numerator // share.denominator)
    else:
        exact = [threshold(share, round(count)) for count in counts.reshape(-1).tolist()]
        least = torch.tensor(exact, device=counts.device).view(counts.shape)
    return net >= least.to(net.dtype)


def tau_at(tau: Share | Schedule, number: int) -> Fraction:
    """tau in round `number`, as it was written. What a schedule gives is rounded, so that three steps of 0.1 are 0.3
    and not 0.30000000000000004."""
    return as_written(round(tau.at(number), 12) if isinstance(tau, Schedule) else tau)


def rescaled(mask: Tensor, layout: Layout) -> Tensor:
    """The mask with each parameter tensor divided by the share of it that is kept, in place; what was dropped whole
    stays so."""
    for _, part in layout.layers(mask):
        kept = part.sum(-1, keepdim=True, dtype=torch.float64)  # of a hard mask a count, exact on every device
        part.mul_(torch.where(kept > 0, part.shape[-1] / kept, kept))
    return mask


class OfVotes(Mask):
    """What masks share that hold the clients' votes against `tau`.

    `scope`: the share held against tau is each coordinate's own, or its mean over a "layer" (a parameter tensor) or the
    whole "model", which then passes or is held back as one. `memory`: votes and voters of earlier rounds count too,
    times `memory` for every round since; 0 forgets them at once.
    """

    tau: Share | Schedule
    scope: Literal["coordinate", "layer", "model"]
    memory: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", as_tau(self.tau))
        if self.scope not in ("coordinate", "layer", "model"):
            raise AccordError(
                f"scope must be 'coordinate', 'layer' or 'model', got {self.scope!r}: it is what is judged as one"
            )
        if isinstance(self.memory, bool) or not isinstance(self.memory, int | float) or not 0.0 <= self.memory < 1.0:
            raise AccordError(
                f"memory must be at least 0 and below 1, got {self.memory!r}: it is the decay of past votes"
            )

    def init(self, layout: Layout, clients: int) -> State:
        """No votes and no voters. In float64, because what is added up over hundreds of rounds is compared with a
        threshold."""
        if not self.memory:
            return {}
        return {"votes": torch.zeros(layout.size, dtype=torch.float64), "count": torch.zeros(1, dtype=torch.float64)}

    def lift(self, reports: Reports, sent: State) -> Record:
        return Record(count=reports.count, votes=reports.votes)

    def _remembered(self, total: Record, state: State) -> State:
        """What is remembered after a round: nothing, or the votes and voters so far."""
        return {name: self.memory * state[name] + total[name] for name in ("votes", "count")} if self.memory else {}

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor]:
        counted, tau = state if self.memory else total, tau_at(self.tau, round.number)
        votes, counts = counted["votes"], counted["count"]
        if self.scope == "coordinate":
            # once, and divided in place: with many parameters a pass over them costs as much as a client
            net = votes.abs()
            whole = self._enough(net, counts, tau)
            return net.div_(counts), whole
        groups = list(self._groups(votes, counts, round.layout))
        share = torch.cat([_share(net, voters).expand(shape) for net, voters, shape in groups], -1)
        return share, torch.cat([self._enough(net, voters, tau).expand(shape) for net, voters, shape in groups], -1)

    def _enough(self, net: Tensor, counts: Tensor, tau: Fraction) -> Tensor:
        if not self.memory:
            return _reached(net, counts, tau)
        return net >= float(tau) * (1 - _ROUNDING) * counts

    def _groups(self, votes: Tensor, counts: Tensor, layout: Layout) -> Iterator[tuple[Tensor, Tensor, torch.Size]]:
        """What is judged as one: its net votes over all coordinates, as many voters for each of them, and the shape of
        what it judges."""
        for part in [part for _, part in layout.layers(votes)] if self.scope == "layer" else [votes]:
            net = part.abs().sum(-1, keepdim=True, dtype=torch.float64)
            yield net, counts.double() * part.shape[-1], part.shape
