"""When one class has most of the samples, so that accuracy says little."""

from collections.abc import Iterable

import torch
from torch import Tensor

from accord.data.federated import Federation
from accord.data.portrait import class_names

_COMMON = 80  # per cent of the samples from which it is said


def caution_on_accuracy(fed: Federation, rows: Iterable[Tensor], whose: str) -> str | None:
    """What to judge by instead of accuracy, where one class has most of these rows; None where accuracy will do.

    >>> from accord.data import from_arrays
    >>> fed = from_arrays({"a": ([[0.0]] * 10, [0] * 9 + [1])}, heldout=0)
    >>> (caution_on_accuracy(fed, fed.train.values(), "the samples") or "")[:36]
    '90 % of the samples are of class 0, '
    """
    labels = fed.y[torch.cat([torch.zeros(0, dtype=torch.int64), *rows])]
    if labels.ndim > 1 or labels.is_floating_point() or not len(labels):  # a class for every pixel or word, or numbers
        return None
    classes, counts = labels.unique(return_counts=True)
    share = 100 * float(counts.max() / counts.sum())
    if share < _COMMON:
        return None
    (common,) = class_names(fed, [int(classes[counts.argmax()])])
    shown = min(share, 99.9) if len(classes) > 1 else share  # 100 is said where it is all of them
    return (
        f"{shown:.3g} % of {whose} are of class {common}, and always guessing it has that accuracy, so models may look"
        " alike: train.metrics=auc judges by how the rest is ranked (or balanced_accuracy, f1)."
    )
