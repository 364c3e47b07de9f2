"""A paper's claim and a verdict on it, by rules of which docs/explanation/judge.md says when they were set.

A claim pools its cells: a random-effects estimate of the paired difference with its 95 % interval
(`statistics.estimate`).

    ahead       confirmed: the interval lies above 0. Refuted: it lies below 0, or within the margin around 0.
    not behind  confirmed: it lies above minus the margin. Refuted: it lies below minus the margin.
    behind      as ahead, with the sign turned.
    grows       as ahead, for the change of the difference from the axis's smallest value to its largest; falls: with
                the sign turned.
    same rates  of how often both do best at the same point of the grid, with the 95 % interval of Clopper and Pearson:
                confirmed: the interval lies above one half. Refuted: it lies below.
    holds       of an analysis: confirmed where what it says of the table's columns is true of every row
                (`analysis_claims.py`).

Else the claim is open. Cells need three seeds to count, and a claim about several cells needs two that count. Where
cells differ by more than their seeds explain, and an axis tells them apart, each of its values has a verdict of its own
and the pool has none.
"""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accord.core.metrics import Metric
from accord.studies.claim import Claim
from accord.studies.outcome import Comparison, Difference, paired
from accord.studies.statistics import Array, Estimate, estimate, explains, heterogeneity, scipy_stats
from accord.studies.text import ACCURACY, interval_text

MARGIN = 0.002  # 0.2 points of accuracy: a smaller difference is none
_ROUNDING = 1e-12  # where all seeds agree, an interval is as wide as this
SEEDS = 3  # fewer say nothing about how much seeds vary
NEVER_RUN = "no cell of it has been run"


@dataclass(frozen=True)
class Verdict:
    """`kind` is confirmed, refuted, open, or depends: then `why` has a verdict for each value of an axis."""

    kind: str
    why: str
    figure: str = ""  # the one number that tells most: the difference with its interval
    printed: str = ""  # what the paper has there
    cells: str = ""  # how many count


def judge(claim: Claim, comparisons: Sequence[Comparison], places: int | None = None) -> Verdict:
    """What the comparisons of the claim's study say of it. `places` is how many cells it is about, run or not."""
    if claim.expects == "described" and comparisons:
        return Verdict("open", claim.how or "a description, which no rule of the judge decides")
    run = [_with_control(claim, c, comparisons) for c in comparisons if claim.about(c) and c.difference is not None]
    if not run:
        return Verdict("open", NEVER_RUN)
    cells = [c for c in run if c.difference is not None and c.difference.seeds >= SEEDS]
    total = max(places or 0, len(run))
    if len(cells) < min(2, total):
        few = f"{len(cells)} of {total} cells with {SEEDS} seeds or more, and a verdict needs {min(2, total)}"
        return Verdict("open", few, cells=_of(len(cells), total))
    if claim.expects in ("grows", "falls"):
        trend = _trend(claim, cells, total)
        return replace(trend, why="; ".join([trend.why, *_held_back(trend.kind, cells)]))
    if claim.expects == "same rates":
        return _same_rates(cells, total)
    spread = heterogeneity(_matrix([c.difference for c in cells]))
    differ = spread is not None and spread.p < 0.05
    axis = claim.parts or (_telling_axis(cells) if differ else "")
    verdict = _by_value(claim, cells, axis) if axis else _pooled(claim, cells, 0.95)
    notes = _held_back(verdict.kind, cells)
    notes += [f"{len(cells)} of {total} cells have been run"] * (len(cells) < total)
    if spread is not None:
        more = "cells differ by more than their seeds explain" + ", along no one axis" * (not axis)
        notes.append(
            (f"{more}: " if differ else "")
            + f"Q p = {spread.p:.2g}, tau {100 * spread.tau:.2f}, I2 {100 * spread.i2:.0f} %"
        )
    return replace(verdict, why="; ".join([verdict.why, *notes]), cells=_of(len(cells), total))


def _of(count: int, total: int) -> str:
    return str(count) if count >= total else f"{count} of {total}"


def _held_back(kind: str, cells: Sequence[Comparison]) -> list[str]:
    """Of a verdict that decides: where a wider grid might favour the rival more than the other."""
    count = sum(c.held_back for c in cells)
    if kind == "open" or not count:
        return []
    first = next(c for c in cells if c.held_back)
    return [
        f"in {count} of {len(cells)} cells a best rate of {first.rival} is the last that was tried, and not that of"
        f" {first.against}"
    ]


