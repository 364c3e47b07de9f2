"""Grids that grow: where the best point of a grid lies on its edge, a better one may lie beyond it.

The rule: if, in a place of the table, any rival's chosen value of a key is the smallest or the largest of those tried,
all rivals of the place get the next value on that side, as far from the edge as the edge is from its neighbour (as a
ratio).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from accord.studies.outcome import Result
from accord.studies.study import Place, Study, edges


def grown(study: Study, results: Sequence[Result], rule: str) -> Study:
    """The study with wider grids where a rival's choice by the rule lies on the edge; the study itself where none
    does."""
    wider: dict[Place, dict[str, list[Any]]] = {place: dict(keys) for place, keys in study.wider.items()}
    for result in results:
        if rule not in result.figures:
            continue
        beyond = edges(result.cell.grid, result.figures[rule].point)
        keys = wider.setdefault(study.place(result.cell.values), {}) if beyond else {}
        for key, value in beyond.items():
            keys[key] = [*keys.get(key, []), *([] if value in keys.get(key, []) else [value])]
    return study if wider == study.wider else replace(study, wider=wider)


def as_wide(study: Study, results: Sequence[Result]) -> Study:
    """The study with the values by which the grids of these results have grown: a place's grid is as wide as that of
    any rival, also of one that the study leaves out (`--only`)."""
    wider: dict[Place, dict[str, list[Any]]] = {place: dict(keys) for place, keys in study.wider.items()}
    for result in results:
        grown = wider.setdefault(study.place(result.cell.values), {})
        for key, tried in study.grid_of(result.cell.values).items():
            known = [*tried, *grown.get(key, [])]
            more = [value for value in result.cell.grid.get(key, []) if value not in known]
            grown[key] = [*grown.get(key, []), *more]
    return replace(study, wider=wider)
