"""Leave one client out: the same methods trained without one client after another, as one table of what they reach on
the client that was left out."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accord.core.metrics import TITLES, Metric
from accord.core.names import in_order
from accord.runs.comparison import flat, told_apart
from accord.runs.evaluation import metric_of
from accord.runs.reader import Recorded
from accord.runs.selection import Selected
from accord.runs.text import Cells, spread

# settings in which runs of one method differ by whom they leave out
_WHO = ("data.unseen", "data.clients", "content.data", "content.prepare")
Chosen = Mapping[str, Mapping[str, Mapping[str, Selected]]]  # method -> client left out -> seed -> figures


@dataclass(frozen=True)
class LeftOut:
    """Figures of methods on each client that they were trained without. `rule` chose the rounds."""

    metric: Metric
    rule: str
    chosen: Chosen

    @property
    def clients(self) -> list[str]:
        """The clients that were left out."""
        return in_order({client for of in self.chosen.values() for client in of})

    def figures(self, method: str) -> dict[str, list[float]]:
        """What the method reaches on each client that was left out: a figure per seed."""
        return {client: [one.values["unseen"] for one in of.values()] for client, of in self.chosen[method].items()}

    def by_seed(self, method: str, on: str = "unseen") -> dict[str, float]:
        """The method's mean over the clients that were left out, for every seed that has them all; with `on`, what
        these runs reach on average on other data than the client's."""
        of = self.chosen[method]
        seeds = [seed for seed in next(iter(of.values())) if all(seed in of.get(client, {}) for client in self.clients)]
        values_of = {seed: [of[client][seed].by_name.get(on, math.nan) for client in self.clients] for seed in seeds}
        return {seed: statistics.fmean(values) for seed, values in values_of.items()}

    def worst(self, method: str) -> str | None:
        """The client on which the method is worst, of a method that has figures on all."""
        means = {client: statistics.fmean(of) for client, of in self.figures(method).items() if of}
        there = means.keys() >= set(self.clients)
        return min(self.clients, key=lambda client: self.metric.score(means[client])) if there else None

    def cells(self) -> Cells:
        """A row per method, a column per left-out client, the mean of these and the worst; then the test sets."""
        tests = self._tests()
        seeds = {method: self._seeds(method) for method in self.chosen}
        many = any("," in of for of in seeds.values())
        head = [f"{self.metric.title} on the client left out, by {self.rule}", "seeds" if many else "seed"]
        cells = [[*head, *self.clients, "mean", "worst", *(TITLES.get(test, test) for test in tests)]]
        for method in self.chosen:
            of, worst = self.figures(method), self.worst(method)
            figures = [self._cell(of.get(client, [])) for client in self.clients]
            others = [self._cell(list(self.by_seed(method, test).values())) for test in tests]
            mean = self._cell(list(self.by_seed(method).values()))
            cells.append(
                [method, seeds[method], *figures, mean, "-" if worst is None else self._cell(of[worst]), *others]
            )
        return cells

    def to_json(self) -> list[dict[str, Any]]:
        """The table for machines."""
        return [
            {
                "method": method,
                "metric": self.metric.name,
                "rule": self.rule,
                "left_out": self.figures(method),
                "mean": list(self.by_seed(method).values()),
                "worst": self.worst(method),
                "tests": {test: list(self.by_seed(method, test).values()) for test in self._tests()},
            }
            for method in self.chosen
        ]

    def _tests(self) -> list[str]:
        """The test sets that all runs have figures on, the data's own first."""
        figures = [_test_figures(one) for of in self.chosen.values() for seeds in of.values() for one in seeds.values()]
        return [test for test in figures[0] if all(test in of for of in figures)] if figures else []

    def _seeds(self, method: str) -> str:
        return ",".join(dict.fromkeys(seed for of in self.chosen[method].values() for seed in of))

    def _cell(self, values: Sequence[float]) -> str:
        return spread(values, self.metric) if values else "-"


def _test_figures(one: Selected) -> dict[str, float]:
    test = {"test": one.values["test"]} if "test" in one.values else {}
    return {**test, **one.tests}


def split_off(runs: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """The runs that belong to methods which left out one client after another, and the others."""
    clients: dict[str, set[str]] = {}
    for run in runs:
        if run.named_unseen:
            clients.setdefault(_method(run), set()).add(_title(run.named_unseen))
    several = {method for method, left_out in clients.items() if len(left_out) > 1}
    belong = [bool(run.named_unseen) and _method(run) in several for run in runs]
    return (
        [run for run, does in zip(runs, belong, strict=True) if does],
        [run for run, does in zip(runs, belong, strict=True) if not does],
    )


def by_method(runs: Iterable[Recorded]) -> dict[str, list[Recorded]]:
    """Runs that differ by seed and by whom they leave out, together, under the name of their method."""
    methods: dict[str, list[Recorded]] = {}
    for run in runs:
        methods.setdefault(_method(run), []).append(run)
    leaders = [members[0] for members in methods.values()]
    names = told_apart([run.label for run in leaders], [_own(run) for run in leaders])
    return dict(zip(names, methods.values(), strict=True))


def left_out(runs: Iterable[Recorded], rule: str) -> LeftOut:
    """The table of runs that `split_off` found to belong to it."""
    methods = by_method(runs)
    chosen: dict[str, dict[str, dict[str, Selected]]] = {name: {} for name in methods}
    for name, members in methods.items():
        for run in members:
            figures = chosen[name].setdefault(_title(run.named_unseen), {})
            if (one := run.chosen(rule)) is not None:
                figures[run.seed] = one
    return LeftOut(metric_of(run.history for members in methods.values() for run in members), rule, chosen)


def _title(clients: Sequence[str]) -> str:
    return ", ".join(clients)


def _own(run: Recorded) -> dict[str, Any]:
    """The settings that make a method, whomever it leaves out."""
    return {key: value for key, value in flat(run.settings).items() if not key.startswith(_WHO)}


def _method(run: Recorded) -> str:
    return repr((str(run.folder.parent), run.label, sorted((key, repr(value)) for key, value in _own(run).items())))
