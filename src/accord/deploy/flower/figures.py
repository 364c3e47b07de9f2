"""An evaluation on its way from the nodes to the server: sums over each client's samples and, of metrics of a whole
group, each client's own figure and what the figure of all of them is computed from, such as a histogram of scores.

Samples' own scores never travel. What does is released: the server sees it client by client.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.measure import Measure
from accord.core.metric_names import METRICS
from accord.deploy.flower.wire import arrays_of, content, message_in, tensors_in
from accord.engines.contract import Group, Table
from accord.engines.group_values import Exact, GroupValues, Released


def evaluation_as(table: Table) -> RecordDict:
    """What a node sends."""
    told: dict[str, Any] = {
        "groups": [list(group) for group in table.groups],
        "samples": table.samples.tolist(),
        "sums": {metric: values.tolist() for metric, values in table.sums.items()},
        "smaller": sorted(table.smaller),
        "nan": [] if table.nan is None else table.nan.tolist(),
        "order": list(table.metrics),
        "of_group": {},
    }
    released = {}
    for name, values in table.of_group.items():
        exact = cast(Exact, values)  # a node has its samples
        kind = next((known for known, metric in METRICS.items() if metric == exact.measure), None)
        figures = [None if np.isnan(figure) else float(figure) for figure in values.each]
        told["of_group"][name] = {"kind": kind, "figures": figures}
        if kind is not None and table.samples.any():
            released[name] = _lifted(exact)
    return content({"released": arrays_of(released)} if released else {}, told)


def _lifted(values: Exact) -> Tensor:
    """What a metric adds up over clients, `[G, ...]`; zeros for a client without samples."""
    sizes = np.diff(values.all.bounds)
    lifted = {g: values.measure.lift(*values.all.at(g)) for g in np.flatnonzero(sizes).tolist()}
    nothing = torch.zeros_like(next(iter(lifted.values())))
    return torch.stack([lifted.get(g, nothing) for g in range(len(sizes))])


@dataclass
class _OfGroup:
    """A metric of a whole group, as far as nodes have told of it."""

    measure: Measure | None  # None: it is the clients' own, and the server does not know it
    figures: np.ndarray  # [G]
    counts: Tensor | None = None  # [G, ...]


@dataclass
class Gathered:
    """Nodes' answers, put together. An answer whose parts do not match is refused whole."""

    groups: Sequence[Group]
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    smaller: set[str] = field(default_factory=lambda: {"loss"})
    order: tuple[str, ...] = ()
    error: str | None = None  # why a node could not evaluate

    def __post_init__(self) -> None:
        self._number = {(split, client): g for g, (split, client, _) in enumerate(self.groups)}
        self._of_group: dict[str, _OfGroup] = {}
        self.samples = np.zeros(len(self.groups), dtype=np.int64)
        self.nan = np.zeros(len(self.groups))

    def add(self, received: RecordDict) -> None:
        """Takes in a node's answer."""
        told, released = message_in(received), tensors_in(received, "released")
        if "error" in told:
            self.error = str(told["error"])
            return
        places = [self._number.get((split, client)) for split, client in told["groups"]]
        counts, sums, nan = _checked(told, len(places))
        of_group = {str(name): self._read(str(name), of, released, places) for name, of in _metrics(told)}
        mine = [entry for entry, g in enumerate(places) if g is not None]
        here = [g for g in places if g is not None]
        self.samples[here], self.nan[here] = counts[mine], nan[mine]
        for metric, values in sums.items():
            self.sums.setdefault(metric, np.zeros(len(self.groups)))[here] = values[mine]
        for name, (measure, figures, sent) in of_group.items():
            known = self._of_group.setdefault(name, _OfGroup(measure, np.full(len(self.groups), np.nan)))
            known.figures[here] = figures[mine]
            if sent is not None:
                if known.counts is None:
                    known.counts = torch.zeros(len(self.groups), *sent.shape[1:], dtype=torch.float64)
                known.counts[here] = sent[mine].double()
        self.smaller |= set(map(str, told["smaller"]))
        self.order = self.order or tuple(map(str, told.get("order", ())))

    def _read(
        self, name: str, told: Mapping[str, Any], released: Mapping[str, Tensor], places: Sequence[int | None]
    ) -> tuple[Measure | None, np.ndarray, Tensor | None]:
        """One metric of an answer: what the server knows it as, the clients' figures, and what they add up."""
        measure = cast(Measure | None, METRICS.get(told["kind"]))
        figures = np.array([np.nan if of is None else of for of in told["figures"]], dtype=np.float64)
        sent, known = released.get(name), self._of_group.get(name)
        before = None if known is None else known.counts
        if (
            figures.shape != (len(places),)
            or (known is not None and known.measure != measure)
            or (sent is not None and (len(sent) != len(places) or not sent.isfinite().all()))
            or (sent is not None and before is not None and sent.shape[1:] != before.shape[1:])
        ):
            raise AccordError(f"an evaluation whose {name} does not match that of others")
        return measure, figures, None if measure is None else sent

    def table(self) -> Table:
        """All answers. Groups that nobody answered for have no samples."""
        groups = [(split, client) for split, client, _ in self.groups]
        found = {name: _values(of) for name, of in self._of_group.items()}
        known = self.sums.keys() | found.keys()
        order = tuple(name for name in dict.fromkeys([*self.order, *self.sums, *found]) if name in known)
        return Table(groups, self.samples, self.sums, frozenset(self.smaller & known), found, self.nan, order)


def _values(of: _OfGroup) -> GroupValues:
    nothing = torch.zeros(len(of.figures))
    return Released(
        of.measure if of.counts is not None else None, of.figures, nothing if of.counts is None else of.counts
    )


def _metrics(told: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
    return list(told.get("of_group", {}).items())


def _checked(told: Mapping[str, Any], groups: int) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    counts = np.asarray(told["samples"], dtype=np.int64)
    nan = np.asarray(told.get("nan") or np.zeros(groups), dtype=np.float64)
    values = {str(metric): np.asarray(sums, dtype=np.float64) for metric, sums in told["sums"].items()}
    shapes = {counts.shape, nan.shape, *(sums.shape for sums in values.values())}
    if shapes != {(groups,)} or (counts < 0).any():
        raise AccordError("an evaluation whose parts do not match")
    return counts, values, nan