def _with_control(claim: Claim, cell: Comparison, comparisons: Sequence[Comparison]) -> Comparison:
    """The cell with the control that its claim names: another rival of the same place."""
    for other in comparisons:
        if other.rival == claim.control and other.where == cell.where and other.difference and cell.difference:
            over = paired(cell.difference.by_seed, other.difference.by_seed)
            return replace(cell, controls={**cell.controls, "length": over})
    return cell


def _by_value(claim: Claim, cells: Sequence[Comparison], axis: str) -> Verdict:
    """A verdict for each value of an axis, from intervals that hold all at once (Bonferroni)."""
    values = list(dict.fromkeys(c.where[axis] for c in cells))
    level = 1 - 0.05 / len(values)
    parts = [_pooled(claim, [c for c in cells if c.where[axis] == value], level) for value in values]
    kinds = {part.kind for part in parts}
    why = "; ".join(f"{axis} {value}: {part.kind}, {part.why}" for value, part in zip(values, parts, strict=True))
    by_kind = {kind: [value for value, part in zip(values, parts, strict=True) if part.kind == kind] for kind in kinds}
    figure = "; ".join(f"{axis} {', '.join(by_kind[kind])}: {kind}" for kind in sorted(by_kind))
    return Verdict(kinds.pop() if len(kinds) == 1 else "depends", why, figure, _theirs(cells))


def _pooled(claim: Claim, cells: Sequence[Comparison], level: float) -> Verdict:
    pooled_difference = estimate(_matrix([c.difference for c in cells]), level=level)
    kind = called(claim.expects, pooled_difference)
    remark = "" if claim.expects == "not behind" else _small(kind, pooled_difference)
    count = f"{pooled_difference.cells} cell{'s' * (pooled_difference.cells > 1)}"
    theirs, figure = _theirs(cells), interval_text(pooled_difference)
    text = f"{figure} points in {count}" + f" (printed there: {theirs})" * bool(theirs)
    return Verdict(kind, f"{text}{remark}{_control(claim, kind, cells, level)}", figure, theirs)


def _theirs(cells: Sequence[Comparison]) -> str:
    """The mean gain that the paper prints for these cells, in points; nothing where it prints none."""
    printed = [c.printed for c in cells if c.printed is not None]
    return f"{statistics.fmean(printed):+.2f}" if printed else ""


def _small(kind: str, difference: Estimate) -> str:
    """A remark on a difference that decides though it is hardly any."""
    if kind == "open" or not difference.within(MARGIN):
        return ""
    return ", within the margin" if kind == "refuted" else ", a difference under the margin"


def called(expects: str, estimate: Estimate, margin: float = MARGIN) -> str:
    """The rule of this page's head."""
    if expects == "not behind":
        return "confirmed" if estimate.low > -margin else "refuted" if estimate.high < -margin else "open"
    if expects == "behind":
        return called("ahead", _turned(estimate), margin)
    if estimate.low > _ROUNDING:
        return "confirmed"
    return "refuted" if estimate.high < -_ROUNDING or estimate.within(margin) else "open"


def _control(claim: Claim, kind: str, cells: Sequence[Comparison], level: float) -> str:
    """Of a verdict that decides: whether its control (a plain step as long as the masked one) does the same."""
    if kind == "open":
        return ""
    controls = [c.controls.get("length") for c in cells]
    gap = pooled(controls, level)
    if gap is None:
        return ", with no control"
    few = f" (in {gap.cells} of {len(cells)} cells)" * (gap.cells < len(cells))
    return f", {over_control(gap, f'`{claim.control}`' if claim.control else 'a shorter step')}{few}"


def over_control(gap: Estimate, control: str, metric: Metric = ACCURACY) -> str:
    """How far a rule is ahead of its control, in words."""
    text = interval_text(gap, metric)
    if gap.within(MARGIN):
        return f"{control} does the same: {text}"
    if gap.low > 0:
        return f"ahead of {control} by {text}"
    if gap.high < 0:
        return f"behind {control} by {text}"
    return f"no difference shown from {control}: {text}"


def pooled(differences: Sequence[Difference | None], level: float = 0.95) -> Estimate | None:
    """The estimate over the cells that have seeds enough to count; None where too few of them do."""
    enough = [difference for difference in differences if difference is not None and difference.seeds >= SEEDS]
    return None if len(enough) < min(2, len(differences)) else estimate(_matrix(enough), level=level)


