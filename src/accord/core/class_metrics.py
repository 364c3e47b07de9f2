"""Metrics of a whole group for class labels, by scikit-learn.

`output: [N, classes]` are logits; `[N]` or `[N, 1]` is the logit of class 1 of two. With two classes, class 1 is the
positive one. With more, AUC and average precision are those of each class against the rest, averaged over the classes
that the group has (scikit-learn's macro one-vs-rest, which is undefined where a class is missing, as it is with most
clients); F1 is averaged over classes too. A prediction that is NaN counts as wrong: ranked last if it should be first,
of another class, sure and mistaken.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.measure import SLACK, Measure, are_counts
from accord.core.predicted import BINS, Predicted, check_classes

_CONFIDENCES = 15  # bins of the calibration error, as Guo et al. (2017) have them
_SHARE = (0.0, 1.0)


def sklearn_metrics() -> Any:
    """scikit-learn's functions, imported when the first of them is asked for."""
    try:
        import sklearn.metrics
    except ImportError:
        raise AccordError(
            "is computed by scikit-learn, which is not installed: pip install 'scikit-learn>=1.4'"
        ) from None
    return sklearn.metrics


@contextmanager
def _unchecked() -> Iterator[None]:
    """Without scikit-learn's checks of what is known to be right, which take half of its time."""
    from sklearn import config_context

    with config_context(assume_finite=True, skip_parameter_validation=True):
        yield


