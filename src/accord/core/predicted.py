"""What a model said of some samples with class labels, as metrics of a whole group need it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError

BINS = 1000  # of a score between 0 and 1, in what a client of a deployment sends for AUC and average precision
NO_LABEL = -100  # as torch's cross-entropy has it: a pixel, or a place of a sequence, that counts for nothing
_LARGEST = 1e30  # what an infinite logit counts as


def check_classes(output: Tensor, target: Tensor) -> None:
    """Refuses what is not one class label per sample."""
    if target.is_floating_point():
        kind = str(target.dtype).removeprefix("torch.")
        raise AccordError(f"is for class labels, and the targets are numbers ({kind}): take mae or r2")
    if target.ndim != 1 or output.ndim > 2:
        raise AccordError(
            f"needs one class label per sample, got targets of shape {tuple(target.shape)} and outputs of shape"
            f" {tuple(output.shape)}"
        )


def class_axes(output: Tensor, target: Tensor) -> tuple[bool, bool]:
    """Whether classes may be dimension 1 of outputs `[B, ...]`, and the last, where every pixel, or every place of a
    sequence, has a class, `target: [B, ...]`. Refuses outputs that are not for such targets."""
    wanted, got = tuple(target.shape[1:]), tuple(output.shape[1:])
    fits = got[1:] == wanted, got[:-1] == wanted
    if len(got) != len(wanted) + 1 or not any(fits):
        raise AccordError(
            f"outputs of shape {got} a sample are not scores of classes for targets of shape {wanted}: they should be"
            f" (classes, {_listed(wanted)}) or ({_listed(wanted)}, classes); several labels per sample take"
            " loss=torch.nn.BCEWithLogitsLoss()"
        )
    return fits


def check_labels(output: Tensor, target: Tensor) -> None:
    """Refuses what is neither one class label per sample nor one at every pixel."""
    if target.ndim == 1 or target.is_floating_point() or output.ndim != target.ndim + 1:
        check_classes(output, target)
    else:
        class_axes(output, target)


def mean_where_labelled(values: Tensor, target: Tensor) -> Tensor:
    """The mean of each sample over the pixels that have a label, `[B]`; 0 where none has."""
    labelled = (target != NO_LABEL).flatten(1)
    return torch.where(labelled, values.flatten(1), 0.0).sum(1) / labelled.sum(1).clamp(min=1)


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


@dataclass(frozen=True)
class Predicted:
    """What a model said of N samples, and what they are."""

    probabilities: np.ndarray  # [N, C]; of a NaN prediction, zeros
    logits: np.ndarray  # [N, C]
    target: np.ndarray  # [N]
    wrong: np.ndarray  # [N]: NaN predictions

    @staticmethod
    def of(output: Tensor, target: Tensor) -> "Predicted":
        # in numpy: groups are small, and torch's threads would wait for each other
        logits = output.detach().cpu().double().numpy().reshape(len(target), -1)
        if logits.shape[1] == 1:  # the logit of class 1 of two
            logits = np.concatenate([np.zeros_like(logits), logits], 1)
        wrong = np.isnan(logits).any(1)
        logits = np.where(wrong[:, None], 0.0, np.clip(logits, -_LARGEST, _LARGEST))
        odds = np.exp(logits - logits.max(1, keepdims=True))
        probabilities = np.where(wrong[:, None], 0.0, odds / odds.sum(1, keepdims=True))
        return Predicted(probabilities, logits, target.cpu().numpy().astype(np.int64), wrong)

    @property
    def binary(self) -> bool:
        return self.probabilities.shape[1] == 2

    @property
    def labels(self) -> np.ndarray:
        """The predicted classes; of a NaN prediction the other one of two, or none of many."""
        other = 1 - self.target if self.binary else -1
        return np.where(self.wrong, other, self.logits.argmax(1))

    def ranked(self, of: int) -> tuple[np.ndarray, np.ndarray]:
        """Which samples are of a class, and scores by which those should come first. Of two classes it is the
        difference of logits: probabilities near 1 round to 1, and would tie."""
        positive = self.target == of
        scores = self.logits[:, 1] - self.logits[:, 0] if self.binary else self.probabilities[:, of]
        finite = scores[~self.wrong] if not self.wrong.all() else np.zeros(1)
        return positive, np.where(self.wrong, np.where(positive, finite.min() - 1, finite.max() + 1), scores)

    def histogram(self) -> np.ndarray:
        """`[classes, 2, BINS]`: how many samples of other classes, and of the class, have which score; of two classes,
        the positive one's alone."""
        scored = [1] if self.binary else range(self.probabilities.shape[1])
        counts = np.zeros((len(scored), 2, BINS))
        for row, of in enumerate(scored):
            positive = self.target == of
            places = np.minimum((self.probabilities[:, of] * BINS).astype(np.int64), BINS - 1)
            places = np.where(self.wrong, np.where(positive, 0, BINS - 1), places)
            np.add.at(counts[row], (positive.astype(np.int64), places), 1)
        return counts

    def confusion(self) -> np.ndarray:
        """`[classes, 3]`: how many samples are rightly predicted, predicted, and there."""
        labels, classes = self.labels, self.probabilities.shape[1]
        right, there = self.target[labels == self.target], labels[labels >= 0]
        return np.stack([np.bincount(of, minlength=classes) for of in (right, there, self.target)], 1)
