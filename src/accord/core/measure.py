"""What a metric declares of itself: whether it is a number per sample or of a whole group, and which way is better.

A plain function of (output, target) is a metric per sample of which more is better; `per_sample` and `group` declare
otherwise. A class of yours may inherit from `Measure` and leave out what has a default here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.members import check_members, has_own_call, members_of

PerSample = Callable[[Tensor, Tensor], Tensor]  # (output, target) -> [B], one number per sample
EVERY_NUMBER = (-math.inf, math.inf)
SLACK = 1e-6  # of sums of many shares, which are rounded
_MARKS = ("smaller_is_better", "nan_counts_as", "range", "fits", "computed_by")  # that a plain function may carry
_NOT_POOLED = "this metric cannot be pooled over the clients of a deployment"


@runtime_checkable
class Measure(Protocol):
    """A metric. Per sample it is called with a batch and gives `[B]`; of a group, with all outputs and targets of a
    client or of all clients of a split, on the CPU, and gives one number, or None where it is undefined."""

    @property
    def of_group(self) -> bool:
        """Whether it is of a whole group of samples."""
        return True

    @property
    def smaller_is_better(self) -> bool:
        return False

    @property
    def nan_counts_as(self) -> float:
        """Per sample, what a prediction that is NaN counts as; NaN if there is no value then."""
        return math.nan

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest that a figure can be; per sample, that of one."""
        return EVERY_NUMBER

    @property
    def needs(self) -> str:
        """Of a group, what a group without a value lacks, as in `it needs samples of two classes`."""
        return "the metric gave no number"

    @property
    def pooled_from(self) -> str | None:
        """Of a group, what the clients of a deployment send so that the server can compute the value of all of them;
        None if it cannot."""
        return None

    def check(self, output: Tensor, target: Tensor) -> None:
        """Refuses outputs and targets that it is not for, before anything is trained."""

    def __call__(self, output: Tensor, target: Tensor) -> Any: ...

    def lift(self, output: Tensor, target: Tensor) -> Tensor:
        """Of a group: what a client sends in a deployment. Clients' tensors are added."""
        raise AccordError(_NOT_POOLED)

    def lower(self, total: Tensor) -> float | None:
        """Of a group: the figure that a total comes to."""
        raise AccordError(_NOT_POOLED)

    def could_be(self, lifted: Tensor, samples: int) -> bool:
        """Of a group: whether `lift` can give this for so many samples. A server asks it of what clients send."""
        return False


Metrics = Mapping[str, PerSample | Measure]


def _fits_anything(output: Tensor, target: Tensor) -> None:
    """What a user's function is for, nobody else knows."""


@dataclass(frozen=True)
class per_sample(Measure):
    """A function that gives one number per sample.

    `nan_counts_as` is what a prediction that is NaN counts as; left out, the figure is then missing.

    >>> near = accord.metrics.per_sample(lambda output, target: ((output[:, 0] - target).abs() < 1).float(),
    ...                                  nan_counts_as=0.0)
    """

    function: PerSample
    smaller_is_better: bool = False
    nan_counts_as: float = math.nan
    fits: Callable[[Tensor, Tensor], None] = _fits_anything  # refuses what it is not for
    range: tuple[float, float] = EVERY_NUMBER

    of_group = False

    def check(self, output: Tensor, target: Tensor) -> None:
        self.fits(output, target)

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return self.function(output, target)


@dataclass(frozen=True)
class group(Measure):
    """A function that is given all outputs and targets of a group, as tensors on the CPU, and gives one number, or None
    for a group of which it is undefined.

    >>> spread = accord.metrics.group(lambda output, target: output.std().item(), smaller_is_better=True)
    """

    function: Callable[[Tensor, Tensor], float | None]
    smaller_is_better: bool = False

    def __call__(self, output: Tensor, target: Tensor) -> float | None:
        return self.function(output, target)


def declared(metric: PerSample | Measure) -> Measure:
    """A metric that says what it is. A plain function is per sample, with the marks that it carries."""
    if isinstance(metric, Measure):
        return metric
    wraps_another = hasattr(metric, "__wrapped__")  # whose marks it carries, but it computes something of its own
    return per_sample(
        metric if wraps_another else getattr(metric, "computed_by", metric),
        getattr(metric, "smaller_is_better", False),
        getattr(metric, "nan_counts_as", math.nan),
        getattr(metric, "fits", _fits_anything),
        EVERY_NUMBER if wraps_another else getattr(metric, "range", EVERY_NUMBER),
    )


def check_custom_metric(name: str, metric: PerSample | Measure) -> None:
    """Raises an error for a public member of a custom metric that no evaluation uses. Functions and modules of PyTorch
    are called as they are."""
    if isinstance(metric, nn.Module) or not has_own_call(metric):
        return
    inherits = isinstance(metric, Measure)
    for member in members_of(Measure):
        if not inherits and member not in _MARKS and hasattr(metric, member):
            raise AccordError(
                f"metric {name}: {type(metric).__name__} has {member!r}, which accord uses only if the class inherits"
                " from accord.metrics.Measure."
            )
    check_members(f"metric {name}", metric, [Measure] if inherits else [], also=() if inherits else _MARKS)


def in_range(values: Tensor, bounds: tuple[float, float], samples: Tensor) -> bool:
    """Whether these are sums over so many samples, `[G]`, of numbers within bounds. A figure that is none, NaN, is one
    only of a metric that has no bound on a side."""
    low, high = bounds
    slack = SLACK * samples
    fits = (values >= _times(low, samples) - slack) & (values <= _times(high, samples) + slack)
    return bool((fits | values.isnan() & (not (math.isfinite(low) and math.isfinite(high)))).all())


def _times(bound: float, samples: Tensor) -> Tensor:
    # infinity times 0 is NaN; over no samples every sum is 0
    return samples * bound if math.isfinite(bound) else torch.where(samples > 0, bound, 0.0)


def are_counts(lifted: Tensor) -> bool:
    """Whether all are finite, and none below 0."""
    return bool(lifted.isfinite().all()) and bool((lifted >= 0).all())


def figure_of(name: str, measure: Measure, output: Tensor, target: Tensor, whose: str) -> float | None:
    """A group's figure; None where there is none. What a user's function gives otherwise is said in a sentence."""
    try:
        value = measure(output, target)
    except AccordError:
        raise
    except Exception as error:
        raise AccordError(f"the metric {name} failed on {whose}: {error}") from error
    if value is None:
        return None
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise AccordError(
            f"the metric {name} must give one number for a group of samples, or None, got {type(value).__name__}"
            + (f" of shape {list(value.shape)}" if isinstance(value, Tensor) else "")
        ) from None
    return number if math.isfinite(number) else None
