"""What figures of accord's own metrics can be, by name: the range of a figure, and whether what a client adds up for
the figure of all clients can be that of so many samples. Servers go by it that get figures from clients."""

import math
from collections.abc import Callable, Mapping

from torch import Tensor

_SHARE = (0.0, 1.0)
EVERY_NUMBER = (-math.inf, math.inf)

RANGES: Mapping[str, tuple[float, float]] = {
    "accuracy": _SHARE,
    "auc": _SHARE,
    "average_precision": _SHARE,
    "balanced_accuracy": _SHARE,
    "calibration_error": _SHARE,
    "f1": _SHARE,
    "mae": (0.0, math.inf),
    "perplexity": (0.0, math.inf),
    "r2": (-math.inf, 1.0),
}

_SLACK = 1e-6  # of sums of many shares, which are rounded


def in_range(values: Tensor, name: str, samples: Tensor) -> bool:
    """Whether these are sums over so many samples, `[G]`, of a metric of this name. A figure that is none, NaN, is one
    only of a metric without bounds."""
    low, high = RANGES.get(name, EVERY_NUMBER)
    bounded = math.isfinite(low) and math.isfinite(high)
    slack = _SLACK * samples
    fits = (values >= _times(low, samples) - slack) & (values <= _times(high, samples) + slack)
    return bool((fits | values.isnan() & (not bounded)).all())


def _times(bound: float, samples: Tensor) -> Tensor:
    return samples * bound if math.isfinite(bound) else samples * 0 + bound  # infinity times 0 is NaN


def _counts(lifted: Tensor) -> bool:
    return bool(lifted.isfinite().all()) and bool((lifted >= 0).all())


def _histogram(lifted: Tensor, samples: int) -> bool:
    """`[classes, 2, bins]`: every class counts every sample, as one of it or as another."""
    fits = lifted.ndim == 3 and lifted.shape[1] == 2 and _counts(lifted)
    return fits and bool((lifted.sum((1, 2)) == samples).all())


def _confusion(lifted: Tensor, samples: int) -> bool:
    """`[classes, 3]`: rightly predicted, predicted, there."""
    if lifted.ndim != 2 or lifted.shape[1] != 3 or not _counts(lifted):
        return False
    right, predicted, there = lifted.unbind(1)
    fewer = bool((right <= predicted).all()) and bool((right <= there).all())
    return fewer and float(there.sum()) == samples and float(predicted.sum()) <= samples


def _confidences(lifted: Tensor, samples: int) -> bool:
    """`[bins, 3]`: samples, the sum of their confidences, and how many are right."""
    if lifted.ndim != 2 or lifted.shape[1] != 3 or not _counts(lifted):
        return False
    count, confidence, right = lifted.unbind(1)
    return float(count.sum()) == samples and bool(((confidence <= count * (1 + _SLACK)) & (right <= count)).all())


def _squares(lifted: Tensor, samples: int) -> bool:
    """`[numbers of a sample, 4]`: samples, and the sums of targets, of their squares and of squared errors, which a
    model that diverged makes NaN or infinite."""
    fits = lifted.ndim == 2 and lifted.shape[1] == 4
    return fits and bool((lifted[:, 0] == samples).all()) and not bool((lifted[:, 2:] < 0).any())


def _words(lifted: Tensor, samples: int) -> bool:
    """`[2]`: the sum of losses, which a model that diverged makes NaN or infinite, and the words."""
    return tuple(lifted.shape) == (2,) and _counts(lifted[1:]) and not bool(lifted[0] < 0)


_FITS: Mapping[str, Callable[[Tensor, int], bool]] = {
    "auc": _histogram,
    "average_precision": _histogram,
    "balanced_accuracy": _confusion,
    "calibration_error": _confidences,
    "f1": _confusion,
    "perplexity": _words,
    "r2": _squares,
}


def can_be_lifted(lifted: Tensor, name: str, samples: int) -> bool:
    """Whether a client with so many samples can have added this up for a metric of this name: counts of its samples and
    of no others, none below 0."""
    return name in _FITS and _FITS[name](lifted, samples)
