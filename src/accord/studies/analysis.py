"""A study that is an analysis: its file names one of `accord analyse` and its options, in place of axes.

analysis = "participation"
[options]             # arguments of the analysis
participants = [5]
[settings]            # settings of its runs, if it trains
"train.rounds" = 100
[places.aggregation]  # where the paper's numbers are: what a value of a column of published.csv is called here
gma = { rule = "fedavg + gma(0.4)" }
[places.split]        # `column` is the column of the number, everything else says which row it is in
"participating trial mean" = { column = "participating (%)" }
"""

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accord.analyses.arms import Arm, Train
from accord.analyses.output import Result
from accord.analyses.registry import ANALYSES, TRAINING
from accord.core.errors import AccordError, did_you_mean
from accord.core.files import flat, plain
from accord.experiments.experiment import override
from accord.experiments.settings import shown
from accord.experiments.sweep import PlannedRun
from accord.studies.files import check_keys, toml
from accord.studies.outcome import PROTOCOL
from accord.studies.published import Printed, find, numbers

KEYS = ("title", "paper", "table", "about", "analysis", "options", "settings", "places")


class _Planned(Exception):
    """Ends an analysis where it would train, with the runs that it asked for."""

    def __init__(self, runs: list[PlannedRun]) -> None:
        self.runs = runs


@dataclass(frozen=True)
class Analysis:
    """What a file asks for."""

    name: str
    title: str
    paper: str | None
    table: str | None
    analysis: str
    options: dict[str, Any]
    settings: dict[str, Any]
    places: dict[str, dict[str, dict[str, Any]]]  # column of published.csv -> its value -> what it is called here

    @property
    def trains(self) -> bool:
        return self.analysis in TRAINING

    @property
    def printed(self) -> list[Printed]:
        """What the paper has in its place."""
        return find(self.paper, self.table, {}) if self.table else []

    @property
    def data(self) -> list[str]:
        """The data set that it takes, if it trains."""
        return [self.settings["data.name"]] if "data.name" in self.settings else []

    def place(self, printed: Printed) -> dict[str, Any]:
        """Which row and `column` of the analysis a printed number belongs to; empty if the file does not say."""
        named: dict[str, Any] = {}
        for column, names in self.places.items():
            if printed.columns[column] not in names:
                return {}
            named |= names[printed.columns[column]]
        return named

    def ours(self, printed: Printed, result: Result) -> float | None:
        """The analysis's own number in the place of a printed one: of its table or, where that has no such row, of a
        single point."""
        row = self.place(printed)
        column = row.pop("column", None)
        rows = result.table if all(key in result.table[0] for key in row) else result.points
        matches = [
            each[column]
            for each in rows
            if column in each and all(each.get(key) == value for key, value in row.items())
        ]
        return matches[0] if matches else None

    def changed(self, overrides: Sequence[str]) -> "Analysis":
        """With settings that go before its own."""
        if overrides and not self.trains:
            raise AccordError(f"{self.name} trains nothing, so it has no settings: leave out {overrides[0]!r}")
        changes = {f"{section}.{key}": value for section, key, value in map(override, overrides)}
        return replace(self, settings={**self.settings, **changes})

    def carry_out(self, folder: Path, train: Train) -> Result:
        """The analysis, with its runs, if there are any, in this folder."""
        work = ANALYSES[self.analysis]
        if not self.trains:
            return work(**self.options)
        overrides = [f"{key}={toml(value)}" for key, value in {**self.settings, "run.folder": str(folder)}.items()]
        return work(overrides, train, **self.options)

    def planned(self, folder: Path) -> list[PlannedRun]:
        """The runs that it would train; none is trained."""

        def stop(arms: Sequence[Arm]) -> None:
            raise _Planned([run for one in arms for run in one.runs])

        if self.trains:
            try:
                self.carry_out(folder, stop)
            except _Planned as planned:
                return planned.runs
        return []


def make(name: str, tables: dict[str, Any]) -> Analysis:
    """An analysis from its file's tables."""
    check_keys(tables, KEYS, name, "analyses")
    analysis, options = tables["analysis"], tables.get("options", {})
    if not isinstance(options, dict):
        raise AccordError(
            f"{name} has options = {shown(options)}, which must be a section: write [options] on a line of its own"
        )
    if not isinstance(analysis, str) or analysis not in ANALYSES:
        raise AccordError(
            f"{name} asks for an analysis {analysis!r} that there is not: {did_you_mean(str(analysis), ANALYSES)}"
        )
    takes = {
        key: p.default
        for key, p in inspect.signature(ANALYSES[analysis]).parameters.items()
        if key not in ("given", "train")
    }
    for option, value in options.items():
        if option not in takes:
            raise AccordError(
                f"{name} has an option {option!r} that {analysis} does not take: {did_you_mean(option, takes)}"
            )
        if not _fits(value, takes[option]):
            raise AccordError(
                f"{name} has {option} = {shown(value)}, which {analysis} cannot take: it takes such as {takes[option]}"
            )
    _check_places(name, tables.get("places", {}))
    return Analysis(
        name=name,
        title=tables.get("title", name),
        paper=tables.get("paper"),
        table=tables.get("table"),
        analysis=analysis,
        options=options,
        settings=flat(tables.get("settings", {})),
        places=tables.get("places", {}),
    )


def _check_places(name: str, places: Any) -> None:
    """Refuses columns that the papers' numbers do not have, and names that are no tables."""
    known = list(numbers()[0].columns)
    for column, names in places.items() if isinstance(places, dict) else [(places, None)]:
        if column not in known:
            raise AccordError(
                f"{name} has places by {column!r}, which is no column of the papers' numbers:"
                f" {did_you_mean(str(column), known)}"
            )
        if not isinstance(names, dict) or not all(isinstance(of, dict) for of in names.values()):
            raise AccordError(
                f'{name} has places.{column} = {names!r}, which must be such as {{ gma = {{ rule = "fedavg + gma(0.4)"'
                " } }"
            )


def _fits(value: Any, usual: Any) -> bool:
    """Whether a value is of the kind of an option's default: a list of its elements' kind, text, or a number."""
    if isinstance(usual, tuple):
        return isinstance(value, list) and bool(value) and all(_fits(one, usual[0]) for one in value)
    kind = str if isinstance(usual, str) else int if isinstance(usual, int) else (int, float)
    return isinstance(value, kind) and not isinstance(value, bool)


def printed_row(number: Printed) -> dict[str, Any]:
    """A paper's number as results have it: the columns that say what it is of, and its value."""
    return {**{key: value for key, value in number.columns.items() if value}, "value": number.value}


def written(analysis: Analysis, result: Result, files: Sequence[Path], command: str) -> dict[str, Any]:
    """What came of it, as data that can be written down. Files are named as seen from beside the results, wherever that
    is."""
    printed = []
    for number in analysis.printed:
        ours = analysis.ours(number, result)
        printed.append({**printed_row(number), **({} if ours is None else {"ours": ours})})
    about = {
        key: value
        for key, value in asdict(analysis).items()
        if key in ("name", "title", "paper", "table", "options", "settings")
    }
    figures = {
        "rows": list(result.table),
        "points": list(result.points) if analysis.trains else [],
        "notes": list(result.notes),
        "files": [f"{analysis.name}/{file.name}" for file in files],
        "printed": printed,
    }
    return plain({"analysis": analysis.analysis, "protocol": PROTOCOL, **about, "command": command, **figures})
