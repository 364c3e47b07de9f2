"""Estimates from paired differences: cells (rows) by seeds (columns), NaN where a cell lacks a seed.

Two things set this apart from a textbook meta-analysis; `docs/explanation/judge.md` has the simulations.

- Three or four seeds tell a cell's variance badly, and weights of 1 / variance then reward cells that look precise by
  luck. Within-cell variances are pooled instead; random-effects weights are then equal, the estimate is the mean of the
  cells' means, and the interval of Hartung, Knapp, Sidik and Jonkman is Student's t over cells.
- Cells share their seeds, and with a seed the partition and the clients sampled, so they are not independent: 60 cells
  with the same four seeds are not 240 draws. The variance of the mean is therefore that over cells plus that over seeds
  (clustering by both, without the subtraction that makes it exact and sometimes negative), with degrees of freedom by
  Satterthwaite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.core.errors import AccordError

Array = NDArray[np.float64]
_NONE = 1e-100  # a variance whose square could be 0; that of accuracies in float64 which differ at all is above 1e-40


def scipy_stats() -> ModuleType:
    """scipy.stats, which is an extra: only who judges needs it."""
    try:
        from scipy import stats
    except ImportError:
        raise AccordError("intervals and verdicts need scipy: pip install 'accord-fl[studies]'") from None
    return stats


@dataclass(frozen=True)
class Estimate:
    """A mean or a slope with its interval."""

    value: float
    low: float
    high: float
    p: float  # that it is 0, two-sided
    cells: int
    seeds: int  # the fewest of any cell

    def within(self, margin: float) -> bool:
        return -margin < self.low and self.high < margin


@dataclass(frozen=True)
class Heterogeneity:
    """How far cells differ by more than their seeds explain."""

    q: float  # Cochran's Q with the pooled within-cell variance
    p: float
    tau: float  # the standard deviation between cells
    i2: float  # the share of the spread of cell means that is not the seeds'


def estimate(
    differences: Array, along: Sequence[float] | None = None, places: Sequence[str] = (), level: float = 0.95
) -> Estimate:
    """The mean over cells, or the slope `along` a number of each cell, where `places` that differ each have a level of
    their own. Where cells are no more than what is fitted (one for a mean, two for a slope), the seeds' variance is all
    there is."""
    means, counts = np.nanmean(differences, axis=1), np.isfinite(differences).sum(axis=1)
    cells = len(means)
    levels = (
        np.array([[place == one for one in dict.fromkeys(places)] for place in places])
        if places
        else np.ones((cells, 1))
    )
    design = levels if along is None else np.column_stack([levels, along])
    solver = np.linalg.pinv(design)
    weights = solver[-1]  # of the cells' means in the estimate: 1 / cells each for the mean
    value = float(weights @ means)
    spare = cells - design.shape[1]  # degrees of freedom between cells
    left = means - design @ (solver @ means)
    over_cells = float((left**2).sum() / spare * (weights**2).sum()) if spare else 0.0
    seeds = int(counts.min())
    if seeds < 2:
        return Estimate(value, -np.inf, np.inf, 1.0, cells, seeds)
    shares = weights / np.sqrt(counts * (counts - 1))
    by_seed = np.nansum((differences - means[:, None]) * shares[:, None], axis=0)
    over_seeds = float((by_seed**2).sum())
    variance = over_cells + over_seeds
    if variance < _NONE:
        return Estimate(value, value, value, float(value == 0.0), cells, seeds)
    # where cells have different seeds, the fewest count: a verdict must not rest on a seed that few of them have
    freedom = variance**2 / ((over_cells**2 / spare if spare else 0.0) + over_seeds**2 / (seeds - 1))
    t = scipy_stats().t
    error = float(np.sqrt(variance))
    reach = float(t.ppf(0.5 + level / 2, freedom)) * error
    return Estimate(value, value - reach, value + reach, float(2 * t.sf(abs(value) / error, freedom)), cells, seeds)


def heterogeneity(differences: Array) -> Heterogeneity | None:
    """Cochran's Q over at least two cells of at least two seeds. Q / (cells - 1) is compared with F, not Q with
    chi-square, since the variance is estimated; and with the degrees of freedom of Brown and Forsythe (corrected by
    Mehrotra), since cells' variances differ."""
    cells = len(differences)
    counts = np.isfinite(differences).sum(axis=1)
    if cells < 2 or counts.min() < 2:
        return None
    means, variances = np.nanmean(differences, axis=1), np.nanvar(differences, axis=1, ddof=1)
    share = counts / counts.sum()
    between = float((counts * (means - share @ means) ** 2).sum())
    parts = (1 - share) * variances
    noise = float(parts.sum())
    tau = float(np.sqrt(max(0.0, means.var(ddof=1) - np.mean(variances / counts))))
    if noise == 0.0:
        return Heterogeneity(np.inf if between else 0.0, 0.0 if between else 1.0, tau, float(between > 0))
    upper = noise**2 / ((variances**2).sum() + (share @ variances) ** 2 - 2 * (share @ variances**2))
    lower = noise**2 / (parts**2 / (counts - 1)).sum()
    f = between / noise
    return Heterogeneity(
        f * (cells - 1), float(scipy_stats().f.sf(f, upper, lower)), tau, max(0.0, 1 - 1 / f) if f else 0.0
    )


def explains(means: Array, labels: Sequence[str]) -> float:
    """The p-value that cells of one label are alike in the mean: an axis that tells cells apart has a small one."""
    groups = [means[[label == one for label in labels]] for one in dict.fromkeys(labels)]
    if sum(float(((group - group.mean()) ** 2).sum()) for group in groups) == 0.0:
        return 0.0
    result: Any = scipy_stats().f_oneway(*groups)
    return float(result.pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """p-values after Holm's correction, in the order given."""
    order = np.argsort(p)
    corrected = np.minimum(1.0, np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1)))
    result = np.empty(len(p))
    result[order] = corrected
    return [float(value) for value in result]
