"""The control that a mask must beat: `scaled`, which takes a step as short as a mask's and chooses no coordinates (docs/masks.md)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from accord.errors import AccordError
from accord.layout import Layout
from accord.mask.sizes import magnitude, sand
from accord.mask.votes import and_mask, gma
from accord.record import Record, State
from accord.reports import Reports
from accord.rounds import Round
from accord.schedule import Schedule

Choosing = gma | and_mask | sand | magnitude  # the masks that tell coordinates apart


@dataclass(frozen=True)
class scaled:
    """The whole step times the mean of `mask` over all coordinates, round by round: what a mask gains by a shorter step, this gains too."""

    mask: Choosing = field(default_factory=gma)

    def __post_init__(self) -> None:
        if not isinstance(self.mask, Choosing):
            raise AccordError(f"scaled takes the mask that it is the control of, such as scaled(gma(0.4)), got {self.mask!r}")

    @property
    def tau(self) -> float | Schedule:
        return self.mask.tau

    @property
    def needs(self) -> frozenset[str]:
        return self.mask.needs

    def init(self, layout: Layout, clients: int) -> State:
        return self.mask.init(layout, clients)

    def lift(self, reports: Reports, sent: State) -> Record:
        return self.mask.lift(reports, sent)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        mask, state = self.mask.lower(total, state, round)
        return mask.mean(-1, keepdim=True, dtype=torch.float64).to(mask.dtype).expand_as(mask), state

    def agreement(self, total: Record, tau: float) -> tuple[Tensor, Tensor]:
        return self.mask.agreement(total, tau)
