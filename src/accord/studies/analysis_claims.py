"""A verdict on a claim that an analysis tells: by its trials, as cells are judged by their seeds, or by its table."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accord.core.errors import AccordError
from accord.studies.outcome import Comparison, Difference, paired
from accord.studies.results import AnalysisResults
from accord.studies.verdict import Claim, Verdict, judge

_COMPARED: dict[str, Callable[[float, float], bool]] = {" <= ": operator.le, " >= ": operator.ge}


def judge_analysis(claim: Claim, results: AnalysisResults) -> Verdict:
    if claim.expects == "holds":
        return _holds(claim, results.rows)
    if claim.expects == "described":
        return judge(claim, [])
    if not results.points:
        return Verdict("open", "its results have no trials: accord reproduce writes them")
    difference = _ahead(claim, results.points, claim.against)
    controls = {"length": _ahead(claim, results.points, claim.control)}
    return judge(claim, [Comparison({}, claim.rival, claim.against, difference, controls=controls)])


def _ahead(claim: Claim, points: Sequence[Mapping[str, Any]], other: str) -> Difference | None:
    """By how much the claim's rival is ahead of another rule, trial by trial. Its metric is a column in per cent, or
    one less another: `A - B`."""
    column, _, less = claim.metric.partition(" - ")
    by_rule = [
        {
            point["trial"]: (point[column] - (point[less] if less else 0.0)) / 100
            for point in points
            if point["rule"] == rule
        }
        for rule in (claim.rival, other)
    ]
    return paired(*by_rule)


def _holds(claim: Claim, rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Whether each statement is true of every row that has both its columns."""
    told, broken = [], False
    for statement in claim.holds:
        sign = next((sign for sign in _COMPARED if sign in statement), None)
        if sign is None:
            raise AccordError(f"the claim {claim.text!r} holds {statement!r}: write `column <= column`, or >=")
        left, right = statement.split(sign)
        both = [row for row in rows if row.get(left) is not None and row.get(right) is not None]
        failing = [row for row in both if not _COMPARED[sign](row[left], row[right])]
        broken = broken or bool(failing) or not both
        told.append(f"`{statement}` in {len(both) - len(failing)} of {len(both)} rows")
    return Verdict("refuted" if broken else "confirmed", "; ".join(told))
