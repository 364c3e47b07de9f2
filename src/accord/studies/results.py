"""Results of `accord reproduce`, read back from their files. One that is damaged or of another protocol is refused by
its name."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.runs.text import Cells
from accord.studies.analysis import make as make_analysis
from accord.studies.files import all_tables
from accord.studies.outcome import PROTOCOL, Figures, Result
from accord.studies.published import Printed, find
from accord.studies.results_form import AnalysisFile, StudyFile, content_of, reading
from accord.studies.study import Cell, Study
from accord.studies.text import printed_cells

_WHAT = "results of accord reproduce"
_AND = " ; "  # between the commands that a file is the result of


@dataclass(frozen=True)
class StudyResults:
    """A study as `accord reproduce` wrote it."""

    study: Study
    results: list[Result]
    command: str
    file: Path
    changed: tuple[str, ...] = ()  # settings that the command changed: its runs are then not those of the study
    runs: tuple[str, ...] = ()  # their names, as far as the file has them

    def answered(self, seeds: int) -> set[int]:
        """The printed numbers that have a cell with so many seeds, by identity: they are read once and stay."""
        if self.changed:
            return set()
        cells = [result.cell.values for result in self.results if result.seeds >= seeds]
        return {id(number) for values in cells for number in find(self.study.paper, self.study.table, values)}


@dataclass(frozen=True)
class AnalysisResults:
    """An analysis as `accord reproduce` wrote it: the rows of its table, and what was printed in its
    place."""

    name: str
    title: str
    command: str
    rows: list[dict[str, Any]]
    points: list[dict[str, Any]]  # trial by trial, of an analysis that trains
    printed: Cells
    notes: list[str]
    files: list[str]
    paper: str | None
    place: str | None  # the paper's table
    seeds: int
    file: Path
    changed: tuple[str, ...] = ()  # settings that are not those of the analysis that comes with accord

    def answered(self, seeds: int) -> set[int]:
        if self.changed or not self.place or self.seeds < seeds:
            return set()
        return {id(number) for number in find(self.paper, self.place, {})}


Results = StudyResults | AnalysisResults


def read_all(paths: Sequence[Path]) -> list[Results]:
    """Results from their files, each study once. None is left out: a page without it would say that it was not run."""
    by_name: dict[str, Results] = {}
    for path in paths:
        one = read(path)
        name = one.study.name if isinstance(one, StudyResults) else one.name
        if name in by_name:
            raise AccordError(f"{by_name[name].file} and {path} both hold results of {name}: keep one of them")
        by_name[name] = one
    return list(by_name.values())


@contextmanager
def naming(results: Results | None) -> Iterator[None]:
    """Within it, a sentence on what only shows when results are judged or told names their file."""
    try:
        yield
    except AccordError as error:
        if results is None:
            raise
        raise AccordError(f"{results.file} cannot be judged: {error}") from error


def added(written: dict[str, Any], path: Path) -> dict[str, Any]:
    """What a command found, together with what others found of the same study, which their file holds, if there is one.
    A cell that both have is the one with more seeds, or else the new one."""
    if not path.exists():
        return written
    read(path)
    before = json.loads(path.read_text(encoding="utf-8"))
    before.setdefault("changed", [])  # files of 0.1 do not say
    for name in ("study", "axes", "compare", "against", "rules", "changed"):
        if before.get(name) != written[name]:
            raise AccordError(
                f"{path} cannot be added to: its {name} is {before.get(name)}, not {written[name]}, which makes"
                " another table"
            )
    cells = {frozenset(cell["values"].items()): cell for cell in before["cells"]}
    for cell in written["cells"]:
        place = frozenset(cell["values"].items())
        if place not in cells or _seeds(cell) >= _seeds(cells[place]):
            cells[place] = cell
    commands = dict.fromkeys([*before["command"].split(_AND), written["command"]])
    return {
        **written,
        "command": _AND.join(commands),
        "seeds": sorted({*before["seeds"], *written["seeds"]}),
        "runs": list(dict.fromkeys([*before.get("runs", []), *written["runs"]])),
        "cells": list(cells.values()),
    }


def finished(path: Path, seeds: Sequence[int] = ()) -> tuple[list[Result], tuple[str, ...]]:
    """The cells whose runs a results file has all, with these seeds among theirs, and the names of its runs; none
    without a file."""
    one = read(path) if path.exists() else None
    if not isinstance(one, StudyResults):
        return [], ()
    whole = [
        result
        for result in one.results
        if result.complete and all({*seeds} <= {*figures.by_seed} for figures in result.figures.values())
    ]
    return whole, one.runs


def _seeds(cell: Mapping[str, Any]) -> int:
    """The fewest seeds of any rule that has figures."""
    return min((len(figures["by_seed"]) for figures in cell["figures"].values()), default=0)


def read(path: Path) -> Results:
    """Results from their file."""
    content = content_of(path, _WHAT, ("study", "analysis"))
    if content.get("protocol") != PROTOCOL:
        raise AccordError(
            f"{path} has results of protocol {content.get('protocol')}, and this is protocol {PROTOCOL}: they are"
            " not judged together; accord reproduce writes the file again from its runs"
        )
    form, make = (AnalysisFile, _analysis) if "analysis" in content else (StudyFile, _study)
    with reading(path, _WHAT):
        form.model_validate(content)
    return make(content, path)


def _analysis(content: Mapping[str, Any], path: Path) -> AnalysisResults:
    about = {name: content[name] for name in ("name", "title", "command", "rows", "notes", "files")}
    seeds = content["settings"].get("run.seeds", [])
    count = len(seeds) if isinstance(seeds, list) else 1
    return AnalysisResults(
        **about,
        points=content.get("points", []),
        printed=printed_cells(content["printed"]),
        paper=content["paper"],
        place=content["table"],
        seeds=count,
        file=path,
        changed=_changed(content["name"], content["settings"]),
    )


def _changed(name: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings of an analysis that comes with accord which are others in these results, but for where they ran and
    with which seeds."""
    tables = all_tables().get(name, {})
    own = make_analysis(name, tables).settings if "analysis" in tables else settings
    keys = sorted(key for key in {*own, *settings} if not key.startswith("run."))
    return tuple(f"{key}={settings.get(key)}" for key in keys if settings.get(key) != own.get(key))


