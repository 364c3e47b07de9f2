"""An evaluation on its way from the nodes to the server: sums over each client's samples and, of metrics of a whole
group, each client's own figure and what the figure of all of them is computed from, such as a histogram of scores.

Samples' own scores never travel. What does is released: the server sees it client by client.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.losses import LOSSES
from accord.core.measure import EVERY_NUMBER, Measure, Metrics, PerSample, declared, in_range
from accord.core.metric_names import METRICS
from accord.core.record import State
from accord.deploy.flower.npy import arrays_in
from accord.deploy.flower.replies import EvaluationReply, Measured
from accord.deploy.flower.wire import LARGEST_NUMBER, arrays_of, content, recordable_or_none
from accord.engines.contract import Group, Table
from accord.engines.group_values import Exact, GroupValues, Released

Held = Mapping[tuple[str, str], int]  # (split, client) -> samples, of one node
_OWN: Metrics = {**METRICS, **LOSSES}  # accord's, whose range is known


def evaluation_as(table: Table, metrics: Metrics, loss: PerSample) -> RecordDict:
    """What a node sends that measures these."""
    kinds = {name: _kind(declared(metric)) for name, metric in {"loss": loss, **metrics}.items()}
    body: dict[str, Any] = {
        "groups": [list(group) for group in table.groups],
        "samples": table.samples.tolist(),
        "sums": {name: _measured(kinds.get(name), values) for name, values in table.sums.items()},
        "smaller": sorted(table.smaller),
        "nan": [] if table.nan is None else table.nan.tolist(),
        "order": list(table.metrics),
        "of_group": {name: _measured(kinds[name], values.each) for name, values in table.of_group.items()},
    }
    released = {
        name: _lifted(cast(Exact, values))  # a node has its samples
        for name, values in table.of_group.items()
        if kinds[name] is not None and table.samples.any()
    }
    return content({"released": arrays_of(released)} if released else {}, body)


def _kind(measure: Measure) -> str | None:
    """What accord knows a metric as; None: it is the user's own, whatever they call it."""
    return next((known for known, metric in _OWN.items() if declared(metric) == measure), None)


def _measured(kind: str | None, values: np.ndarray) -> dict[str, Any]:
    return {"kind": kind, "figures": list(map(recordable_or_none, values.tolist()))}


def _lifted(values: Exact) -> Tensor:
    """What a metric adds up over clients, `[G, ...]`; zeros for a client without samples."""
    sizes = np.diff(values.all.bounds)
    lifted = {g: values.measure.lift(*values.all.at(g)) for g in np.flatnonzero(sizes).tolist()}
    nothing = torch.zeros_like(next(iter(lifted.values())))
    return torch.stack([lifted.get(g, nothing) for g in range(len(sizes))])


Kinds = tuple[tuple[str, str | None], ...]  # metrics, and what accord knows them as


@dataclass(frozen=True)
class Form:
    """What was measured, and how. Nodes of one app agree on it; one that does not could turn the others' figures."""

    order: tuple[str, ...]
    smaller: frozenset[str]
    per_sample: Kinds
    of_group: Kinds
    shapes: tuple[tuple[str, tuple[int, ...]], ...]  # of what a client adds up for them


@dataclass(frozen=True)
class Answer:
    """A node's figures, checked by themselves."""

    form: Form
    reply: EvaluationReply
    released: State

    @classmethod
    def read(cls, received: RecordDict, held: Held, asked: Mapping[tuple[str, str], int]) -> "Answer":
        """A node's answer, if it is about the clients that the node holds, all of them and with their samples, and
        about nobody else who is `asked` for."""
        reply = EvaluationReply.read(received, ["released"])
        groups = [(split, client) for split, client in reply.groups]
        counts = dict(zip(groups, reply.samples, strict=True))
        if len(counts) < len(groups):
            raise AccordError("it evaluates a client twice")
        for group in groups:
            if group in asked and group not in held:
                raise AccordError(f"it evaluates the {group[0]} data of client {group[1]}, whom it does not hold")
        for (split, client), samples in held.items():
            if counts.get((split, client)) != samples:
                raise AccordError(
                    f"it evaluates {counts.get((split, client), 'none')} of the {samples} {split} samples that it"
                    f" registered of client {client}"
                )
        per_sample, of_group = _known(reply.sums, False), _known(reply.of_group, True)
        released = _released(received, reply, list(of_group))
        _check(reply, per_sample, of_group, released)
        shapes = tuple((name, tuple(value.shape[1:])) for name, value in released.items())
        form = Form(tuple(reply.order), frozenset(reply.smaller), _kinds(reply.sums), _kinds(reply.of_group), shapes)
        return cls(form, reply, released)

    @property
    def finite(self) -> bool:
        """Whether accord's own losses and metrics are finite, as they are unless the model diverged on some of the
        node's data. A custom one may be NaN by definition: only its own value is missing then."""
        figures = [figure for of in self.reply.sums.values() if of.kind is not None for figure in of.figures]
        return None not in figures and all(bool(value.isfinite().all()) for value in self.released.values())


def _kinds(measured: Mapping[str, Measured]) -> Kinds:
    return tuple((name, of.kind) for name, of in measured.items())


