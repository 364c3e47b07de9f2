"""Metrics for targets that are numbers. `output` has as many numbers as `target`, whatever their shapes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from accord.core.class_metrics import sklearn_metrics
from accord.core.errors import AccordError
from accord.core.measure import Measure


def _check_numbers(output: Tensor, target: Tensor) -> None:
    if output.numel() == target.numel():
        return
    if target.is_floating_point():
        raise AccordError(
            f"needs an output for each target, got outputs of shape {tuple(output.shape)} and targets of shape"
            f" {tuple(target.shape)}"
        )
    raise AccordError("is for targets that are numbers, and these are class labels: take accuracy, auc or f1")


@dataclass(frozen=True)
class Mae(Measure):
    """The mean absolute error, over samples and over whatever a sample has more than one of. It is a mean of samples'
    errors, so that nothing need be gathered for it."""

    of_group = False
    smaller_is_better = True
    range = 0.0, math.inf

    def check(self, output: Tensor, target: Tensor) -> None:
        _check_numbers(output, target)

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return (output.reshape(target.shape) - target).abs().reshape(len(target), -1).mean(1)


@dataclass(frozen=True)
class R2(Measure):
    """The coefficient of determination: 1 less the squared error in units of the targets' variance, averaged over
    whatever a sample has more than one of."""

    range = -math.inf, 1.0
    needs = "it needs targets that differ, and no prediction that is NaN"
    pooled_from = "the clients' sums of targets, squares and squared errors"

    def check(self, output: Tensor, target: Tensor) -> None:
        _check_numbers(output, target)
        sklearn_metrics()

    def __call__(self, output: Tensor, target: Tensor) -> float | None:
        wanted = target.detach().double().cpu().reshape(len(target), -1)
        got = output.detach().double().cpu().reshape(wanted.shape)
        if not got.isfinite().all() or (wanted == wanted[:1]).all(0).any():
            return None
        return float(sklearn_metrics().r2_score(wanted.numpy(), got.numpy()))

    def lift(self, output: Tensor, target: Tensor) -> Tensor:
        """`[numbers of a sample, 4]`: samples, and the sums of targets, of their squares, and of squared errors."""
        wanted = target.detach().double().cpu().reshape(len(target), -1)
        error = output.detach().double().cpu().reshape(wanted.shape) - wanted
        return torch.stack([torch.ones_like(wanted), wanted, wanted.square(), error.square()]).sum(1).T

    def could_be(self, lifted: Tensor, samples: int) -> bool:
        fits = lifted.ndim == 2 and lifted.shape[1] == 4
        # errors of a model that diverged are NaN or infinite
        return fits and bool((lifted[:, 0] == samples).all()) and not bool((lifted[:, 2:] < 0).any())

    def lower(self, total: Tensor) -> float | None:
        samples, targets, squares, errors = total.T
        around = squares - targets.square() / samples  # the variance, times the samples
        # of equal targets, what rounding leaves of two equal numbers
        if not (around > 1e-12 * squares).all() or not errors.isfinite().all():
            return None
        return float((1 - errors / around).mean())
