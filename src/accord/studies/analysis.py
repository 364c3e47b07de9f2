"""A study that is an analysis: its file names one of `accord analyse` and its options, in place of axes.

analysis = "participation"
[options]             # arguments of the analysis
participants = [5]
[settings]            # settings of its runs, if it trains
"train.rounds" = 100
"""

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from accord.analyse.named import ANALYSES, TRAINING
from accord.analyse.output import Result
from accord.analyse.study import Train
from accord.errors import AccordError
from accord.experiment import override
from accord.files import flat, plain
from accord.settings import did_you_mean, shown
from accord.studies.file import toml
from accord.studies.outcome import PROTOCOL
from accord.studies.published import Printed, find

KEYS = ("title", "paper", "table", "about", "analysis", "options", "settings", "runs")


@dataclass(frozen=True)
class Analysis:
    """What a file asks for."""

    name: str
    title: str
    about: str
    paper: str | None
    table: str | None
    analysis: str
    options: dict[str, Any]
    settings: dict[str, Any]
    home: str  # the folder of its runs: its own, or that of the analysis whose runs it shares

    @property
    def trains(self) -> bool:
        return self.analysis in TRAINING

    @property
    def printed(self) -> list[Printed]:
        """What the paper has in its place."""
        return find(self.paper, self.table, {}) if self.table else []

    def changed(self, overrides: Sequence[str]) -> "Analysis":
        """With settings that go before its own."""
        if overrides and not self.trains:
            raise AccordError(f"{self.name} trains nothing, so it has no settings: leave out {overrides[0]!r}")
        given = {f"{section}.{key}": value for section, key, value in map(override, overrides)}
        return replace(self, settings={**self.settings, **given})

    def carry_out(self, folder: Path, train: Train) -> Result:
        """The analysis, with its runs, if there are any, in this folder."""
        work = ANALYSES[self.analysis]
        if not self.trains:
            return work(**self.options)
        given = [f"{key}={toml(value)}" for key, value in {**self.settings, "run.folder": str(folder)}.items()]
        return work(given, train, **self.options)


def make(name: str, tables: dict[str, Any]) -> Analysis:
    """An analysis from its file's tables."""
    for key in tables:
        if key not in KEYS:
            raise AccordError(f"{name} has a key {key!r} that analyses do not have: {did_you_mean(key, KEYS)}")
    analysis, options, home = tables["analysis"], tables.get("options", {}), tables.get("runs", name)
    if not isinstance(options, dict):
        raise AccordError(f"{name} has options = {shown(options)}, which must be a section: write [options] on a line of its own")
    if not isinstance(home, str):
        raise AccordError(f"{name} has runs = {shown(home)}, which must be the name of the study whose runs it shares")
    if not isinstance(analysis, str) or analysis not in ANALYSES:
        raise AccordError(f"{name} asks for an analysis {analysis!r} that there is not: {did_you_mean(str(analysis), ANALYSES)}")
    takes = {key: p.default for key, p in inspect.signature(ANALYSES[analysis]).parameters.items() if key not in ("given", "train")}
    for option, value in options.items():
        if option not in takes:
            raise AccordError(f"{name} has an option {option!r} that {analysis} does not take: {did_you_mean(option, takes)}")
        if not _fits(value, takes[option]):
            raise AccordError(f"{name} has {option} = {shown(value)}, which {analysis} cannot take: it takes such as {takes[option]}")
    about = {key: tables.get(key) for key in ("paper", "table")}
    settings = flat(tables.get("settings", {}))
    title, told = tables.get("title", name), tables.get("about", "")
    return Analysis(name, title, told, **about, analysis=analysis, options=options, settings=settings, home=home)


def _fits(value: Any, usual: Any) -> bool:
    """Whether a value is of the kind of an option's default: a list of its elements' kind, text, or a number."""
    if isinstance(usual, tuple):
        return isinstance(value, list) and bool(value) and all(_fits(one, usual[0]) for one in value)
    kind = str if isinstance(usual, str) else int if isinstance(usual, int) else (int, float)
    return isinstance(value, kind) and not isinstance(value, bool)


def written(analysis: Analysis, result: Result, files: Sequence[Path], command: str) -> dict[str, Any]:
    """What came of it, as data that can be written down."""
    printed = [{**{key: value for key, value in p.columns.items() if value}, "value": p.value} for p in analysis.printed]
    told = {key: value for key, value in asdict(analysis).items() if key in ("name", "title", "paper", "table", "options", "settings")}
    found = {"rows": list(result.table), "notes": list(result.notes), "files": [str(file) for file in files], "printed": printed}
    return plain({"analysis": analysis.analysis, "protocol": PROTOCOL, **told, "command": command, **found})
