"""A mask on a Flower strategy that you have already, with your client code as it is: `GMA(FedAdam(...))`.

Clients reply with weights. Their votes are the signs of what they changed; the strategy within makes its step as ever,
Adam's moments and all, and the mask scales what it would change. That is where the papers put it: after the server has
normalised.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from torch import Tensor

from accord.core.errors import AccordError, check_bounds
from accord.core.layout import Entry, Layout
from accord.core.protocols import Mask, check_part
from accord.core.record import Record, State
from accord.core.reports import Reports, why_leave_out
from accord.core.round import Round
from accord.deploy.flower.npy import numpy_in
from accord.deploy.flower.replies import MOST_SAMPLES, one_line
from accord.deploy.flower.turns import UPDATE, Lengths, check_norm_ratio, lengths_of, too_long
from accord.rules.algorithm import Algorithm, Memory
from accord.rules.masks import Tau, gma

# how BatchNorm's statistics are called; buffers are never masked
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
# types that a client may answer with: Flower's means turn whole numbers into floats
_NUMBERS = [np.dtype(kind) for kind in ("f4", "f8", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")]
_Form = frozenset[tuple[str, ...]]  # what a reply holds, by name
_NOT_WEIGHTS = ("FedXgbBagging", "FedXgbCyclic")


class Masked(FlowerStrategy):
    """`inner` with `mask` on its step. Arrays whose names end like one of `unmasked`, and whole-number arrays, pass as
    they are.

    A reply with NaN, infinity or other shapes than the model's is left out before the strategy within sees it, and so
    is one that weighs nothing or more than 10^9 samples, has other records or metrics than most, or changes the weights
    (or an array of floats that is not masked and has more than one number) by more than `max_norm_ratio` times the
    median (None: by however much). So is an evaluation with such metrics. `left_out` counts them.
    """

    def __init__(
        self,
        inner: FlowerStrategy,
        mask: Mask,
        unmasked: Sequence[str] = BUFFERS,
        max_norm_ratio: float | None = 1000.0,
    ) -> None:
        check_norm_ratio(max_norm_ratio)
        if not isinstance(inner, FlowerStrategy):
            raise AccordError(f"inner must be a Flower strategy, such as FedAvg(), got {inner!r}")
        check_part("mask", mask, "a mask such as accord.gma(0.4)")
        check_bounds(mask, "mask")
        kind = type(inner).__name__
        if kind.startswith("DifferentialPrivacy"):
            raise AccordError(
                f"{kind} would not cover the votes, which no noise is put on: mask what is within it, and mind the"
                " votes"
            )
        if kind in _NOT_WEIGHTS:
            raise AccordError(f"{kind} exchanges trees, not weights, and trees have no sign to vote with")
        self.inner, self.mask, self.unmasked, self.max_norm_ratio = inner, mask, tuple(unmasked), max_norm_ratio
        self.left_out = 0
        self._sent: dict[str, np.ndarray] = {}
        self._memory: Memory | None = None

    def summary(self) -> None:
        """What the strategy within says of itself."""
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the strategy within. One that keeps its own copy of the weights (FedAvgM) gets the masked
        ones."""
        self._sent = {name: array.numpy() for name, array in arrays.items()}
        if isinstance(getattr(self.inner, "current_arrays", None), ArrayRecord):
            setattr(self.inner, "current_arrays", arrays.copy())  # noqa: B010 (not every strategy has one)
        return self.inner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The step of the strategy within, scaled by the mask."""
        layout = self._layout()
        algorithm = Algorithm(mask=self.mask)
        start = torch.zeros(layout.size, dtype=layout.dtype)
        self._memory = self._memory or algorithm.init(layout, 1, start)
        total: Record | None = None
        good = []
        for reply, delta, weight in self._checked(list(replies), layout):
            if delta is not None:  # votes first: some strategies empty the replies that they are given
                number = torch.ones(1, 1, dtype=layout.dtype)
                reports = Reports(delta[None], number * weight, number, number[:, :0].double())
                votes = self.mask.lift(reports, self._memory["mask"])
                total = votes if total is None else total + votes
            if delta is not None or reply.has_error():
                good.append(reply)
        arrays, metrics = self.inner.aggregate_train(server_round, good)
        if arrays is None or total is None:
            return arrays, metrics
        round = Round(server_round, layout, len(good))
        trust, self._memory["mask"] = self.mask.lower(total, self._memory["mask"], round)
        return self._stepped(arrays, layout, trust), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As within."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As within, of metrics that most have, all finite."""
        received, good = list(replies), []
        usual = _usual(received)
        for reply in received:
            try:
                if reply.has_content():
                    self._weight(reply, usual)
                good.append(reply)
            except AccordError as error:
                self._refuse(reply, str(error))
        return self.inner.aggregate_evaluate(server_round, good)

    def _layout(self) -> Layout:
        """The arrays that are masked, in one vector."""
        if not self._sent:
            raise AccordError(
                "aggregate_train was called before configure_train: there are no weights to compare the replies with"
            )
        entries, start = [], 0
        for name, value in self._sent.items():
            if np.issubdtype(value.dtype, np.floating) and not name.endswith(self.unmasked):
                entries.append(
                    Entry(
                        name,
                        value.shape,
                        torch.from_numpy(value[..., :0].copy()).dtype if value.ndim else torch.float32,
                        start,
                    )
                )
                start += value.size
        wide = torch.float64 if any(self._sent[entry.name].dtype == np.float64 for entry in entries) else torch.float32
        return Layout(tuple(entries), (), wide)

    def _checked(self, replies: Sequence[Message], layout: Layout) -> list[tuple[Message, Tensor | None, float]]:
        """Every reply with what its client changed, `[P]`, and its weight; None for one that must not count."""
        usual = _usual(replies)
        checked: list[tuple[Message, Tensor | None, float]] = []
        lengths: dict[int, Lengths] = {}
        for number, reply in enumerate(replies):
            delta, weight = None, 0.0
            if reply.has_content():
                try:
                    delta, others, weight = self._delta(reply, layout, usual)
                    lengths[number] = lengths_of({UPDATE: delta, **others})
                except AccordError as error:
                    self._refuse(reply, str(error))
            checked.append((reply, delta, weight))
        for number, why in too_long(lengths, self.max_norm_ratio).items() if self.max_norm_ratio is not None else ():
            self._refuse(replies[number], why)
            checked[number] = replies[number], None, 0.0
        return checked

    def _delta(self, reply: Message, layout: Layout, usual: _Form) -> tuple[Tensor, State, float]:
        """What a client changed, `[P]`; the same of arrays that are not masked; and its weight."""
        weight = self._weight(reply, usual)
        records = list(reply.content.array_records.values())
        if len(records) != 1 or records[0].keys() != self._sent.keys():
            raise AccordError("its arrays are not those of the model")
        values = {name: numpy_in(name, records[0][name], _NUMBERS, sent.shape) for name, sent in self._sent.items()}
        floats = {name: sent for name, sent in self._sent.items() if np.issubdtype(sent.dtype, np.floating)}
        changed = {name: np.asarray(values[name] - sent) for name, sent in floats.items()}
        delta = self._flat(changed, layout)
        why = why_leave_out(delta, 1, layout)
        if why is not None:
            raise AccordError(why)
        if not all(np.isfinite(value).all() for value in values.values() if np.issubdtype(value.dtype, np.floating)):
            raise AccordError("NaN or infinity in a buffer")
        masked = {entry.name for entry in layout.parameters}
        others = {name: torch.from_numpy(value) for name, value in changed.items() if name not in masked}
        return delta, others, weight

    def _weight(self, reply: Message, usual: _Form) -> float:
        """The samples that a reply speaks for, which masks of sizes weigh by; 1 where it does not say."""
        if _form_of(reply) != usual:
            raise AccordError("its metrics are not those of the other nodes")
        key, weight = getattr(self.inner, "weighted_by_key", "num-examples"), 1.0
        for record in reply.content.metric_records.values():
            for name, value in record.items():
                if not all(map(math.isfinite, value if isinstance(value, list) else [value])):
                    raise AccordError(f"its metric {name} is NaN or infinite")
            weight = record.get(key, weight)
        if not isinstance(weight, int | float) or not 0 < weight <= MOST_SAMPLES:
            raise AccordError(f"{key} must be a number above 0 and at most {MOST_SAMPLES:,}, got {weight!r:.60}")
        return float(weight)

    def _refuse(self, reply: Message, why: str) -> None:
        self.left_out += 1
        sentence = one_line(why)
        logging.getLogger("flwr").warning("the reply of node %s is left out: %s", reply.metadata.src_node_id, sentence)

    def _flat(self, values: dict[str, Any], layout: Layout) -> Tensor:
        return torch.cat(
            [
                torch.from_numpy(np.asarray(values[entry.name])).reshape(-1).to(layout.dtype)
                for entry in layout.parameters
            ]
        )

    def _stepped(self, arrays: ArrayRecord, layout: Layout, trust: Tensor) -> ArrayRecord:
        new = {name: array.numpy() for name, array in arrays.items()}
        whole = self._flat(
            {entry.name: new[entry.name] - self._sent[entry.name] for entry in layout.parameters}, layout
        )
        masked = dict(layout.layers(self.mask.apply(trust, whole)))
        for name, part in layout.layers(whole):
            old = self._sent[name]
            step, taken = (each.numpy().reshape(old.shape) for each in (part, masked[name]))
            # Where a coordinate passes whole it is what the strategy within made it, to the last bit.
            new[name] = np.where(taken == step, new[name], old + taken).astype(new[name].dtype)
        return ArrayRecord({name: Array(np.asarray(value)) for name, value in new.items()})


def GMA(
    inner: FlowerStrategy,
    tau: Tau = 0.4,
    unmasked: Sequence[str] = BUFFERS,
    max_norm_ratio: float | None = 1000.0,
) -> Masked:
    """Gradient masked averaging on a Flower strategy. `tau` is the net agreement a coordinate needs to pass whole; the
    `tau` of Flower's adaptive strategies is another thing, what they add to a root, and stays theirs.

    >>> strategy = GMA(FedAdam(eta=0.02, tau=1e-3), tau=0.4)
    """
    return Masked(inner, gma(tau), unmasked, max_norm_ratio)


def _form_of(reply: Message) -> _Form:
    """The records of a reply, and the metrics in them: a number each, or a list of so many."""
    form: set[tuple[str, ...]] = {(name, type(record).__name__) for name, record in reply.content.items()}
    for record, of in reply.content.metric_records.items():
        form |= {(record, name, str(len(v)) if isinstance(v, list) else "number") for name, v in of.items()}
    return frozenset(form)


def _usual(replies: Sequence[Message]) -> _Form:
    """What most replies hold."""
    times = Counter(_form_of(reply) for reply in replies if reply.has_content())
    return max(times, key=lambda form: times[form], default=frozenset())