@contextmanager
def _quietly() -> Iterator[None]:
    """And without its warnings of small groups, in which a class may be missing or predicted alone."""
    with _unchecked(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _ByScikitLearn(Measure):
    """A metric of class labels, from 0 to 1, that scikit-learn computes."""

    range = _SHARE

    def check(self, output: Tensor, target: Tensor) -> None:
        check_classes(output, target)
        sklearn_metrics()


class _ByRank(_ByScikitLearn):
    """A metric of the order in which samples of a class and others are ranked."""

    needs = "it needs samples of two classes"
    pooled_from = f"a histogram of {BINS:,} bins of the clients' scores by class"

    def _by_rank(self) -> Callable[[np.ndarray, np.ndarray], float]:
        """scikit-learn's function of (positive, score)."""
        raise NotImplementedError

    def _binned(self, others: np.ndarray, positive: np.ndarray) -> float:
        """The same of two histograms, lowest scores first."""
        raise NotImplementedError

    def __call__(self, output: Tensor, target: Tensor) -> float | None:
        predicted = Predicted.of(output, target)
        there = np.unique(predicted.target)
        if len(there) < 2:
            return None
        by_rank, chosen = self._by_rank(), [1] if predicted.binary else there
        with _unchecked():
            return float(np.mean([by_rank(*predicted.ranked(of)) for of in chosen]))

    def lift(self, output: Tensor, target: Tensor) -> Tensor:
        """`[classes, 2, bins]`: every class counts every sample, as another one's or as its own."""
        return torch.from_numpy(Predicted.of(output, target).histogram())

    def could_be(self, lifted: Tensor, samples: int) -> bool:
        fits = lifted.ndim == 3 and lifted.shape[1] == 2 and are_counts(lifted)
        return fits and bool((lifted.sum((1, 2)) == samples).all())

    def lower(self, total: Tensor) -> float | None:
        defined = [(others, of_class) for others, of_class in total.numpy() if others.any() and of_class.any()]
        return float(np.mean([self._binned(*counts) for counts in defined])) if defined else None


@dataclass(frozen=True)
class Auc(_ByRank):
    """The area under the receiver operating characteristic: how often a sample of the class is ranked before another
    one."""

    def _by_rank(self) -> Callable[[np.ndarray, np.ndarray], float]:
        metrics = sklearn_metrics()

        def area(positive: np.ndarray, score: np.ndarray) -> float:
            """What `roc_auc_score` comes to, in a third of its time."""
            false, true, _ = metrics.roc_curve(positive, score, drop_intermediate=False)
            return float(metrics.auc(false, true))

        return area

    def _binned(self, others: np.ndarray, positive: np.ndarray) -> float:
        below = np.cumsum(others) - others / 2  # samples in one bin are a tie
        return float(positive @ below / (positive.sum() * others.sum()))


@dataclass(frozen=True)
class AveragePrecision(_ByRank):
    """The precision at each sample of the class, averaged: the area under the precision-recall curve."""

    def _by_rank(self) -> Callable[[np.ndarray, np.ndarray], float]:
        score: Callable[[np.ndarray, np.ndarray], float] = sklearn_metrics().average_precision_score
        return score

    def _binned(self, others: np.ndarray, positive: np.ndarray) -> float:
        hits, passed = np.cumsum(positive[::-1]), np.cumsum(others[::-1])
        precision = hits / np.maximum(hits + passed, 1)
        return float(positive[::-1] @ precision / positive.sum())


class _ByLabel(_ByScikitLearn):
    """A metric of the predicted classes."""

    pooled_from = "the clients' counts of samples by class, predicted class and whether they agree"

    def lift(self, output: Tensor, target: Tensor) -> Tensor:
        """`[classes, 3]`: rightly predicted, predicted, there."""
        return torch.from_numpy(Predicted.of(output, target).confusion().astype(np.float64))

    def could_be(self, lifted: Tensor, samples: int) -> bool:
        if lifted.ndim != 2 or lifted.shape[1] != 3 or not are_counts(lifted):
            return False
        right, predicted, there = lifted.unbind(1)
        fewer = bool((right <= predicted).all()) and bool((right <= there).all())
        return fewer and float(there.sum()) == samples and float(predicted.sum()) <= samples


@dataclass(frozen=True)
class F1(_ByLabel):
    """The harmonic mean of precision and recall: of class 1 of two, or averaged over the classes that are there or
    predicted."""

    needs = "it needs samples of class 1, or some predicted as such"

    def __call__(self, output: Tensor, target: Tensor) -> float | None:
        predicted = Predicted.of(output, target)
        labels = predicted.labels
        if predicted.binary:
            if not (predicted.target == 1).any() and not (labels == 1).any():
                return None
            return float(sklearn_metrics().f1_score(predicted.target, labels))
        there = np.union1d(predicted.target, labels[labels >= 0])
        with _quietly():
            return float(sklearn_metrics().f1_score(predicted.target, labels, labels=there, average="macro"))

    def lower(self, total: Tensor) -> float | None:
        right, predicted, there = total.numpy().T
        chosen = np.flatnonzero(predicted + there)
        if len(total) == 2:
            chosen = chosen[chosen == 1]
        return float(np.mean(2 * right[chosen] / (predicted + there)[chosen])) if len(chosen) else None


@dataclass(frozen=True)
class BalancedAccuracy(_ByLabel):
    """The share of right predictions of each class that is there, averaged over classes."""

    def __call__(self, output: Tensor, target: Tensor) -> float | None:
        predicted = Predicted.of(output, target)
        with _quietly():
            return float(sklearn_metrics().balanced_accuracy_score(predicted.target, predicted.labels))

    def lower(self, total: Tensor) -> float | None:
        right, _, there = total.numpy().T
        return float(np.mean(right[there > 0] / there[there > 0])) if there.any() else None


@dataclass(frozen=True)
class CalibrationError(Measure):
    """The expected calibration error (Guo et al. 2017): how far the probability of the predicted class is from the
    share of right predictions, in 15 bins of equal width, weighted by their samples."""

    smaller_is_better = True
    range = _SHARE
    pooled_from = f"the clients' counts, confidences and right predictions in {_CONFIDENCES} bins of confidence"

    def check(self, output: Tensor, target: Tensor) -> None:
        check_classes(output, target)

    def __call__(self, output: Tensor, target: Tensor) -> float | None:
        return self.lower(self.lift(output, target))

    def lift(self, output: Tensor, target: Tensor) -> Tensor:
        """`[15, 3]`: samples, the sum of their confidences, and how many are right."""
        predicted = Predicted.of(output, target)
        confidence = np.where(predicted.wrong, 1.0, predicted.probabilities.max(1))
        right = predicted.labels == predicted.target
        # a bin holds its upper edge
        places = np.clip(np.ceil(confidence * _CONFIDENCES).astype(np.int64) - 1, 0, _CONFIDENCES - 1)
        columns = (np.ones_like(confidence), confidence, right.astype(np.float64))
        return torch.from_numpy(np.stack([np.bincount(places, of, minlength=_CONFIDENCES) for of in columns], 1))

    def could_be(self, lifted: Tensor, samples: int) -> bool:
        if lifted.ndim != 2 or lifted.shape[1] != 3 or not are_counts(lifted):
            return False
        count, confidence, right = lifted.unbind(1)
        return float(count.sum()) == samples and bool(((confidence <= count * (1 + SLACK)) & (right <= count)).all())

    def lower(self, total: Tensor) -> float | None:
        samples, confidence, right = total.numpy().T
        return float(np.abs(confidence - right).sum() / samples.sum()) if samples.any() else None
