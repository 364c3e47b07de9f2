"""Corrective gradient weights: the mean of the clients' models, moved along their gradients by weights that lower all
their losses most (docs/explanation/corrective.md; Mousazadeh et al., 2023, whose equations are numbered here).

D_i is the gradient of client i's mean loss over all its data where its training ended, L_i that loss, D = sum of D_i,
m_i = D_i . D. The correction is the sum of x_i D_i. To first order it lowers the clients' losses by the sum of x_i m_i,
the most there is under a bound on its size:

    eq. 24, sum of x_i^2 |D_i|^2 = c^2:  x_i = c (m_i / |D_i|^2) / sqrt(sum of (m_j / |D_j|)^2)
    eq. 15, |sum of x_i D_i| = c:        x_i = c / |D|

with c = alpha min(L_i / |D_i|). A client whose gradient is zero is left out of the minimum and gets no weight.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Average
from accord.core.record import BLOCK, Field, Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round


@dataclass(frozen=True)
class corrective(Average):
    """The unweighted mean of the clients' updates, less the sum of x_i D_i. alpha = 0 is the unweighted mean.

    x_i needs D, which is known when everybody has reported. With `passes=1` the server keeps all gradients, `[K, P]`,
    until then; with `passes=2` clients keep theirs, get D, and add up in a second exchange: the server then holds
    sums alone. Constraint "15" never needs more than one pass over sums.
    """

    alpha: Annotated[float, "how strongly the clients' gradients correct the mean of their models"] = 0.1
    constraint: Annotated[Literal["24", "15"], "the paper's equation that bounds the correction"] = "24"
    passes: Annotated[
        Literal[1, 2], "1: the server holds all gradients; 2: a second exchange, and the server holds sums"
    ] = 1
    needs: ClassVar[frozenset[str]] = frozenset({"end_gradient", "end_loss"})
    # the first exchange's sums that clients get for the second
    broadcasts: ClassVar[frozenset[str]] = frozenset({"gradient"})

    def __post_init__(self) -> None:
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 0.0 <= self.alpha < math.inf:
            raise AccordError(
                f"alpha must be a number of 0 or more, got {self.alpha!r}: it is how strongly gradients correct the"
                " mean"
            )
        if self.constraint not in ("24", "15"):
            raise AccordError(
                f"constraint must be '24' or '15', the numbers of the paper's equations, got {self.constraint!r}"
            )
        if isinstance(self.passes, bool) or self.passes not in (1, 2):
            raise AccordError(
                f"passes must be 1 (the server keeps all gradients) or 2 (clients keep theirs), got {self.passes!r}"
            )
        if self.constraint == "15" and self.passes == 2:
            raise AccordError(
                "passes must be 1 with constraint '15', got 2: its weights are all alike, so that sums suffice"
            )

    def weights(self, reports: Reports) -> Tensor:
        return reports.one

    def lift(self, reports: Reports, sent: State) -> Record:
        gradients, losses = reports.extra["end_gradient"], reports.extra["end_loss"]
        squares = _dot(gradients, gradients)
        # a negative loss bounds nothing
        ratio = torch.where(squares > 0, losses.double().clamp(min=0.0) / squares.sqrt(), math.inf)
        kept = {"gradients": Field(gradients, "rows")} if self._keeps_rows else {"gradient": total(gradients)}
        return Record(delta=reports.total, count=reports.count, ratio=Field(ratio.amin(-2), "min"), **kept)

    def second(self, kept: State, first: Record) -> Record:
        """What clients add when they know D: the vector (m_i / |D_i|^2) D_i and the number (m_i / |D_i|)^2."""
        gradients = kept["end_gradient"]
        squares, m = _dot(gradients, gradients), _dot(gradients, first["gradient"].unsqueeze(-2))
        share = torch.where(squares > 0, m / squares, 0.0)
        return Record(push=total(gradients, share.to(gradients.dtype)), square=total(m * share))

    def _second_of(self, rows: Tensor) -> Record:
        """The same from all clients' gradients, `[..., K, P]`."""
        return self.second({"end_gradient": rows}, Record(gradient=total(rows)))

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        if self._keeps_rows:
            total = Record(**dict(total), **dict(self._second_of(total["gradients"])))
        if self.constraint == "24":
            push, square = total["push"], total["square"]
        else:
            push, square = total["gradient"], _dot(total["gradient"], total["gradient"])
        # Nobody has a gradient, or they cancel out: there is nothing to follow, and a ratio of infinity bounds it.
        factor = torch.where(square > 0, self.alpha * total["ratio"] / square.sqrt(), 0.0)
        return total["delta"] / total["count"] - factor.to(push.dtype) * push, state

    @property
    def sums_only(self) -> bool:
        return not self._keeps_rows

    @property
    def _keeps_rows(self) -> bool:
        return self.constraint == "24" and self.passes == 1


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products over the parameters, `[..., 1]`. In float64: the square of a small gradient is nothing in
    float32."""
    parts = zip(a.split(BLOCK, -1), b.split(BLOCK, -1), strict=True)  # so that no copy of all is made
    return torch.stack([(x.double() * y.double()).sum(-1, keepdim=True) for x, y in parts]).sum(0)
