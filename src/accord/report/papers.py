"""Results of `accord reproduce` as points: what a paper prints against what we found, by each selection rule."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from accord.core.errors import AccordError
from accord.studies.outcome import Result
from accord.studies.results import StudyResults, read
from accord.studies.study import POOL


def holds_results(file: Path) -> bool:
    """Whether a JSON file looks like what `accord reproduce` writes, sound or not."""
    try:
        return '"study":' in file.read_text(encoding="utf-8")[:200]
    except (OSError, UnicodeDecodeError):
        return False


def runs_of(file: Path) -> list[Path]:
    """The run folders that results came from, in the folder beside them that all studies share; none of a damaged
    file."""
    try:
        names = json.loads(file.read_text(encoding="utf-8")).get("runs", [])
        folders = [file.parent / POOL / str(name) for name in names]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return []
    return [folder for folder in folders if folder.is_dir()]


def paper(path: Path, notices: list[str]) -> dict[str, Any] | None:
    """A study's points; of a damaged file, a notice in their place."""
    try:
        one = read(path)
    except AccordError as error:
        notices.append(str(error))
        return None
    if not isinstance(one, StudyResults):
        notices.append(f"{path} holds an analysis, {one.title}: its table and figure are {', '.join(one.files)}")
        return None
    points = [point for result in one.results for point in _points(result, one.study.compare)]
    done, runs = (sum(of) for of in zip(*((result.done, result.runs) for result in one.results), strict=True))
    return {"title": one.study.title, "command": one.command, "done": done, "runs": runs, "points": points}


def _points(result: Result, compare: str) -> list[dict[str, Any]]:
    """A point for every number on the test set that is printed in the cell's place, in percent, and ours."""
    ours = {}
    for rule, figures in result.figures.items():
        if values := [100 * value for value in figures.of("test")]:
            ours[rule] = [float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None]
    where = {"cell": str(result.cell), "rival": result.cell.values[compare], "ours": ours}
    numbers = [number for number in result.printed if not number.note.startswith("train accuracy")]
    return [{**where, "printed": p.value, "std": p.std, "window": p.columns["window"]} for p in numbers]
