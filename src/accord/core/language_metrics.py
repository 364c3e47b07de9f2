"""Metrics of models that predict the next word, or character."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.measure import Measure, are_counts
from accord.core.predicted import NO_LABEL, check_classes, class_axes

_AT_ONCE = 256  # samples: as probabilities, outputs take their room once more


@dataclass(frozen=True)
class Perplexity(Measure):
    """exp of the mean cross-entropy, over all words of a group: among how many equally likely ones the model chooses.
    `target: [N, ...]`, -100 where there is none; `output` as `dense_cross_entropy` has it."""

    smaller_is_better = True
    range = 0.0, math.inf
    needs = "it needs a labelled word, and no prediction that is NaN"
    pooled_from = "the clients' sums of losses, and how many words they have"

    def check(self, output: Tensor, target: Tensor) -> None:
        if target.is_floating_point() or target.ndim == 1:
            check_classes(output, target)
        else:
            class_axes(output, target)

    def __call__(self, output: Tensor, target: Tensor) -> float | None:
        return self.lower(self.lift(output, target))

    def lift(self, output: Tensor, target: Tensor) -> Tensor:
        """`[2]`: the sum of losses, and the words."""
        if target.ndim > 1 and not class_axes(output, target)[0]:
            output = output.movedim(-1, 1)
        pairs = zip(output.detach().cpu().split(_AT_ONCE), target.cpu().split(_AT_ONCE), strict=True)
        losses = [F.cross_entropy(some, labels, reduction="sum").double() for some, labels in pairs]
        words = (target != NO_LABEL).sum().double().cpu()
        return torch.stack([torch.stack(losses).sum() if losses else torch.zeros_like(words), words])

    def could_be(self, lifted: Tensor, samples: int) -> bool:
        # the loss of a model that diverged is NaN or infinite
        return tuple(lifted.shape) == (2,) and are_counts(lifted[1:]) and not bool(lifted[0] < 0)

    def lower(self, total: Tensor) -> float | None:
        losses, words = total.tolist()
        # beyond exp(700) there is no float, and no sense
        return math.exp(losses / words) if words and losses / words < 700 else None