def _telling_axis(cells: Sequence[Comparison]) -> str:
    """The axis that explains most of how cells differ; none if the best explains no more than chance would. An axis
    with a value for each cell explains everything, so it counts only where there is no other, and then the cells are
    judged one by one."""
    values = {axis: [c.where[axis] for c in cells] for axis in cells[0].where}
    grouping = {axis: labels for axis, labels in values.items() if 1 < len(set(labels)) < len(cells)}
    if not grouping:
        return next((axis for axis, labels in values.items() if len(set(labels)) == len(cells)), "")
    means = np.array([c.difference.mean for c in cells if c.difference is not None])
    p = {axis: explains(means, labels) for axis, labels in grouping.items()}
    best = min(p, key=lambda axis: p[axis])
    return best if p[best] * len(p) < 0.05 else ""


def _trend(claim: Claim, cells: Sequence[Comparison], total: int) -> Verdict:
    """The change of the difference along an axis, with a level of its own for every combination of the other axes.
    Where one value is ten times another, the logarithm counts. Where the axis is the rivals' own, the one they are
    measured by is on it too, with 0."""
    points: list[tuple[str, str, Difference]] = []
    for c in cells:
        assert c.difference is not None
        points.append(
            (c.rival if claim.axis == c.compare else c.where[claim.axis], str(_rest(c, claim.axis)), c.difference)
        )
    if claim.axis == cells[0].compare:
        for c in {str(c.where): c for c in cells}.values():
            assert c.difference is not None
            points.append((c.against, str(_rest(c, claim.axis)), Difference(dict.fromkeys(c.difference.by_seed, 0.0))))
    places = {value: place for place, value in enumerate(claim.order)}
    number = places.get if claim.order else number_in
    numbers = [(number(value), place, difference) for value, place, difference in points]
    known = [(number, place, difference) for number, place, difference in numbers if number is not None]
    along = np.array([number for number, _, _ in known])
    if all(len({number for number, place, _ in known if place == one}) < 2 for _, one, _ in known):
        return Verdict("open", f"a trend along {claim.axis} needs two of its values with {SEEDS} seeds or more")
    low, high = along.min(), along.max()
    if low > 0 and high >= 10 * low:
        along = np.log(along)
    along = (along - along.min()) / (along.max() - along.min())
    change = estimate(_matrix([d for _, _, d in known]), along=list(along), places=[place for _, place, _ in known])
    ends = (claim.order[int(end)] if claim.order else f"{end:g}" for end in (low, high))
    text = f"{interval_text(change)} points from {claim.axis} {' to '.join(ends)}, {change.cells} cells"
    kind = called("ahead" if claim.expects == "grows" else "behind", change)
    return Verdict(kind, text + _small(kind, change), interval_text(change), cells=_of(change.cells, total))


def _same_rates(cells: Sequence[Comparison], total: int) -> Verdict:
    same = [c.same_point for c in cells if c.same_point is not None]
    if len(same) < 2:
        return Verdict("open", "fewer than two cells were tuned over a grid")
    interval = scipy_stats().binomtest(sum(same), len(same)).proportion_ci(0.95, "exact")
    kind = "confirmed" if interval.low > 0.5 else "refuted" if interval.high < 0.5 else "open"
    share = f"{100 * sum(same) / len(same):.0f} % ({100 * interval.low:.0f} to {100 * interval.high:.0f})"
    text = f"both do best at the same rates in {sum(same)} of {len(same)} cells, {share}"
    few = f"; {len(cells)} of {total} cells have been run" * (len(cells) < total)
    return Verdict(kind, text + few, f"the same in {share}", cells=_of(len(cells), total))


def _turned(estimate: Estimate) -> Estimate:
    return replace(estimate, value=-estimate.value, low=-estimate.high, high=-estimate.low)


def _rest(comparison: Comparison, axis: str) -> dict[str, str]:
    return {name: value for name, value in comparison.where.items() if name != axis}


def number_in(value: str) -> float | None:
    """The number in a value's name: 0.1 of `corrective alpha=0.1`."""
    numbers = re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", value)
    return float(numbers[-1]) if numbers else None


def _matrix(differences: Sequence[Difference | None]) -> Array:
    """Cells by seeds, NaN where a cell lacks a seed."""
    known = [difference.by_seed for difference in differences if difference is not None]
    seeds = sorted({seed for by_seed in known for seed in by_seed})
    return np.array([[by_seed.get(seed, math.nan) for seed in seeds] for by_seed in known])