def _known(measured: Mapping[str, Measured], of_group: bool) -> dict[str, Measure]:
    """Those of the metrics that are accord's."""
    for name, of in measured.items():
        if of.kind is not None and (of.kind not in _OWN or declared(_OWN[of.kind]).of_group != of_group):
            what = "of a whole group" if of_group else "per sample"
            raise AccordError(f"there is no metric {what} called {of.kind!r}, as its {name} is said to be")
    return {name: declared(_OWN[of.kind]) for name, of in measured.items() if of.kind is not None}


def _check(
    reply: EvaluationReply, per_sample: Mapping[str, Measure], of_group: Mapping[str, Measure], released: State
) -> None:
    """Refuses figures of accord's losses and metrics that no data could give. Of other metrics nobody knows what they
    can be."""
    samples = torch.tensor(reply.samples, dtype=torch.float64)
    for name, of in reply.sums.items():
        bounds = per_sample[name].range if name in per_sample else EVERY_NUMBER
        if not in_range(_numbers(of.figures), bounds, samples):
            raise AccordError(f"its {name} is out of range")
    for name, value in released.items():
        if bool(((value.abs() > LARGEST_NUMBER) & value.isfinite()).any()):
            raise AccordError(f"what it adds up for {name} is out of range")
    for name, measure in of_group.items():
        figures = _numbers(reply.of_group[name].figures)
        there = figures[~figures.isnan()]
        if not in_range(there, measure.range, torch.ones_like(there)):
            raise AccordError(f"its {name} is out of range")
        for lifted, count in zip(released[name], reply.samples, strict=True) if name in released else ():
            if not (measure.could_be(lifted, count) if count else not lifted.any()):
                raise AccordError(f"what it adds up for {name} is not that of {count} samples")


def _numbers(values: Sequence[float | None]) -> Tensor:
    return torch.tensor([np.nan if of is None else of for of in values], dtype=torch.float64)


def _released(received: RecordDict, reply: EvaluationReply, known: Sequence[str]) -> State:
    """What is added up for metrics of a whole group that the server knows."""
    names = known if any(reply.samples) else []
    return arrays_in(received, "released", {name: (torch.float64, (len(reply.groups), ...)) for name in names})


class Gathered:
    """Nodes' answers, put together. One that was measured otherwise than most nodes', or that is not finite where most
    are, is left out."""

    def __init__(self, groups: Sequence[Group], held: Mapping[int, Held], before: Form | None = None) -> None:
        self.groups, self.held, self.before = groups, held, before
        self.number = {(split, client): g for g, (split, client, _) in enumerate(groups)}
        self.answers: dict[int, Answer] = {}

    def add(self, node: int, received: RecordDict) -> None:
        """Takes in a node's answer."""
        self.answers[node] = Answer.read(received, self.held.get(node, {}), self.number)

    def exclude_odd_forms(self) -> list[int]:
        """Excludes the answers whose form is not the most common one, and gives their nodes. If several forms are
        equally common, the form of the evaluation before counts. A node without samples has nothing to report."""
        self.answers = {node: answer for node, answer in self.answers.items() if any(answer.reply.samples)}
        times = Counter(answer.form for answer in self.answers.values())
        if not times:
            return []
        self.before = max(times, key=lambda form: (times[form], form == self.before))
        return self._exclude([node for node, answer in self.answers.items() if answer.form != self.before])

    def exclude_diverged(self) -> list[int]:
        """Excludes the answers that are not finite, and gives their nodes. An honest node's data may make the model
        diverge, and its answer would take the value from all other clients. If most answers are not finite, the model
        itself diverged: all stay, and the value is missing."""
        diverged = [node for node, answer in self.answers.items() if not answer.finite]
        return [] if 2 * len(diverged) > len(self.answers) else self._exclude(diverged)

    def _exclude(self, nodes: list[int]) -> list[int]:
        self.answers = {node: answer for node, answer in self.answers.items() if node not in nodes}
        return nodes

    def table(self) -> Table:
        """All answers. Groups that nobody answered for have no samples."""
        form = cast(Form, self.before)
        count, kinds = len(self.groups), dict(form.of_group)
        samples, nan = np.zeros(count, dtype=np.int64), np.zeros(count)
        sums = {metric: np.zeros(count) for metric in form.order if metric not in kinds}
        figures = {name: np.full(count, np.nan) for name in kinds}
        counts = {name: torch.zeros(count, *shape, dtype=torch.float64) for name, shape in form.shapes}
        for answer in self.answers.values():
            reply = answer.reply
            places = [self.number.get((split, client)) for split, client in reply.groups]
            mine = [entry for entry, g in enumerate(places) if g is not None]
            here = [g for g in places if g is not None]
            samples[here] = np.asarray(reply.samples, dtype=np.int64)[mine]
            nan[here] = np.asarray(reply.nan)[mine] if reply.nan else 0.0
            for metric, of in reply.sums.items():
                sums[metric][here] = _numbers(of.figures).numpy()[mine]
            for name, of in reply.of_group.items():
                figures[name][here] = _numbers(of.figures).numpy()[mine]
            for name, sent in answer.released.items():
                counts[name][here] = sent[mine]
        gathered = {name: _values(kinds[name], figures[name], counts.get(name)) for name in kinds}
        groups = [(split, client) for split, client, _ in self.groups]
        return Table(groups, samples, sums, form.smaller, gathered, nan, form.order)


def _values(kind: str | None, figures: np.ndarray, counts: Tensor | None) -> GroupValues:
    measure = None if kind is None or counts is None else cast(Measure, METRICS[kind])
    return Released(measure, figures, torch.zeros(len(figures)) if counts is None else counts)
