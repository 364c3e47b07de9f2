"""Three-way evaluation: training data, held-out data of the same clients, and clients that never took part
(docs/explanation/mathematics.md).

Per split and metric the mean over samples and over clients, the worst client and the 10/50/90 % quantiles; and the two
gaps, out-of-sample (train minus held-out) and participation (held-out minus unseen). Parts of a split, such as the
unseen clients of one population, and further test sets get a row each of their own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accord.core.jsonable import Json, Jsonable
from accord.core.metrics import GAPS, TITLES, Metric
from accord.engines.contract import Table
from accord.engines.group_values import GroupValues
from accord.runs.notes import notes_on

Parts = dict[str, set[tuple[str, str]]]  # what a part is called -> its (split, client)


@dataclass(frozen=True, slots=True)
class Figures:
    """One metric over the clients of a split. None where there is no figure: a model that diverged has none, and a
    metric of a whole group may be undefined. `by_sample` is the mean over samples or, of a metric of a whole group, its
    figure on all of them; clients without a figure are in no mean."""

    by_sample: float | None = None
    by_client: float | None = None
    worst: float | None = None
    q10: float | None = None
    q50: float | None = None
    q90: float | None = None

    def __iter__(self) -> Iterator[float | None]:
        return (getattr(self, name) for name in _FIGURES)

    def minus(self, other: "Figures") -> "Figures":
        """The gap to another split, of both means."""
        pairs = ((self.by_sample, other.by_sample), (self.by_client, other.by_client))
        return Figures(*(None if a is None or b is None else a - b for a, b in pairs))


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A split, or a part of one: its size, and its figures by metric."""

    clients: int
    samples: int
    metrics: dict[str, Figures]

    def to_json(self) -> Json:
        figures = {name: {key: getattr(of, key) for key in _FIGURES} for name, of in self.metrics.items()}
        return {"clients": self.clients, "samples": self.samples, **figures}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "SplitRow":
        metrics = {name: Figures(**of) for name, of in form.items() if name not in ("clients", "samples")}
        return cls(form.get("clients", 0), form.get("samples", 0), metrics)


_FIGURES = tuple(Figures.__slots__)
_TEST = "test, "  # begins the part that is a further test set
_QUANTILES = np.array([0.1, 0.5, 0.9])
_MEANS = ("by_sample", "by_client")  # what a gap is told of


@dataclass(frozen=True, eq=False, slots=True)
class Evaluation(Jsonable):
    """One model, evaluated: a row per split, and the metric that it is judged by."""

    splits: dict[str, SplitRow]
    smaller_is_better: tuple[str, ...] = ("loss",)
    parts: dict[str, SplitRow] = field(default_factory=dict)
    privacy: dict[str, float] | None = None
    notes: tuple[str, ...] = ()  # sentences: NaN predictions, clients without a figure
    metrics: tuple[str, ...] = field(init=False)  # what was measured, in order
    metric: Metric = field(init=False)  # that a run is judged by: the first that is not the loss, or else the loss
    tests: dict[str, SplitRow] = field(init=False)  # further test sets by their names

    def __post_init__(self) -> None:
        names = next((tuple(row.metrics) for row in self.splits.values()), ())
        judge = next((name for name in names if name != "loss"), "loss")
        object.__setattr__(self, "metrics", names)
        object.__setattr__(self, "metric", Metric(judge, judge in self.smaller_is_better))
        tests = {name.removeprefix(_TEST): row for name, row in self.parts.items() if name.startswith(_TEST)}
        object.__setattr__(self, "tests", tests)

    def score(self, split: str) -> float:
        """How good the model is on a split; larger is better."""
        return self.metric.score(self.splits[split].metrics[self.metric.name].by_sample)

    def gaps(self) -> dict[str, dict[str, Figures]]:
        """Both gaps by metric, as far as there are the splits for them."""
        there = {name: gap for name, gap in GAPS.items() if {gap.first, gap.second} <= self.splits.keys()}
        by_gap = {}
        for name, gap in there.items():
            first, second = self.splits[gap.first].metrics, self.splits[gap.second].metrics
            by_gap[name] = {metric: first[metric].minus(second[metric]) for metric in first}
        return by_gap

    def fields_in_json(self) -> Json:
        gaps = {
            name: {metric: {key: getattr(of, key) for key in _MEANS} for metric, of in metrics.items()}
            for name, metrics in self.gaps().items()
        }
        form = {
            "splits": {name: row.to_json() for name, row in self.splits.items()},
            "gaps": gaps,
            "smaller_is_better": list(self.smaller_is_better),
        }
        if self.parts:
            form["parts"] = {name: row.to_json() for name, row in self.parts.items()}
        if self.notes:
            form["notes"] = list(self.notes)
        return form if self.privacy is None else {**form, "privacy": self.privacy}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Evaluation":
        """What was written down; gaps are told by the splits."""
        if not form["splits"]:
            raise ValueError("an evaluation without data says nothing")
        return cls(
            {name: SplitRow.from_json(row) for name, row in form["splits"].items()},
            tuple(form.get("smaller_is_better", ("loss",))),
            {name: SplitRow.from_json(row) for name, row in form.get("parts", {}).items()},
            form.get("privacy"),
            tuple(form.get("notes", ())),
        )


History = Sequence[tuple[int, Evaluation]]  # (round, evaluation), in order


def splits_of(history: History) -> list[str]:
    """The splits that a run has. An evaluation of a deployment lacks one if none of its nodes answered."""
    return [split for split in TITLES if any(split in evaluation.splits for _, evaluation in history)]


def tests_of(history: History) -> list[str]:
    """The further test sets that a run has."""
    return list(dict.fromkeys(name for _, evaluation in history for name in evaluation.tests))