def _study(content: Mapping[str, Any], path: Path) -> StudyResults:
    results = [_result(cell) for cell in content["cells"]]
    axes: dict[str, dict[str, dict[str, Any]]] = {
        axis: {result.cell.values[axis]: {} for result in results} for axis in content["axes"]
    }
    study = Study(
        name=content["study"],
        title=content["title"],
        paper=content["paper"],
        table=content["table"],
        compare=content["compare"],
        against=content["against"],
        rules=tuple(content["rules"]),
        seeds=tuple(content["seeds"]),
        settings={},
        axes=axes,
        grids={},
    )
    changed, runs = (tuple(content.get(key, ())) for key in ("changed", "runs"))
    return StudyResults(study, results, content["command"], path, changed, runs)


def _result(content: Mapping[str, Any]) -> Result:
    figures = {rule: _figures(of) for rule, of in content["figures"].items()}
    printed = [Printed({"window": p["window"]}, p["value"], p["std"], p["note"]) for p in content["printed"]]
    rounds = tuple(content["rounds"]) if content.get("rounds") else None
    cell, ended = Cell(content["values"], {}, content.get("grid", {})), (content.get("flat", 0), content.get("missing"))
    return Result(cell, figures, printed, content["done"], content["runs"], rounds, *ended)


def _figures(content: Mapping[str, Any]) -> Figures:
    curve = {int(at): float(value) for at, value in content.get("curve", {}).items()}
    return Figures(content["point"], _by_seed(content["by_seed"]), curve)


def _by_seed(content: Mapping[str, Mapping[str, float | None]]) -> dict[int, dict[str, float]]:
    """Figures by seed, without those that were not a number (a model that diverged): JSON has null in their place."""
    return {
        int(seed): {split: float(value) for split, value in values.items() if value is not None}
        for seed, values in content.items()
    }
