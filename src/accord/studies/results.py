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

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def complete(self) -> list[Result]:
        """The cells that can be judged: their runs are all done, else a rule may have been tried at fewer points than
        its rivals, and they need not be run again."""
        return [result for result in self.results if result.complete]

    def answered(self, seeds: int) -> set[int]:
        """The printed numbers that have a cell with so many seeds, by identity: they are read once and stay."""
        return {
            id(number)
            for result in self.complete
            if result.figures
            for number in find(self.study.paper, self.study.table, result.cell.values)
            if all(len(figures.of(number.split)) >= seeds for figures in result.figures.values())
        }


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
    settings: dict[str, Any]
    options: dict[str, Any]
    file: Path

    def answered(self, seeds: int) -> set[int]:
        trials = {point.get("trial", point.get("seed")) for point in self.points}
        if not self.place or len(trials) < seeds:
            return set()
        return {id(number) for number in find(self.paper, self.place, {})}


Results = StudyResults | AnalysisResults


def read_all(paths: Sequence[Path]) -> list[Results]:
    """Results from their files, each study once. None is left out: a page without it would say that it was not run."""
    by_name: dict[str, Results] = {}
    for path in paths:
        one = read(path)
        if one.name in by_name:
            raise AccordError(f"{by_name[one.name].file} and {path} both hold results of {one.name}: keep one of them")
        by_name[one.name] = one
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
    A cell that both have is the new one, unless that lacks a seed of the other, or runs and the other is finished. One
    that is superseded is replaced by any that has been run."""
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
    cells = {result_of(cell).cell.key: cell for cell in before["cells"]}
    for cell in written["cells"]:
        new = result_of(cell)
        if new.cell.key not in cells or _may_replace(new, result_of(cells[new.cell.key])):
            cells[new.cell.key] = cell
    commands = dict.fromkeys([*before["command"].split(_AND), written["command"]])
    return {
        **written,
        "command": _AND.join(commands),
        "seeds": sorted({*before["seeds"], *written["seeds"]}),
        "runs": list(dict.fromkeys([*before.get("runs", []), *written["runs"]])),
        "cells": list(cells.values()),
    }


def _may_replace(new: Result, old: Result) -> bool:
    if old.superseded is not None:
        return new.done > 0
    return new.shared_seeds >= old.shared_seeds and (new.complete or not old.complete)


def read(path: Path) -> Results:
    """Results from their file."""
    content = content_of(path, _WHAT, ("study", "analysis"))
    protocol = content.get("protocol")
    if type(protocol) is not int or protocol != PROTOCOL:  # True and 1.0 are equal to 1
        raise AccordError(
            f"{path} has results of protocol {protocol!r}, and this is protocol {PROTOCOL}: they are"
            " not judged together; accord reproduce writes the file again from its runs"
        )
    form, make = (AnalysisFile, _analysis) if "analysis" in content else (StudyFile, _study)
    with reading(path, _WHAT):
        form.model_validate(content)
    return make(content, path)


def _analysis(content: Mapping[str, Any], path: Path) -> AnalysisResults:
    about = {name: content[name] for name in ("name", "title", "command", "rows", "notes", "files", "settings")}
    return AnalysisResults(
        **about,
        points=content.get("points", []),
        printed=printed_cells(content["printed"]),
        paper=content["paper"],
        place=content["table"],
        options=content.get("options", {}),
        file=path,
    )


def _study(content: Mapping[str, Any], path: Path) -> StudyResults:
    results = [result_of(cell) for cell in content["cells"]]
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


def result_of(content: Mapping[str, Any]) -> Result:
    """A cell's results, as `outcome.plain` has them."""
    figures = {rule: _figures(of) for rule, of in content["figures"].items()}
    return Result(
        cell=Cell(content["values"], {}, content.get("grid", {})),
        figures=figures,
        printed=[_printed(number) for number in content["printed"]],
        done=content["done"],
        runs=content["runs"],
        rounds=tuple(content["rounds"]) if content.get("rounds") else None,
        flat=content.get("flat", 0),
        missing=content.get("missing"),
        superseded=content.get("superseded"),
    )


def _printed(content: Mapping[str, Any]) -> Printed:
    columns = {name: content[name] for name in ("metric", "window")}
    return Printed(columns, content["value"], content["std"], content["note"])


def _figures(content: Mapping[str, Any]) -> Figures:
    curve = {int(at): float(value) for at, value in content.get("curve", {}).items()}
    return Figures(content["point"], _by_seed(content["by_seed"]), curve)


def _by_seed(content: Mapping[str, Mapping[str, float | None]]) -> dict[int, dict[str, float]]:
    """Figures by seed, without those that were not a number (a model that diverged): JSON has null in their place."""
    return {
        int(seed): {split: float(value) for split, value in values.items() if value is not None}
        for seed, values in content.items()
    }
