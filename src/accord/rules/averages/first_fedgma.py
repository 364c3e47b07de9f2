"""FedGMA as first published: parameters are averaged, then the server takes one more step along the clients' masked
gradients (docs/explanation/first-fedgma.md; the 2021 workshop paper, algorithm 1, and its poster)."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Average
from accord.core.record import Record, State, tally, total, votes
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.averages.mean import Weighting, mean
from accord.rules.masks import Share, as_share, enough


@dataclass(frozen=True)
class masked_gradient(Average):
    """The mean of the clients' updates, less `eta_s` times the mean of their gradients where their net vote on its sign
    reaches `p`.

    `gradient`: that of a client's "last" local step, or of all its data at the "start" of the round. `variant="poster"`
    is what the poster prints: only coordinates whose vote is positive, the mean of the gradients' sizes, and a plus. As
    printed it climbs.
    """

    p: Annotated[Share, "net agreement that a gradient needs to count"] = 0.8
    eta_s: Annotated[float, "rate of the step along the masked gradients"] = 0.1
    gradient: Annotated[Literal["last", "start"], "of a client's last local step, or where the round started"] = "last"
    variant: Annotated[Literal["workshop", "poster"], "as the workshop paper has it, or as its poster prints it"] = (
        "workshop"
    )
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        p = as_share("p", self.p, "the share of net agreement a gradient needs to count")
        object.__setattr__(self, "p", p)
        if not isinstance(self.eta_s, int | float) or not 0.0 <= self.eta_s < math.inf:
            raise AccordError(
                f"eta_s must be a number of 0 or more, got {self.eta_s!r}: it is the rate of the masked step"
            )
        if self.gradient not in ("last", "start"):
            raise AccordError(
                "gradient must be 'last' (of the last local step) or 'start' (where the round began), got"
                f" {self.gradient!r}"
            )
        if self.variant not in ("workshop", "poster"):
            raise AccordError(f"variant must be 'workshop' or 'poster', got {self.variant!r}")
        mean(self.weighting)  # which says what is wrong with it

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"{self.gradient}_gradient"})

    def weights(self, reports: Reports) -> Tensor:
        return mean(self.weighting).weights(reports)

    @property
    def label(self) -> str:
        return ""  # fedgma is the algorithm's name

    def lift(self, reports: Reports, sent: State) -> Record:
        gradients = reports.extra[f"{self.gradient}_gradient"]
        if self.variant == "workshop":
            size, ballots = tally(gradients, reports.weight)
        else:
            size, ballots = total(gradients.abs(), reports.weight), votes(gradients)
        return Record(
            delta=reports.total, gradient=size, weight=reports.total_weight, votes=ballots, count=reports.count
        )

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        agreed = enough(total, self.p)
        if self.variant == "poster":
            agreed &= total["votes"] >= 0
        extra = (total["gradient"] / total["weight"]).masked_fill_(~agreed, 0.0)
        sign = -1.0 if self.variant == "workshop" else 1.0
        return (total["delta"] / total["weight"]).add_(extra, alpha=sign * self.eta_s), state
