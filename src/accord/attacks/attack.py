"""What one attacker does: what it reports, or what it learns from, is not what an honest client's would be
(docs/explanation/robustness.md).

What is measured stays honest: attackers are evaluated like all other clients, on the labels they have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError


def _check(share: float, factor: float = 1.0) -> None:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0.0 <= share <= 1.0:
        raise AccordError(
            f"share must be between 0 and 1, got {share!r}: it is the share of all participating clients that attack"
        )
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0.0 <= factor < math.inf:
        raise AccordError(f"factor must be a number of 0 or more, got {factor!r}: it says how strong the attack is")


@dataclass(frozen=True)
class _OfVectors:
    """Attackers learn what others learn, and report something else, as strong as `factor` says."""

    share: float = 0.2
    factor: float = 1.0
    flips: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check(self.share, self.factor)


@dataclass(frozen=True)
class sign_flip(_OfVectors):
    """Reports the opposite of what it learnt, `factor` times: -factor * delta."""

    def vectors(self, sent: Tensor, keys: Sequence[int]) -> Tensor:
        return -self.factor * sent


@dataclass(frozen=True)
class scaled(_OfVectors):
    """Reports `factor` times what it learnt, so that it counts more than its samples."""

    factor: float = 10.0

    def vectors(self, sent: Tensor, keys: Sequence[int]) -> Tensor:
        return self.factor * sent


@dataclass(frozen=True)
class noise(_OfVectors):
    """Reports Gaussian noise in the place of what it learnt, `factor` times as long: no check of norms tells it from an
    honest report."""

    def vectors(self, sent: Tensor, keys: Sequence[int]) -> Tensor:
        drawn = torch.stack([draws.normal(sent.shape[-1], key, sent.device) for key in keys]).to(sent.dtype)
        return drawn * (self.factor * sent.norm(dim=-1, keepdim=True) / drawn.norm(dim=-1, keepdim=True))


@dataclass(frozen=True)
class label_flip:
    """Learns class y as class (classes - 1 - y), and reports what it learnt."""

    share: float = 0.2
    flips: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self.share)

    def vectors(self, sent: Tensor, keys: Sequence[int]) -> Tensor:
        return sent


Attack = sign_flip | scaled | noise | label_flip
ATTACKS = {make.__name__: make for make in (sign_flip, scaled, noise, label_flip)}
