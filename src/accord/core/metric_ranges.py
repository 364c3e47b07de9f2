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


def _histogram(lifted: Tensor, samples: int) -> bool:
    """`[classes, 2, bins]`: every class counts every sample, as one of it or as another."""
    return lifted.ndim == 3 and lifted.shape[1] == 2 and bool((lifted.sum((1, 2)) == samples).all())


def _confusion(lifted: Tensor, samples: int) -> bool:
    """`[classes, 3]`: rightly predicted, predicted, there."""
    if lifted.ndim != 2 or lifted.shape[1] != 3:
        return False
    right, predicted, there = lifted.unbind(1)
    fewer = bool((right <= predicted).all()) and bool((right <= there).all())
    return fewer and float(there.sum()) == samples and float(predicted.sum()) <= samples


def _confidences(lifted: Tensor, samples: int) -> bool:
    """`[bins, 3]`: samples, the sum of their confidences, and how many are right."""
    if lifted.ndim != 2 or lifted.shape[1] != 3:
        return False
    count, confidence, right = lifted.unbind(1)
    return float(count.sum()) == samples and bool(((confidence <= count * (1 + _SLACK)) & (right <= count)).all())


def _squares(lifted: Tensor, samples: int) -> bool:
    """`[numbers of a sample, 4]`: samples, and the sums of targets, of their squares and of squared errors."""
    return lifted.ndim == 2 and lifted.shape[1] == 4 and bool((lifted[:, 0] == samples).all())


def _words(lifted: Tensor, samples: int) -> bool:
    """`[2]`: the sum of losses, and the words."""
    return tuple(lifted.shape) == (2,)


_FITS: Mapping[str, tuple[Callable[[Tensor, int], bool], int | None]] = {  # and the column that may be below 0
    "auc": (_histogram, None),
    "average_precision": (_histogram, None),
    "balanced_accuracy": (_confusion, None),
    "calibration_error": (_confidences, None),
    "f1": (_confusion, None),
    "perplexity": (_words, None),
    "r2": (_squares, 1),
}


def can_be_lifted(lifted: Tensor, name: str, samples: int) -> bool:
    """Whether a client with so many samples can have added this up for a metric of this name: counts of its samples and
    no more, none below 0. Of no samples it is zeros."""
    if name not in _FITS:
        return False
    fits, signed = _FITS[name]
    at_least_0 = lifted >= 0
    if signed is not None and lifted.ndim == 2:
        at_least_0[:, signed : signed + 1] = True
    return bool(lifted.isfinite().all()) and bool(at_least_0.all()) and fits(lifted, samples)
