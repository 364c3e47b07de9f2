"""A study's runs: ordinary experiments in ordinary run folders, so that what is done is not done again and what was
stopped goes on."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.metrics import Metric
from accord.experiments.experiment import assemble, override, tables_of
from accord.experiments.paths import canonical
from accord.experiments.sweep import PlannedRun
from accord.runs.evaluation import Evaluation, History
from accord.runs.rows import Rows, read_rows
from accord.runs.selection import select


@dataclass(frozen=True)
class Arm:
    """One setting of a study, by the name it has in table and figure, and its runs, one per seed."""

    name: str
    values: dict[str, Any]
    runs: tuple[PlannedRun, ...]

    def rows(self) -> list[Rows]:
        """Every run's rounds, seed by seed."""
        return [read_rows(run.folder) for run in self.runs]

    def histories(self) -> list[History]:
        """Every run's evaluations, seed by seed."""
        return [rows.history() for rows in self.rows()]


Train = Callable[[Sequence[Arm]], None]  # trains what is left of the arms' runs, or does not come back


def arm(name: str, base: str, texts: Sequence[str], values: Mapping[str, Any]) -> Arm:
    """The study's settings, with what the user gave, with what sets this arm apart. The last are not the user's to
    give."""
    overrides = [override(text) for text in texts]
    varied = set(map(canonical, values))
    for section, key, _ in overrides:
        if canonical(f"{section}.{key}") in varied:
            raise AccordError(
                f"{section}.{key} is what this analysis varies: leave it out, or use the command's own option for it"
            )
    settings = [(*key.split(".", 1), value) for key, value in values.items()]
    experiment = assemble(copy.deepcopy(tables_of(base, "the analysis")), [*overrides, *settings], base, Path())
    experiment.check_here()
    runs = [
        PlannedRun(experiment, seed, dict(values), experiment.folder(seed)) for seed in experiment.settings.run.seeds
    ]
    return Arm(name, dict(values), tuple(runs))


def check_apart(arms: Sequence[Arm]) -> None:
    """Refuses two arms that are one and the same run."""
    folders = [run.folder for one in arms for run in one.runs]
    if len(set(folders)) < len(folders):
        raise AccordError("two of the values to compare give the same run: name each of them once")


def numbers(text: str, what: str, low: float, high: float) -> list[float]:
    """`0.1,1,10` as numbers, which must differ and lie between `low` and `high`."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise AccordError(f"{what} must be numbers with commas between them, got {text!r}") from None
    if len(set(values)) < len(values):
        raise AccordError(f"{what} must differ from each other, got {text!r}")
    for value in values:
        if not low <= value <= high:
            raise AccordError(f"{what} must be between {low:g} and {high:g}, got {value:g}")
    return values


def counts(text: str, what: str) -> list[int]:
    """`5,2` as whole numbers of at least 1."""
    if not all(part.strip().isdecimal() and int(part) for part in text.split(",")):
        raise AccordError(f"{what} must be whole numbers of at least 1 with commas between them, got {text!r}")
    return [int(part) for part in text.split(",")]


# ---------------------------------------------------------------------------------------- what a history says


def figure_of(evaluation: Evaluation, split: str, metric: str) -> float:
    """A metric's mean over the samples of a split, or of a part of one; accuracy in percent."""
    where = {**evaluation.splits, **evaluation.parts}
    if split not in where:
        raise AccordError(f"there is no {split} data in these runs: they have {', '.join(where)}")
    value = where[split].metrics[metric].by_sample
    number = float("nan") if value is None else float(value)
    return Metric(metric).scale * number


def selected(history: History, rule: str, split: str, metric: str) -> float:
    """The mean of a metric over the rounds that a selection rule chooses."""
    rounds = select(history, rule).rounds
    values = [figure_of(evaluation, split, metric) for number, evaluation in history if number in rounds]
    return sum(values) / len(values)


def unit(metric: str) -> str:
    """`accuracy (%)`, `loss (nats)`; of any other metric, its name."""
    return "loss (nats)" if metric == "loss" else Metric(metric).title
