"""The losses and metrics used when the user brings none. Each gives one number per sample."""

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.core.measure import Measure, PerSample
from accord.core.predicted import check_labels, class_axes, mean_where_labelled


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """For class labels. `output: [B, classes]`, `target: [B]`."""
    return F.cross_entropy(output, target, reduction="none")


def dense_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """For a class label at every pixel, or every place of a sequence: the mean over those of a sample that have one.
    `target: [B, ...]`, -100 where there is none; `output: [B, classes, ...]`, as torch has it, or `[B, ..., classes]`.
    """
    first, last = class_axes(output, target)
    if first and last:
        raise AccordError(
            f"outputs of shape {tuple(output.shape)} may have their classes in dimension 1 or in the last one: give"
            " loss=torch.nn.CrossEntropyLoss() if it is dimension 1, else move them there"
        )
    return mean_where_labelled(
        F.cross_entropy(output if first else output.movedim(-1, 1), target, reduction="none"), target
    )


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """For numbers: the squared error, averaged over whatever a sample has more than one of."""
    return (output.reshape(target.shape) - target).square().reshape(len(target), -1).mean(1)


# accord's own, by name; none can be below 0
LOSSES: dict[str, PerSample] = {of.__name__: of for of in (cross_entropy, dense_cross_entropy, squared_error)}
for _loss in LOSSES.values():
    vars(_loss).update(range=(0.0, math.inf))


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """One where the most likely class is the right one, else zero."""
    return (output.argmax(1) == target).float()


def _right(output: Tensor, target: Tensor) -> Tensor:
    """The same, also of a single logit, which is that of class 1 of two; where every pixel has a class, the share of
    pixels that are right."""
    if target.ndim == 1 and (output.ndim == 1 or output.shape[1] == 1):
        return ((output.reshape(target.shape) > 0) == (target > 0)).float()
    if target.ndim > 1:
        predicted = output.argmax(1 if class_axes(output, target)[0] else -1)
        return mean_where_labelled((predicted == target).float(), target)
    return accuracy(output, target)


# As marks beside the code: a run folder's name holds the code of its metrics, and must not change.
vars(accuracy).update(computed_by=_right, nan_counts_as=0.0, fits=check_labels, range=(0.0, 1.0))


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


@dataclass(frozen=True)
class unreduced:
    """A loss of torch's that averages over a batch, asked for a number per sample: the mean, or the sum, of what it
    gives for the sample. Whole-number targets that the loss compares with outputs one by one are numbers to it."""

    loss: Callable[..., Tensor]
    total: bool = False

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if output.numel() == target.numel():
            target = target.reshape(output.shape)
            target = target if target.is_floating_point() else target.to(output.dtype)
        values = self.loss(output, target).reshape(len(target), -1)
        return values.sum(1) if self.total else values.mean(1)


def per_sample_loss(loss: Any, device: torch.device) -> PerSample:
    """A loss that gives a number per sample. One of torch's that has a `reduction` (`nn.BCEWithLogitsLoss()`,
    `F.mse_loss`) is asked for none; any other is taken as it is."""
    if isinstance(loss, nn.Module):
        reduction = vars(loss).get("reduction", "none")
        if reduction in ("mean", "sum"):
            each = copy.deepcopy(loss).to(device)
            each.reduction = "none"  # type: ignore[assignment]
            return unreduced(each, reduction == "sum")
    elif (reduction := _reduction_of(loss)) in ("mean", "sum"):
        return unreduced(functools.partial(loss, reduction="none"), reduction == "sum")
    made: PerSample = loss
    return made


def _reduction_of(function: Any) -> Any:
    """The default of a function's parameter `reduction`; none where it has none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of what is no function, or one that does not say
        return "none"
    return parameters["reduction"].default if "reduction" in parameters else "none"


def default_loss(y: Tensor) -> PerSample:
    """Cross-entropy for whole-number targets, squared error for others."""
    if y.dtype.is_floating_point:
        return squared_error
    return cross_entropy if y.ndim == 1 else dense_cross_entropy


def default_metrics(y: Tensor, own_loss: bool = False) -> Mapping[str, PerSample]:
    """Accuracy for class labels, also of every pixel; a regression is judged by its loss, and so are several labels per
    sample, which come with a loss of their own."""
    several_labels = y.ndim == 2 and own_loss
    return {} if y.dtype.is_floating_point or several_labels else {"accuracy": accuracy}
