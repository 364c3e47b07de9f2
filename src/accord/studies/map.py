"""A map of where a mask helps: settings in which nothing is tuned, each an arm of averaging, masks and their controls.

A study whose settings are dealt into two halves (an axis `half`) is a map. A mask helps where it is ahead of averaging
and of a plain step of its own length. That is looked at in every region (all settings, and those with one value of an
axis), for every mask and rule (a round), and counts after Holm's correction over all of these. Whoever looks in many
places finds some, so there is a second test: the first half of the settings chooses for each rule a mask, and a mask
with a region, and the second half, which had no part in it, judges the choice (docs/explanation/judge.md).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from accord.studies.analysis import Analysis
from accord.studies.differences import Comparison, Difference, compare
from accord.studies.outcome import Result
from accord.studies.statistics import Estimate, holm
from accord.studies.study import Study
from accord.studies.verdict import MARGIN, SEEDS, pooled

HALF = "half"  # the axis that deals settings into those that choose and those that judge
CHOOSES, JUDGES = "first", "second"
_CONTROL = "length"
_LEVEL = 0.05
ByRule = dict[str, list[Comparison]]


@dataclass(frozen=True)
class Region:
    """The settings with one value of an axis; all of them where neither is named."""

    axis: str = ""
    value: str = ""

    def holds(self, comparison: Comparison) -> bool:
        return not self.axis or comparison.where[self.axis] == self.value

    def __str__(self) -> str:
        return f"{self.axis} {self.value}" if self.axis else "all settings"


EVERYWHERE = Region()


@dataclass(frozen=True)
class Finding:
    """One mask in one region by one rule: how far it is ahead of averaging, and of its control."""

    mask: str
    region: Region
    rule: str
    ahead: Estimate
    control: Estimate

    @property
    def lead(self) -> float:
        """What it is ahead of both by at least. Choices go by it: a mean over few settings is large by luck, and then
        its interval is wide."""
        return min(self.ahead.low, self.control.low)

    @property
    def p(self) -> float:
        """That it is not ahead of both. Each is tested by itself, and the weaker one counts: an intersection-union
        test, which needs no correction for being two."""
        return max(self.ahead.p, self.control.p) if min(self.ahead.value, self.control.value) > 0 else 1.0


@dataclass(frozen=True)
class Choice:
    """What the first half chose, as it looked there and as it is on the second half; None where that has too few
    settings."""

    chosen: Finding
    judged: Finding | None
    holds: bool  # it is ahead of both on the second half, after Holm's correction over all choices

    @property
    def verdict(self) -> str:
        if self.judged is None:
            return "not run yet"
        if self.holds:
            return "holds"
        ahead, control = self.judged.ahead, self.judged.control
        if ahead.low <= 0:
            return "behind averaging" if ahead.high < 0 else "not ahead of averaging"
        if control.low > 0:
            return "ahead, but not after Holm's correction"
        if control.within(MARGIN):
            return "a shorter step does the same"
        return "behind a shorter step" if control.high < 0 else "no difference shown from a shorter step"


@dataclass(frozen=True)
class Map:
    """All that was looked at, which of it has the mask ahead of both, and the choices."""

    looked: list[Finding]
    helps: list[Finding]
    choices: list[Choice]
    settings: int

    @property
    def everywhere(self) -> list[Finding]:
        return [one for one in self.looked if one.region == EVERYWHERE]


def is_map(study: Study | Analysis) -> bool:
    return isinstance(study, Study) and HALF in study.axes and study.compare != HALF


def drawn(study: Study, results: Sequence[Result]) -> Map:
    """The map, from the results of its study. A setting counts for a mask where it has been run with seeds enough, with
    averaging and the mask's control."""
    cells = {rule: list(_counted(compare(study, results, "test", rule))) for rule in study.rules}
    regions = [EVERYWHERE, *_values(study)]
    looked = _findings(cells, regions)
    corrected = holm([one.p for one in looked])
    helps = [one for one, p in zip(looked, corrected, strict=True) if p < _LEVEL]
    settings = {tuple(cell.where.values()) for of_rule in cells.values() for cell in of_rule}
    return Map(looked, helps, _choices(cells, regions), len(settings))


def _values(study: Study) -> list[Region]:
    """Every value of every axis that settings differ in."""
    axes = {axis: values for axis, values in study.axes.items() if axis not in (HALF, study.compare)}
    regions = []
    for axis, values in axes.items():
        regions += [Region(axis, value) for value in values if len(values) > 1]
    return regions


def _counted(comparisons: Iterable[Comparison]) -> Iterator[Comparison]:
    """Those of masks that have figures, as has the control."""
    for one in comparisons:
        differences = one.difference, one.controls.get(_CONTROL)
        if all(difference is not None and difference.seeds >= SEEDS for difference in differences):
            yield one


def _findings(cells: ByRule, regions: Sequence[Region]) -> list[Finding]:
    found = []
    for rule, of_rule in cells.items():
        for mask in dict.fromkeys(cell.rival for cell in of_rule):
            each = (_finding([cell for cell in of_rule if cell.rival == mask], mask, of, rule) for of in regions)
            found += [one for one in each if one is not None]
    return found


def _finding(cells: Sequence[Comparison], mask: str, region: Region, rule: str) -> Finding | None:
    """None where the region has fewer than two settings: one says nothing about how settings vary."""
    inside = [cell for cell in cells if region.holds(cell)]
    if len(inside) < 2:
        return None
    ahead, control = _pooled([c.difference for c in inside]), _pooled([c.controls[_CONTROL] for c in inside])
    return Finding(mask, region, rule, ahead, control)


def _pooled(differences: Sequence[Difference | None]) -> Estimate:
    estimate = pooled(differences)
    assert estimate is not None, "all of them were counted"
    return estimate


def _choices(cells: ByRule, regions: Sequence[Region]) -> list[Choice]:
    """For each rule the best mask in all settings of the first half, then the best mask and region."""
    first, second = (
        {rule: [cell for cell in of_rule if cell.where[HALF] == half] for rule, of_rule in cells.items()}
        for half in (CHOOSES, JUDGES)
    )
    pairs: list[tuple[Finding, Finding | None]] = []
    for rule in cells:
        for among in ([EVERYWHERE], regions[1:]):
            found = _findings({rule: first[rule]}, among)
            if found:
                best = max(found, key=lambda one: one.lead)
                same = [cell for cell in second[rule] if cell.rival == best.mask]
                pairs.append((best, _finding(same, best.mask, best.region, rule)))
    corrected = holm([judged.p if judged else 1.0 for _, judged in pairs])
    return [Choice(chosen, judged, p < _LEVEL) for (chosen, judged), p in zip(pairs, corrected, strict=True)]
