"""A paper's claim and a verdict on it, by rules of which docs/explanation/judge.md says when they were set.

A claim pools its cells: a random-effects estimate of the paired difference with its 95 % interval
(`statistics.estimate`), which `verdict.called` judges. A trend is judged by its change (`trend.py`), an analysis's
table by what is true of its rows (`analysis_claims.py`).

    same rates    of how often both do best at the same point of the grid, with the 95 % interval of Clopper and
                  Pearson: confirmed: the interval lies above one half. Refuted: it lies below.
    mostly ahead  the same of how often the rival's mean is the higher one. Refuted: the interval lies below the share
                  of cells that the paper says.

Cells need three seeds to count, and a claim about several cells needs two that count. Where cells differ by more than
their seeds explain, and an axis tells them apart, each of its values has a verdict of its own and the pool has none.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from accord.studies.claim import Claim
from accord.studies.differences import Comparison, Difference, paired
from accord.studies.statistics import Estimate, estimate, explains, heterogeneity, scipy_stats
from accord.studies.text import interval_text
from accord.studies.trend import position, trend
from accord.studies.verdict import (
    FEW_CONTROLS,
    NO_CONTROL,
    NOT_PAIRED,
    NOT_RUN,
    SEEDS,
    Verdict,
    called,
    control_name,
    in_cells,
    lacking_control,
    matrix,
    over_control,
    pooled,
    size_remark,
)


def judge(claim: Claim, comparisons: Sequence[Comparison], places: int | None = None) -> Verdict:
    """What the comparisons of the claim's study say of it. `places` is how many cells it is about, run or not."""
    about = [_with_control(claim, c, comparisons) for c in comparisons if claim.about(c)]
    run = [c for c in about if c.difference is not None]
    diverged = sum(c.diverged for c in about if not claim.axis or position(claim, c) is not None)
    if not run and not diverged:
        return Verdict("open", NOT_PAIRED) if about else Verdict(NOT_RUN, "no cell of it has been run")
    if claim.expects == "described":
        return Verdict("open", claim.how or "a description, which no rule of the judge decides")
    cells = [c for c in run if c.difference is not None and c.difference.seeds >= SEEDS]
    if claim.axis:
        cells = [c for c in cells if position(claim, c) is not None]
    total = max(places or 0, len(run))
    if diverged:
        why = f"a rule's model diverged, and has no figure, in {diverged} of its seeds: the rest would flatter it"
        return Verdict("open", why, cells=_counted(cells, total))
    return replace(_judged(claim, cells, total), cells=_counted(cells, total))


def _judged(claim: Claim, cells: Sequence[Comparison], total: int) -> Verdict:
    """By the cells that have seeds enough, of all that the claim is about."""
    if len(cells) < min(2, total):
        few = f"{len(cells)} of {total} cells with {SEEDS} seeds or more, and a verdict needs {min(2, total)}"
        return Verdict("open", few)
    notes = [f"{len(cells)} of {total} cells have been run"] * (len(cells) < total)
    if claim.expects in ("grows", "falls"):
        verdict = trend(claim, cells, total)
        return _with_notes(verdict, _held_back(verdict.kind, cells))
    if claim.expects == "same rates":
        return _with_notes(_same_rates(cells), notes)
    if claim.expects == "mostly ahead":
        ahead = [c.difference.mean > 0 for c in cells if c.difference is not None]
        return _with_notes(_share(ahead, "ahead", claim.share), notes)
    spread = heterogeneity(matrix([c.difference for c in cells]))
    differ = spread is not None and spread.p < 0.05
    axis = _telling_axis(cells) if differ else ""
    verdict = _by_value(claim, cells, axis) if axis else _pooled(claim, cells, 0.95)
    notes = [*_held_back(verdict.kind, cells), *notes]
    if spread is not None:
        more = "cells differ by more than their seeds explain" + ", along no one axis" * (not axis)
        notes.append(
            (f"{more}: " if differ else "")
            + f"Q p = {spread.p:.2g}, tau {100 * spread.tau:.2f}, I2 {100 * spread.i2:.0f} %"
        )
    return _with_notes(verdict, notes)


def _with_notes(verdict: Verdict, notes: Sequence[str]) -> Verdict:
    return replace(verdict, why="; ".join([verdict.why, *notes]))


