"""How far one rival is ahead of another: paired by seed in a cell, and for every place of a table."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from accord.core.metrics import GAPS
from accord.studies.outcome import Figures, Result, judging_split
from accord.studies.published import Printed
from accord.studies.statistics import Estimate, estimate
from accord.studies.study import CONTROLS, Study, edges


@dataclass(frozen=True)
class Difference:
    """How far one rival is ahead of another, paired by seed: the mean, and a 95 % interval (Student's t) where there
    are seeds enough."""

    by_seed: dict[int, float]

    @property
    def seeds(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.by_seed.values())

    @cached_property
    def interval(self) -> Estimate:
        return estimate(np.array([list(self.by_seed.values())]))

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.interval.low > 0 or self.interval.high < 0


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Differences over the seeds that both have; None if there is none."""
    gaps = {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}
    return Difference(gaps) if gaps else None


@dataclass(frozen=True)
class Comparison:
    """A rival against the one that others are measured by, in one place of the table."""

    where: dict[str, str]
    rival: str
    against: str
    difference: Difference | None
    printed: float | None = None  # the difference as the paper has it, in percentage points
    # against rivals that take a step as short: see `CONTROLS`
    controls: dict[str, Difference | None] = field(default_factory=dict)
    compare: str = ""  # the axis that the rivals are values of
    diverged: int = 0  # seeds of both in which one has no figure, since its model diverged
    same_point: bool | None = None  # whether both did best at the same point of the grid; None without a grid
    held_back: bool = False  # whether the grid ends where the rival does best, and not where the other does


def compare(study: Study, results: Sequence[Result], metric: str, rule: str) -> list[Comparison]:
    """Every rival against `study.against`, wherever both have figures. `metric` is a split, or a gap: see
    `measured`."""
    by_place: dict[tuple[tuple[str, str], ...], dict[str, Result]] = {}
    for result in results:
        where = tuple((axis, value) for axis, value in result.cell.values.items() if axis != study.compare)
        by_place.setdefault(where, {})[result.cell.values[study.compare]] = result
    comparisons = []
    for where, rivals in by_place.items():
        base = rivals.get(study.against)
        for name, result in rivals.items():
            if base is None or name == study.against:
                continue
            gap, printed = _gap(result, base, metric, rule), _printed_gap(study, result, base, metric, rule)
            controls = {
                kind: _gap(result, rivals[f"{name}-{kind}"], metric, rule)
                for kind in CONTROLS
                if f"{name}-{kind}" in rivals
            }
            comparisons.append(
                Comparison(
                    dict(where),
                    name,
                    study.against,
                    gap,
                    printed,
                    controls,
                    study.compare,
                    diverged=_diverged(result, base, metric, rule),
                    same_point=_same_point(result, base, rule),
                    held_back=_held_back(result, base, rule),
                )
            )
    return comparisons


def best_of(results: Sequence[Result], axis: str, rule: str) -> list[Result]:
    """The results without an axis: in each place the best of its values, chosen as the rule chooses rates. Places that
    lack a value are left out."""
    groups: dict[frozenset[tuple[str, str]], list[Result]] = {}
    for result in results:
        if rule in result.figures:
            groups.setdefault(result.cell.key - {(axis, result.cell.values[axis])}, []).append(result)
    values = {result.cell.values[axis] for result in results}
    best = []
    for group in groups.values():
        if len(group) == len(values):
            chosen = max(group, key=lambda result: _mean(result.figures[rule].of(judging_split(rule))))
            numbers = [number for result in group for number in result.printed]
            left = {name: value for name, value in chosen.cell.values.items() if name != axis}
            printed = [max(numbers, key=lambda number: number.value)] if numbers else []
            best.append(replace(chosen, cell=replace(chosen.cell, values=left), printed=printed))
    return best


def _mean(values: Sequence[float]) -> float:
    """Over seeds; below every number where a model diverged."""
    mean = statistics.fmean(values) if values else math.nan
    return mean if math.isfinite(mean) else -math.inf


def beyond(first: Sequence[Comparison], second: Sequence[Comparison]) -> list[Comparison]:
    """How much farther each rival is ahead in the first than in the second, which has the same rivals in the same
    places by another rule."""
    return [
        replace(
            one,
            difference=_minus(one.difference, other.difference),
            printed=None if one.printed is None or other.printed is None else one.printed - other.printed,
            controls={kind: _minus(of, other.controls[kind]) for kind, of in one.controls.items()},
            diverged=max(one.diverged, other.diverged),
        )
        for one, other in zip(first, second, strict=True)
    ]


def _minus(one: Difference | None, other: Difference | None) -> Difference | None:
    return None if one is None or other is None else paired(one.by_seed, other.by_seed)


def _printed_gap(study: Study, result: Result, base: Result, metric: str, rule: str) -> float | None:
    """How far a paper has the one ahead of the other, in points: by this rule, or else by the table's own."""
    ours, theirs = (_printed(study, of.printed, metric, rule) for of in (result, base))
    return None if ours is None or theirs is None else ours - theirs


def _printed(study: Study, numbers: Sequence[Printed], metric: str, rule: str) -> float | None:
    of_metric = [number for number in numbers if number.split == metric]
    for wanted in (rule, study.rules[0]):
        if values := [number.value for number in of_metric if (number.rule or study.rules[0]) == wanted]:
            return statistics.fmean(values)  # of several seeds
    return None


def _same_point(result: Result, other: Result, rule: str) -> bool | None:
    points = [of.figures[rule].point for of in (result, other) if rule in of.figures]
    return points[0] == points[1] if len(points) == 2 and all(points) else None


def _held_back(result: Result, other: Result, rule: str) -> bool:
    if rule not in result.figures or rule not in other.figures:
        return False
    point, others = result.figures[rule].point, other.figures[rule].point
    return any(others.get(key) != point[key] for key in edges(result.cell.grid, point))


def _gap(result: Result, other: Result, metric: str, rule: str) -> Difference | None:
    if rule not in result.figures or rule not in other.figures:
        return None
    ours, theirs = (by_seed(of.figures[rule], metric) for of in (result, other))
    return paired(ours, theirs)


def _diverged(result: Result, other: Result, metric: str, rule: str) -> int:
    """Seeds of both in which one has no figure; all seeds of the one that has some, where the other diverged at every
    point of its grid."""
    if rule not in result.figures or rule not in other.figures:
        seeds = [len(of.figures[rule].by_seed) for of in (result, other) if rule in of.figures]
        return sum(seeds) if result.complete and other.complete else 0
    figures = result.figures[rule], other.figures[rule]
    known = [by_seed(of, metric).keys() for of in figures]
    if not any(known):  # the data have no such split
        return 0
    return len((figures[0].by_seed.keys() & figures[1].by_seed.keys()) - (known[0] & known[1]))


def by_seed(figures: Figures, metric: str) -> dict[int, float]:
    """A metric of every seed that has it, as `measured` has it."""
    known = {seed: measured(values, metric) for seed, values in figures.by_seed.items()}
    return {seed: value for seed, value in known.items() if value is not None}


def measured(values: Mapping[str, float], metric: str) -> float | None:
    """A metric of one run, the more the better: a split (`test`), or a gap with its sign turned (`train - test`,
    `participation`)."""
    gap = GAPS.get(metric)
    first, minus, second = metric.partition(" - ") if gap is None else (gap.first, " - ", gap.second)
    if first not in values or (minus and second not in values):
        return None
    value = values[second] - values[first] if minus else values[first]
    return value if math.isfinite(value) else None  # a model that diverged