def metric_of(histories: Iterable[History]) -> Metric:
    """The metric that runs are judged by; accuracy where none was evaluated."""
    return next((history[0][1].metric for history in histories if history), Metric("accuracy"))


def summarise(table: Table, parts: Parts | None = None, privacy: dict[str, float] | None = None) -> Evaluation:
    """The evaluation of one model. Clients without samples in a split do not count in it."""
    return summarise_many([table], parts, [privacy])[0]


def summarise_many(
    tables: Sequence[Table], parts: Parts | None, privacy: Sequence[dict[str, float] | None]
) -> list[Evaluation]:
    """The same of several models that were evaluated on the same groups, with the same metrics: quantiles of hundreds
    of clients take numpy about as long for all of them as for one."""
    first = tables[0]
    of_split = np.array([split for split, _ in first.groups])
    there = first.samples > 0
    others: Parts = {f"{_TEST}{name}": {(split, name)} for split, name in first.groups if split == "other"}
    of_parts = {
        name: np.array([group in members for group in first.groups])
        for name, members in {**(parts or {}), **others}.items()
    }
    of_splits = _rows(tables, {split: (of_split == split) & there for split in TITLES})
    of_others = _rows(tables, {name: members & there for name, members in of_parts.items()})
    smaller = tuple(sorted(first.smaller))
    return [
        Evaluation(splits, smaller, more, spent, notes_on(table))
        for table, splits, more, spent in zip(tables, of_splits, of_others, privacy, strict=True)
    ]


def _rows(tables: Sequence[Table], chosen: Mapping[str, np.ndarray]) -> list[dict[str, SplitRow]]:
    """Of every table, a row for each choice of groups that there are any of."""
    rows = {name: _row(tables, here) for name, here in chosen.items() if here.any()}
    return [{name: of_tables[at] for name, of_tables in rows.items()} for at in range(len(tables))]


def _row(tables: Sequence[Table], here: np.ndarray) -> list[SplitRow]:
    first = tables[0]
    samples, metrics = first.samples[here], {}
    size = samples.sum()
    for metric in first.metrics:
        smaller = metric in first.smaller
        if metric in first.of_group:
            metrics[metric] = [_of_group(table.of_group[metric], here, smaller) for table in tables]
        else:
            sums = np.stack([table.sums[metric][here] for table in tables])
            metrics[metric] = _spread((sums.sum(1) / size).tolist(), sums / samples, smaller)
    return [
        SplitRow(len(samples), int(size), {metric: figures[at] for metric, figures in metrics.items()})
        for at in range(len(tables))
    ]


def _of_group(values: GroupValues, here: np.ndarray, smaller: bool) -> Figures:
    per_client = values.each[here]
    there = per_client[~np.isnan(per_client)]
    return _spread([values.over(here)], there[None], smaller)[0] if len(there) else Figures(values.over(here))


def _spread(by_sample: Sequence[float | None], per_client: np.ndarray, smaller: bool) -> list[Figures]:
    """Of every model: its figure by sample, and those of its clients, `[R, N]`."""
    worst = per_client.max(1) if smaller else per_client.min(1)
    columns = np.column_stack([per_client.mean(1), worst, quantiles(per_client, _QUANTILES)])
    return [Figures(mean, *others) for mean, others in zip(by_sample, columns.tolist(), strict=True)]


def quantiles(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """`[R, Q]` of each row of `[R, N]`, with the bits of `np.quantile`, which takes five times as long for hundreds of
    values: it does not sort them whole."""
    ordered, last = np.sort(values, 1), values.shape[1] - 1
    below = np.floor(shares * last).astype(np.int64)
    rest = shares * last - below
    low, high = ordered[:, below], ordered[:, np.minimum(below + 1, last)]
    with np.errstate(invalid="ignore"):  # infinities of a model that diverged
        apart = high - low
        between = np.where(rest < 0.5, low + apart * rest, high - apart * (1 - rest))
    return np.where(np.isnan(ordered[:, -1:]), np.nan, between)  # where they are sorted to


def by_population(populations: Mapping[str, str], groups: Collection[tuple[str, str]]) -> Parts:
    """Held-out and unseen clients by the population they come from, where there are several."""
    parts: Parts = {}
    for split in ("heldout", "unseen"):
        for population in sorted(set(populations.values())) if len(set(populations.values())) > 1 else []:
            parts[f"{TITLES[split]}, {population}"] = {
                (s, c) for s, c in groups if s == split and populations.get(c) == population
            }
    return parts


def by_turn(took_part: Collection[str], groups: Collection[tuple[str, str]]) -> Parts:
    """Held-out data of the clients that took part in the round just done, and of those that did not, where there are
    both."""
    heldout = {group for group in groups if group[0] == "heldout"}
    in_it = {(split, client) for split, client in heldout if client in took_part}
    return (
        {"held-out, in this round": in_it, "held-out, not in it": heldout - in_it} if in_it and in_it != heldout else {}
    )


def per_client(table: Table) -> list[dict[str, Any]]:
    """A row for every client with samples: split, client, samples and each metric; None where it has no figure."""

    def value(metric: str, g: int) -> float | None:
        if metric in table.of_group:
            figure = table.of_group[metric].each[g]
            return None if np.isnan(figure) else float(figure)
        return float(table.sums[metric][g] / table.samples[g])

    metrics = table.metrics
    return [
        {
            "split": split,
            "client": client,
            "samples": int(table.samples[g]),
            **{metric: value(metric, g) for metric in metrics},
        }
        for g, (split, client) in enumerate(table.groups)
        if table.samples[g]
    ]
