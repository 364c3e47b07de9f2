"""Which of the settings make a grid: tau against a learning rate, or one of them alone, with all else equal."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any

from accord.rules.masks import as_written
from accord.runs.comparison import flat, told_apart
from accord.runs.reader import Recorded

_AXES = ("tau", "lr")  # a key counts by its last word: algorithm.tau, train.lr, algorithm.server.lr
_DEFAULT = "default"  # a run made in Python wrote down only what differs from it, until 0.2

Flat = Mapping[str, Any]


def grids(runs: Sequence[Recorded], first: int = 0) -> list[dict[str, Any]]:
    """The grids among runs that differ by more than their seeds. A cell is (column, row, the run's place counted from
    `first`)."""
    settings = [flat(run.settings) for run in runs]
    axes = sorted(
        {key for of_run in settings for key in of_run if _is_axis(key, settings)},
        key=lambda key: (not key.endswith("tau"), key),
    )
    drawn: list[dict[str, Any]] = []
    in_a_plane: set[int] = set()
    for x, y in combinations(axes, 2):
        families = [of for of in _families(settings, {x, y}) if _varies(x, of, settings) and _varies(y, of, settings)]
        for name, of in zip(_names(families, {x, y}, runs, settings), families, strict=True):
            in_a_plane |= set(of)
            rows = _values(y, of, settings)
            drawn.append(
                _grid(name, x, y, rows, [(run, _place(y, rows, settings[run])) for run in of], settings, first)
            )
    for x in axes:
        families = [of for of in _families(settings, {x}) if _varies(x, of, settings) and not set(of) <= in_a_plane]
        if families:
            rows = _names(families, {x}, runs, settings)
            cells = [(run, row) for row, of in enumerate(families) for run in of]
            drawn.append(_grid("", x, "", rows, cells, settings, first))
    return drawn


def _is_axis(key: str, settings: Sequence[Flat]) -> bool:
    values = [of_run[key] for of_run in settings if key in of_run]
    return key.rpartition(".")[2] in _AXES and not any(math.isnan(_number(value)) for value in values)


def _number(value: Any) -> float:
    """The value of a setting as a number, or NaN; tau may be a fraction such as "5/7"."""
    if isinstance(value, str) and "/" in value:
        with suppress(ValueError, ArithmeticError):
            return float(as_written(value))
    return value if isinstance(value, int | float) else math.nan


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _families(settings: Sequence[Flat], free: set[str]) -> list[list[int]]:
    """Runs that are alike in everything but the free keys."""
    families: dict[str, list[int]] = {}
    for run, of_run in enumerate(settings):
        families.setdefault(
            repr(sorted((key, repr(value)) for key, value in of_run.items() if key not in free)), []
        ).append(run)
    return list(families.values())


def _varies(key: str, family: Sequence[int], settings: Sequence[Flat]) -> bool:
    return len(_values(key, family, settings)) > 1


def _values(key: str, family: Sequence[int], settings: Sequence[Flat]) -> list[str]:
    """The values of a key in order, as the axis writes them."""
    there = {settings[run].get(key) for run in family}
    return [_DEFAULT] * (None in there) + [_text(value) for value in sorted(there - {None}, key=_number)]


def _place(key: str, values: Sequence[str], of_run: Flat) -> int:
    return values.index(_text(of_run[key]) if key in of_run else _DEFAULT)


def _names(
    families: Sequence[Sequence[int]], free: set[str], runs: Sequence[Recorded], settings: Sequence[Flat]
) -> list[str]:
    """`fedavg + gma` for a family in which tau is free; with the settings that tell it apart from its namesakes."""
    names = []
    for of in families:
        name = runs[of[0]].label
        tau = next((settings[of[0]].get(key, 0.4) for key in free if key.rpartition(".")[2] == "tau"), None)
        names.append(name if tau is None else name.replace(f"({_text(tau)})", ""))
    return told_apart(
        names, [{key: value for key, value in settings[of[0]].items() if key not in free} for of in families]
    )


def _grid(
    title: str,
    x: str,
    y: str,
    rows: Sequence[str],
    placed: Sequence[tuple[int, int]],
    settings: Sequence[Flat],
    first: int,
) -> dict[str, Any]:
    columns = _values(x, [run for run, _ in placed], settings)
    cells = [[_place(x, columns, settings[run]), row, first + run] for run, row in placed]
    return {"title": title, "x": x, "columns": columns, "y": y, "rows": list(rows), "cells": cells}
