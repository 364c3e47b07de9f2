"""Preparation fitted to the data: mean and spread of the training clients' samples, and of nobody else's."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from accord.data.federated import AsIs, Federation, Prepare, Scale, constants

_AT_ONCE = 10_000  # samples


@dataclass(frozen=True)
class Standardise:
    """Numbers of a table: (x - mean) / std, by column. `x: [B, F]`. A column of spread 0 becomes 0 for everybody: a
    model learns nothing of it in training, and its first guess at a weight must not meet another client's values."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return (x - constants(self.mean, x.device)) / constants(_divisors(self.std), x.device)


@lru_cache(maxsize=256)
def _divisors(std: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(spread or math.inf for spread in std)


def fitted(fed: Federation) -> Prepare:
    """Columns of a table and channels of whole-number pictures get mean 0 and spread 1 over the training data; the
    rest, such as inputs that say which category a row is of, stays as it is."""
    if fed.x.dtype == torch.uint8 and fed.x.ndim == 4:
        mean, std = _statistics(fed)
        std = torch.where(std > 0, std, 1.0)
        return Scale(tuple((mean / 255).tolist()), tuple((std / 255).tolist()))
    if fed.x.is_floating_point() and fed.x.ndim == 2 and fed.fields is None:
        mean, std = _statistics(fed)
        if flags := [flag for column in fed.columns for flag in column.flags]:
            mean, std = (torch.where(torch.tensor(flags), usual, value) for usual, value in ((0.0, mean), (1.0, std)))
        return Standardise(tuple(mean.tolist()), tuple(std.tolist()))
    return AsIs()


def follows_rows(fed: Federation) -> bool:
    """Whether the preparation is the one that the federation's own training rows give. Such a one changes with the
    rows; any other was fixed by whoever made the federation. A preparation does not say which it is: it is known by its
    numbers alone, and so are runs."""
    return fed.prepare == fitted(fed)


def _statistics(fed: Federation) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation by column or channel, in float64."""
    width = fed.x.shape[1]
    total, square = torch.zeros(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    low, high = (
        torch.full((width,), math.inf, dtype=torch.float64),
        torch.full((width,), -math.inf, dtype=torch.float64),
    )
    count = 0
    for part in _parts(fed):
        total, count = total + part.sum(0), count + len(part)
        low, high = torch.minimum(low, part.amin(0)), torch.maximum(high, part.amax(0))
    mean = total / max(count, 1)
    for part in _parts(fed):
        # about the mean: the difference of two large sums would lose the digits
        square = square + (part - mean).square().sum(0)
    std = (square / max(count, 1)).sqrt()
    # rounding may leave a constant column a little spread
    return mean, torch.where(low < high, std, 0.0)


def _parts(fed: Federation) -> Iterator[Tensor]:
    """The training samples as [n, F] numbers of one column or channel each, some thousands of samples at a time."""
    for rows in torch.cat([torch.zeros(0, dtype=torch.int64), *fed.train.values()]).split(_AT_ONCE):
        yield by_column(fed.x[rows]).double()


def by_column(x: Tensor) -> Tensor:
    """Samples as rows of numbers of one column or channel each: `[n, F]`, or pictures' pixels `[n * H * W, C]`."""
    return x.movedim(1, -1).flatten(0, -2)