def _counted(cells: Sequence[Comparison], total: int) -> str:
    """`24 of 60: mnist, fmnist`, where the axis of data sets says which; `24` if these are all."""
    if len(cells) >= total:
        return str(len(cells))
    data = dict.fromkeys(c.where["dataset"] for c in cells if "dataset" in c.where)
    return f"{len(cells)} of {total}" + f": {', '.join(data)}" * bool(data)


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
    """The cell with the control that its claim names, if it names one: another rival of the same place."""
    if not claim.control:
        return cell
    control = claim.control.replace("{rival}", cell.rival)
    for other in comparisons:
        if other.rival == control and other.where == cell.where and other.difference and cell.difference:
            over = paired(cell.difference.by_seed, other.difference.by_seed)
            return replace(cell, controls={**cell.controls, "length": over})
    return cell


def _by_value(claim: Claim, cells: Sequence[Comparison], axis: str) -> Verdict:
    """A verdict for each value of an axis, from intervals that hold all at once (Bonferroni)."""
    values = list(dict.fromkeys(c.where[axis] for c in cells))
    level = 1 - 0.05 / len(values)
    parts = [_pooled(claim, [c for c in cells if c.where[axis] == value], level) for value in values]
    why = "; ".join(f"{axis} {value}: {part.kind}, {part.why}" for value, part in zip(values, parts, strict=True))
    by_value = {value: part.kind for value, part in zip(values, parts, strict=True)}
    kinds = sorted({*by_value.values()})
    figure = "; ".join(f"{axis} {', '.join(v for v in values if by_value[v] == kind)}: {kind}" for kind in kinds)
    kind = kinds[0] if len(kinds) == 1 else "depends"
    small = kind == "confirmed" and all(part.small for part in parts)
    over = {part.over_control for part in parts}
    alone = over.pop() if over in ({NO_CONTROL}, {FEW_CONTROLS}) else ""
    return Verdict(kind, why, figure, _theirs(cells), small=small, over_control=alone, by_value=by_value)


def _pooled(claim: Claim, cells: Sequence[Comparison], level: float) -> Verdict:
    pooled_difference = estimate(matrix([c.difference for c in cells]), level=level)
    kind = called(claim.expects, pooled_difference)
    remark = size_remark(kind, pooled_difference) if claim.expects in ("ahead", "behind") else ""
    count = f"{pooled_difference.cells} cell{'s' * (pooled_difference.cells > 1)}"
    theirs, figure = _theirs(cells), interval_text(pooled_difference)
    text = f"{figure} points in {count}" + f" (printed there: {theirs})" * bool(theirs)
    small = kind == "confirmed" and bool(remark)
    if not claim.has_control:
        return Verdict(kind, text + remark, figure, theirs, small=small)
    controls = [c.controls.get("length") for c in cells]
    gap = pooled(controls, level)
    over = interval_text(gap) + in_cells(gap.cells, len(controls)) if gap else lacking_control(controls)
    why = f"{text}{remark}" + _control(claim, gap, controls) * (kind != "open")
    return Verdict(kind, why, figure, theirs, small=small, over_control=over)


def _theirs(cells: Sequence[Comparison]) -> str:
    """The mean gain that the paper prints for these cells, in points; nothing where it prints none."""
    printed = [c.printed for c in cells if c.printed is not None]
    return f"{statistics.fmean(printed):+.2f}" if printed else ""


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


def _same_rates(cells: Sequence[Comparison]) -> Verdict:
    same = [c.same_point for c in cells if c.same_point is not None]
    if len(same) < 2:
        return Verdict("open", "fewer than two cells were tuned over a grid")
    return _share(same, "the same rates are best")


def _share(cells: Sequence[bool], what: str, said: float = 0.5) -> Verdict:
    """Whether something is so in most cells; `said` is the share that a paper says, which may be larger."""
    interval = scipy_stats().binomtest(sum(cells), len(cells)).proportion_ci(0.95, "exact")
    kind = "open"
    if interval.high < said:
        kind = "refuted"
    elif interval.low > 0.5:
        kind = "confirmed"
    share = f"{100 * sum(cells) / len(cells):.0f} % ({100 * interval.low:.0f} to {100 * interval.high:.0f})"
    return Verdict(kind, f"{what} in {sum(cells)} of {len(cells)} cells, {share}", f"{what} in {share}")


def _control(claim: Claim, gap: Estimate | None, controls: Sequence[Difference | None]) -> str:
    """Whether the control (a plain step as long as the masked one) does the same. `gap` is what the `controls` of the
    cells come to."""
    if gap is None:
        count = sum(control is not None for control in controls)
        return f", with {lacking_control(controls)}" + f" (in {count} of {len(controls)} cells)" * bool(count)
    return f", {over_control(gap, control_name(claim))}{in_cells(gap.cells, len(controls))}"
