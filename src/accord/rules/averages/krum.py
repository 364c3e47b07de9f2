"""Krum (Blanchard et al., 2017, "Machine learning with adversaries: Byzantine tolerant gradient descent")."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from accord.core.errors import AccordError, check_whole
from accord.core.record import BLOCK, Record, State
from accord.core.round import Round
from accord.rules.averages.rows import OfEveryUpdate


@dataclass(frozen=True)
class krum(OfEveryUpdate):
    """The update nearest to its neighbours (Blanchard et al., 2017). A client's score is the sum of its squared
    distances to the K - attackers - 2 others nearest to it; the `keep` clients with the lowest scores are averaged
    (multi-Krum).

    It bears `attackers` of K clients if K is at least 2 attackers + 3; a round with fewer reports is skipped.
    """

    attackers: Annotated[int, "number of attackers in a round that it withstands"] = 1
    keep: Annotated[int, "number of clients that are averaged"] = 1

    def __post_init__(self) -> None:
        check_whole("attackers", self.attackers, least=0)
        check_whole("keep", self.keep)

    @property
    def least(self) -> int:
        """The fewest reports it is defined for; of those that are kept none need be an attacker's."""
        return max(2 * self.attackers + 3, self.attackers + self.keep)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        deltas = total["deltas"]
        self.check_cohort(deltas.shape[-2])
        best = scores(deltas, self.attackers).argsort(dim=-1, stable=True)[..., : self.keep]
        chosen = best.unsqueeze(-1).expand(*best.shape, deltas.shape[-1])
        return deltas.gather(-2, chosen).mean(-2), state

    def check_cohort(self, clients: int) -> None:
        """Refuses a cohort that is too small for it."""
        if clients < self.least:
            why = "2 x attackers + 3" if self.least == 2 * self.attackers + 3 else "attackers + keep"
            raise AccordError(
                f"attackers must leave krum enough others, got {self.attackers}: it needs {why} = {self.least} clients"
                f" in a round, and there are {clients}"
            )


def scores(deltas: Tensor, attackers: int) -> Tensor:
    """Each client's score, `[..., K, P] -> [..., K]`, in float64. Distances are taken of differences: the usual detour
    over inner products loses those that are small beside the updates."""
    blocks = (part.double() for part in deltas.split(BLOCK, -1))
    squares = torch.stack(
        [torch.cdist(part, part, compute_mode="donot_use_mm_for_euclid_dist").square() for part in blocks]
    ).sum(0)
    others = deltas.shape[-2] - attackers - 2
    return squares.sort(-1).values[..., 1 : others + 1].sum(-1)  # the nearest of all is the client itself
