"""What a study came to: per cell the figures by each selection rule, beside what was printed.

Settings are chosen in the same way for every method: among the points of the grid, the one whose runs are best on
average over seeds. By the main rule, `held-out`, "best" is what participating clients' held-out data say; by `oracle`
it is what the test set says, which is how the papers report and nobody could do in practice; `last10` goes by held-out
data in the last ten rounds.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accord.core.errors import AccordError
from accord.core.metrics import Metric
from accord.experiments.sweep import PlannedRun
from accord.runs.evaluation import History
from accord.runs.reader import Recorded, load
from accord.runs.selection import select
from accord.studies.published import Printed, elsewhere, find, own_rules
from accord.studies.study import Cell, Named, Settings, Study

# Of what a results file holds and how its figures were chosen. Results of different protocols are not to be judged
# together.
PROTOCOL = 1
MAIN_RULE = "held-out"  # what claims are judged by, whatever the table's own rule


@dataclass(frozen=True)
class Figures:
    """A cell by one rule: the point of the grid that was chosen, and for each seed the splits' figures there."""

    point: Settings
    by_seed: dict[int, dict[str, float]]
    curve: dict[int, float] = field(default_factory=dict)  # by evaluated round, accuracy on the test set, mean of seeds

    def of(self, split: str) -> list[float]:
        return [values[split] for values in self.by_seed.values() if split in values]


@dataclass(frozen=True)
class Result:
    """A cell: its figures by rule, as far as its runs are done, and what was printed in its place."""

    cell: Cell
    figures: dict[str, Figures]
    printed: list[Printed]
    done: int
    runs: int
    rounds: tuple[int, int] | None = None  # fewest and most of the runs that are done
    flat: int = 0  # runs that ended because held-out data rose no more
    missing: str | None = None  # why there are no runs, where data are not here
    superseded: str | None = None  # why it must be run again: such a result is shown, and nothing is judged by it

    @property
    def complete(self) -> bool:
        return self.done == self.runs and self.superseded is None

    @property
    def shared_seeds(self) -> set[int]:
        """The seeds that every rule with figures has."""
        seeds = [{*figures.by_seed} for figures in self.figures.values()]
        return set.intersection(*seeds) if seeds else set()

    @property
    def seeds(self) -> int:
        return len(self.shared_seeds)


def judging_split(rule: str) -> str:
    """The data that choose among points of the grid, and among the values of an axis."""
    return "test" if rule == "oracle" else "heldout"


def gather(study: Study, named: Sequence[Named], known: Sequence[Result] = ()) -> list[Result]:
    """The study's cells as the run folders tell them now. Cells that were complete when they were `known` are not read
    again."""
    whole = {result.cell.key: result for result in known if result.complete}
    results = []
    for one in named:
        before = whole.get(one.cell.key)
        results.append(before if before is not None and before.cell == one.cell else _result(study, one))
    return results


def _result(study: Study, named: Named) -> Result:
    cell = named.cell
    histories: dict[int, dict[int, History]] = {}  # point -> seed -> history
    points, done = cell.points, list[Recorded]()
    runs = len(points) * len(cell.seeds)
    for point, run in named.runs:
        if run.done:
            done.append(load(run.folder))
            if done[-1].damaged:  # without it the cell would look as if its data had no such split
                raise AccordError(f"{run.folder} is {done[-1].status}: remove the folder to train it anew")
            for _, evaluation in done[-1].history[:1]:  # all have the same
                check_metric(evaluation.metric)
            histories.setdefault(points.index(point), {})[run.seed] = done[-1].history
    whole = {index: by_seed for index, by_seed in histories.items() if len(by_seed) == len(cell.seeds)}
    figures = {
        rule: chosen
        for rule in dict.fromkeys((*study.rules, MAIN_RULE))
        if (chosen := _figures(rule, whole, points)) is not None
    }
    ended = [run.rounds for run in done]
    span = (min(ended), max(ended)) if ended else None
    printed = find(study.paper, study.table, cell.values)
    return Result(
        cell, figures, printed, len(done), runs, span, sum(run.flat is not None for run in done), named.missing
    )


