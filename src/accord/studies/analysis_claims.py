"""A verdict on a claim that an analysis tells: by its trials, as cells are judged by their seeds, or by its table."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeGuard

from accord.core.errors import AccordError
from accord.studies.claim import Claim
from accord.studies.differences import Comparison, Difference, paired
from accord.studies.judge import judge
from accord.studies.results import AnalysisResults
from accord.studies.study import within
from accord.studies.verdict import Verdict

_COMPARED: dict[str, Callable[[float, float], bool]] = {" <= ": operator.le, " >= ": operator.ge}


def judge_analysis(claim: Claim, results: AnalysisResults) -> Verdict:
    if claim.expects == "holds":
        return _holds(claim, results.rows)
    if not results.points:
        return Verdict("open", "its results have no trials: accord reproduce writes them")
    points = [point for point in results.points if within(point, claim.only)]
    if not points:
        raise AccordError(f"the claim {claim.text!r} is about {claim.only}, and no trial of {results.name} is")
    if claim.axis:
        comparisons = _along(claim, points)
    else:
        difference = _ahead(claim, points, claim.against)
        controls = {"length": _ahead(claim, points, claim.control)}
        compared = [point for point in points if point.get("rule") in (claim.rival, claim.against)]
        without = {_trial(point) for point in compared if _figure(claim, point) is None}
        diverged = len(without) if len(without) < len({*map(_trial, compared)}) or difference else 0
        comparisons = [Comparison({}, claim.rival, claim.against, difference, controls=controls, diverged=diverged)]
    return judge(replace(claim, only={}), comparisons)  # the points that it is about are chosen


def _along(claim: Claim, points: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """The metric at each value of the axis, the mean over rounds of every seed."""
    figures: dict[float, dict[int, list[float]]] = {}
    known = set[frozenset[tuple[str, Any]]]()
    for point in points:
        where = frozenset((name, of) for name, of in point.items() if name != claim.metric)
        if where in known:
            raise AccordError(f"the trials along {claim.axis} are damaged: {dict(point)} is there twice")
        known.add(where)
        value, seed, figure = (point.get(name) for name in (claim.axis, "seed", claim.metric))
        if not _is_number(value) or not isinstance(seed, int) or not _is_number(figure):
            raise AccordError(
                f"the trials along {claim.axis} are damaged: {dict(point)} has no number where one must be"
            )
        figures.setdefault(value, {}).setdefault(seed, []).append(figure / 100)
    return [
        Comparison({claim.axis: f"{value:g}"}, claim.rival, "", Difference({s: fmean(f) for s, f in seeds.items()}))
        for value, seeds in figures.items()
    ]


def _trial(point: Mapping[str, Any]) -> Any:
    return point.get("trial", point.get("seed"))


def _figure(claim: Claim, point: Mapping[str, Any]) -> float | None:
    """Of a trial: the claim's metric, a column in per cent, or one less another (`A - B`); None where it diverged."""
    column, _, less = claim.metric.partition(" - ")
    values = [value for name in filter(None, (column, less)) if _is_number(value := point.get(name))]
    return None if len(values) < 1 + bool(less) else (values[0] - sum(values[1:])) / 100


def _ahead(claim: Claim, points: Sequence[Mapping[str, Any]], other: str) -> Difference | None:
    """By how much the claim's rival is ahead of another rule, trial by trial."""
    by_rule: dict[str, dict[int, float]] = {claim.rival: {}, other: {}}
    for point in points:
        rule, trial = point.get("rule"), _trial(point)
        figure = _figure(claim, point)
        if rule not in by_rule or figure is None:
            continue
        if not isinstance(trial, int) or trial in by_rule[rule]:
            raise AccordError(f"the trials of {rule} are damaged: {trial!r} is no number, or is there twice")
        by_rule[rule][trial] = figure
    return paired(by_rule[claim.rival], by_rule[other])


def _holds(claim: Claim, rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Whether each statement is true of every row: one may contradict it, and none can prove it. It is open where rows
    have no number to tell by."""
    if len({str(sorted(row.items())) for row in rows}) < len(rows):
        raise AccordError("a row of its table is there twice")
    reasons, kinds, counts = [], set(), []
    for statement in claim.holds:
        sign = next((sign for sign in _COMPARED if sign in statement), None)
        if sign is None:
            raise AccordError(f"the claim {claim.text!r} holds {statement!r}: write `column <= column`, or >=")
        left, right = statement.split(sign)
        pairs = [(row.get(left), row.get(right)) for row in rows]
        known = [(a, b) for a, b in pairs if _is_number(a) and _is_number(b)]
        true = sum(_COMPARED[sign](a, b) for a, b in known)
        whole = "consistent" if len(known) == len(rows) else "open"
        kinds.add("refuted" if true < len(known) else whole)
        counts.append(f"in {true} of {len(rows)} rows")
        reasons.append(
            f"`{statement}` {counts[-1]}" + f", {len(rows) - len(known)} without it" * (len(known) < len(rows))
        )
    kind = next(kind for kind in ("refuted", "open", "consistent") if kind in kinds)
    return Verdict(kind, "; ".join(reasons), "holds " + " and ".join(dict.fromkeys(counts)))


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
