"""The losses and metrics used when the user brings none. Each gives one number per sample."""

import functools
from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional as F

from accord.core.class_metrics import check_classes
from accord.core.errors import AccordError
from accord.core.measure import Measure, PerSample


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """For class labels. `output: [B, classes]`, `target: [B]`."""
    return F.cross_entropy(output, target, reduction="none")


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """For numbers: the squared error, averaged over whatever a sample has more than one of."""
    return (output.reshape(target.shape) - target).square().reshape(len(target), -1).mean(1)


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """One where the most likely class is the right one, else zero."""
    return (output.argmax(1) == target).float()


# As marks beside the code: a run folder's name holds the code of its metrics, and must not change.
vars(accuracy).update(nan_counts_as=0.0, fits=check_classes)


def smaller_is_better(metric: PerSample) -> PerSample:
    """Marks a metric of which less is better, such as an absolute error; otherwise more is taken to be better.

    >>> metrics = {"mae": smaller_is_better(lambda output, target: (output[:, 0] - target).abs())}
    """

    if isinstance(metric, Measure):
        raise AccordError(
            "smaller_is_better marks a plain function: another metric declares it itself, as in"
            " accord.metrics.group(function, smaller_is_better=True)"
        )

    @functools.wraps(metric)
    def marked(output: Tensor, target: Tensor) -> Tensor:
        return metric(output, target)

    marked.smaller_is_better = True  # type: ignore[attr-defined]
    return marked


def default_loss(y: Tensor) -> PerSample:
    """Cross-entropy for whole-number targets, squared error for others."""
    return squared_error if y.dtype.is_floating_point else cross_entropy


def default_metrics(y: Tensor) -> Mapping[str, PerSample]:
    """Accuracy for whole-number targets; a regression is judged by its loss."""
    return {} if y.dtype.is_floating_point else {"accuracy": accuracy}