def check_metric(metric: Metric) -> None:
    """Rules are judged by a metric such that the margin of the judge has a meaning."""
    if metric.smaller_is_better:
        raise AccordError(
            f"rules are judged by a metric of which more is better and 0.002 is little, such as accuracy, auc or r2,"
            f" and {metric.name} is none: name one first in train.metrics"
        )


def _figures(rule: str, histories: Mapping[int, Mapping[int, History]], points: Sequence[Settings]) -> Figures | None:
    """The best point by this rule, among those that all seeds have run."""
    tried = {}
    for index, by_seed in histories.items():
        try:
            tried[index] = {seed: _tested(select(history, rule).values) for seed, history in by_seed.items()}
        except AccordError:  # the data have no split that the rule needs
            return None
    judged = {index: _average(values, judging_split(rule)) for index, values in tried.items()}
    sound = {index: value for index, value in judged.items() if math.isfinite(value)}
    if not sound:
        return None
    best = max(sound, key=lambda index: sound[index])
    curve = _curve(list(histories[best].values())) if rule == MAIN_RULE else {}
    return Figures(points[best], {seed: dict(values) for seed, values in tried[best].items()}, curve)


def _curve(histories: Sequence[History]) -> dict[int, float]:
    """The test set, or else unseen clients, in the rounds that all seeds evaluated: their mean, to five digits."""
    by_round: dict[int, list[float]] = {}
    for number, evaluation in (entry for history in histories for entry in history):
        split = next((split for split in ("test", "unseen") if split in evaluation.splits), None)
        if split is not None:
            by_round.setdefault(number, []).append(evaluation.score(split))
    means = {at: statistics.fmean(values) for at, values in by_round.items() if len(values) == len(histories)}
    return {at: float(f"{value:.5g}") for at, value in means.items() if math.isfinite(value)}


def _tested(values: dict[str, float]) -> dict[str, float]:
    """Where there is no test set, as of data by writer, clients that never train are the test."""
    return {**values, "test": values["unseen"]} if "test" not in values and "unseen" in values else values


def _average(by_seed: Mapping[int, Mapping[str, float]], split: str) -> float:
    values = [figures.get(split, math.nan) for figures in by_seed.values()]
    return sum(values) / len(values)


def plain(study: Study, results: Sequence[Result], command: str, runs: Sequence[PlannedRun] = ()) -> dict[str, Any]:
    """The results, and the command and the runs that they came from, as data that can be written down."""
    return {
        "study": study.name,
        "protocol": PROTOCOL,
        "title": study.title,
        "command": command,
        "paper": study.paper,
        "table": study.table,
        "axes": list(study.axes),
        "compare": study.compare,
        "against": study.against,
        "rules": list(study.rules),
        "seeds": list(study.seeds),
        "runs": [run.folder.name for run in runs],
        "own_rules": list(own_rules(study.paper, study.table)),
        "cells": [
            {
                "values": result.cell.values,
                "done": result.done,
                "runs": result.runs,
                "rounds": result.rounds,
                "flat": result.flat,
                "missing": result.missing,
                "figures": {rule: _plain_figures(f) for rule, f in result.figures.items()},
                "grid": result.cell.grid,
                "printed": [_plain_number(p) for p in result.printed],
                "elsewhere": [_plain_number(other) for p in result.printed for other in elsewhere(p)],
            }
            for result in results
        ],
    }


def _plain_figures(figures: Figures) -> dict[str, Any]:
    curve = {"curve": {str(at): value for at, value in figures.curve.items()}} if figures.curve else {}
    return {"point": figures.point, "by_seed": figures.by_seed, **curve}


def _plain_number(printed: Printed) -> dict[str, Any]:
    columns = {key: printed.columns[key] for key in ("paper", "table", "metric", "window")}
    return {"value": printed.value, "std": printed.std, "note": printed.note, **columns}
