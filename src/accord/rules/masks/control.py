"""The control that a mask must beat: `scaled`, a plain step as long as the masked one (docs/explanation/masks.md)."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.protocols import Mask, Server, check_part
from accord.core.record import Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.masks.gma import gma

By = Literal["length", "mean"]


@dataclass(frozen=True)
class scaled(Mask):
    """The control of a mask: the whole step times one number, round by round. It has what a mask gains by a shorter
    step, and no choice of coordinates.

    By "length" the step is as long as the masked one. By "mean" it is multiplied by the mask's mean over all
    coordinates, which is usually shorter, since masks hold back small coordinates more than large ones.
    """

    mask: Annotated[Mask, "the mask that it is the control of"] = field(default_factory=gma)
    by: Annotated[By, "what it copies from the mask: the length of the masked step, or its mean"] = "length"

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise AccordError(
                f"by must be 'length' or 'mean', got {self.by!r}: it is what a control copies from its mask"
            )
        check_part("mask", self.mask, "the mask that scaled is the control of, such as gma(0.4)")

    @property
    def label(self) -> str:
        return f"scaled({self.mask.label}, {self.by})"

    @property
    def needs(self) -> frozenset[str]:
        return self.mask.needs

    def init(self, layout: Layout, clients: int) -> State:
        return self.mask.init(layout, clients)

    def lift(self, reports: Reports, sent: State) -> Record:
        return self.mask.lift(reports, sent)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        return self.mask.lower(total, state, round)

    def agreement(self, total: Record, state: State, round: Round) -> tuple[Tensor, Tensor] | None:
        return self.mask.agreement(total, state, round)

    def apply(self, mask: Tensor, direction: Tensor) -> Tensor:
        if self.by == "length":
            return _as_long_as(self.mask.apply(mask, direction), direction)
        return mask.mean(-1, keepdim=True, dtype=torch.float64).to(mask.dtype) * direction

    def direction(self, mask: Tensor, server: Server, state: State, update: Tensor) -> tuple[State, Tensor]:
        if self.by == "mean":
            return super().direction(mask, server, state, update)
        _, masked = self.mask.direction(mask, server, state, update)
        state, plain = server.direction(state, update)
        return state, _as_long_as(masked, plain)


def _as_long_as(other: Tensor, step: Tensor) -> Tensor:
    """The step, `[..., P]`, scaled to the length of another; a step of zeros stays one."""
    wanted, length = (vector.norm(dim=-1, keepdim=True, dtype=torch.float64) for vector in (other, step))
    return torch.where(length > 0, wanted / length, 1.0).to(step.dtype) * step
