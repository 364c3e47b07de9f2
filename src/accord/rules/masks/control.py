"""The control that a mask must beat: `scaled`, which takes a step as short as a mask's and chooses no coordinates
(docs/explanation/masks.md)."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.protocols import Mask, check_part
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.masks.gma import gma

By = Literal["mean", "length"]


@dataclass(frozen=True)
class scaled(Mask):
    """The whole step times one number, round by round: what a mask gains by a shorter step, this gains too.

    The number is the "mean" of `mask` over all coordinates or, since a mask holds back small coordinates more than
    large ones, the share of the averaged update's "length" that it leaves.
    """

    mask: Annotated[Mask, "the mask that it is the control of"] = field(default_factory=gma)
    by: Annotated[By, "what it copies from the mask: its mean, or the length of the masked step"] = "mean"

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise AccordError(
                f"by must be 'mean' or 'length', got {self.by!r}: it is what a control copies from its mask"
            )
        check_part("mask", self.mask, "the mask that scaled is the control of, such as gma(0.4)")

    @property
    def label(self) -> str:
        return f"scaled({self.mask.label}{'' if self.by == 'mean' else f', {self.by}'})"

    @property
    def needs(self) -> frozenset[str]:
        return self.mask.needs

    def init(self, layout: Layout, clients: int) -> State:
        return self.mask.init(layout, clients)

    def lift(self, reports: Reports, sent: State) -> Record:
        lifted = self.mask.lift(reports, sent)
        return lifted if self.by == "mean" else Record(mask=lifted, update=reports.total)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        mask, state = self.mask.lower(self._of_mask(total), state, round)
        factor = mask.mean(-1, keepdim=True, dtype=torch.float64) if self.by == "mean" else _kept(mask, total["update"])
        return factor.to(mask.dtype).expand_as(mask), state

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor] | None:
        return self.mask.agreement(self._of_mask(total), state, round)

    def _of_mask(self, total: Record) -> Record:
        """What the mask's own part of the record is."""
        return total if self.by == "mean" else total.part("mask")


def _kept(mask: Tensor, update: Tensor) -> Tensor:
    """`[..., 1]`, how long the update is under the mask, for each unit of its length; 1 where there is no update."""
    update = update.double()
    before, after = (vector.norm(dim=-1, keepdim=True) for vector in (update, mask * update))
    return torch.where(before > 0, after / before, 1.0)
