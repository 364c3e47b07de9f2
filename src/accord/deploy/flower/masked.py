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

from accord.core.errors import AccordError
from accord.core.layout import Entry, Layout
from accord.core.protocols import Mask, check_part
from accord.core.record import Record
from accord.core.reports import Reports, why_leave_out
from accord.core.round import Round
from accord.deploy.flower.npy import numpy_in
from accord.deploy.flower.replies import MOST_SAMPLES, one_line
from accord.deploy.flower.turns import check_largest, too_long
from accord.rules.algorithm import Algorithm, Memory
from accord.rules.masks import gma

# how BatchNorm's statistics are called; buffers are never masked
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
# types that a client may answer with: Flower's means turn whole numbers into floats
_NUMBERS = [np.dtype(kind) for kind in ("f4", "f8", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")]
_NOT_WEIGHTS = ("FedXgbBagging", "FedXgbCyclic")


class Masked(FlowerStrategy):
    """`inner` with `mask` on its step. Arrays whose names end like one of `unmasked`, and whole-number arrays, pass as
    they are.

    A reply with NaN, infinity or other shapes than the model's is left out before the strategy within sees it, and so
    is one that weighs more than 10^9 samples, has other metrics than most, or changes the weights by more than
    `largest` times the median (None: by however much); `left_out` counts them.
    """

    def __init__(
        self,
        inner: FlowerStrategy,
        mask: Mask,
        unmasked: Sequence[str] = BUFFERS,
        largest: float | None = 1000.0,
    ) -> None:
        check_largest(largest)
        if not isinstance(inner, FlowerStrategy):
            raise AccordError(f"inner must be a Flower strategy, such as FedAvg(), got {inner!r}")
        check_part("mask", mask, "a mask such as accord.gma(0.4)")
        kind = type(inner).__name__
        if kind.startswith("DifferentialPrivacy"):
            raise AccordError(
                f"{kind} would not cover the votes, which no noise is put on: mask what is within it, and mind the"
                " votes"
            )
        if kind in _NOT_WEIGHTS:
            raise AccordError(f"{kind} exchanges trees, not weights, and trees have no sign to vote with")
        self.inner, self.mask, self.unmasked, self.largest = inner, mask, tuple(unmasked), largest
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
        """As within."""
        return self.inner.aggregate_evaluate(server_round, replies)

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
        metrics = Counter(_metrics_of(reply) for reply in replies if reply.has_content())
        usual = max(metrics, key=lambda names: metrics[names], default=frozenset())
        found: list[tuple[Message, Tensor | None, float]] = []
        for reply in replies:
            delta, weight = None, 0.0
            if reply.has_content():
                try:
                    delta, weight = self._delta(reply, layout, usual)
                except AccordError as error:
                    self._refuse(reply, str(error))
            found.append((reply, delta, weight))
        if self.largest is not None:
            lengths = {
                n: {"change": float(delta.double().norm())}
                for n, (_, delta, _) in enumerate(found)
                if delta is not None
            }
            for n, why in too_long(lengths, self.largest).items():
                self._refuse(found[n][0], why)
                found[n] = found[n][0], None, 0.0
        return found

    def _delta(self, reply: Message, layout: Layout, usual: frozenset[str]) -> tuple[Tensor, float]:
        if _metrics_of(reply) != usual:
            raise AccordError("its metrics are not those of the other nodes")
        weight = _weight(reply, getattr(self.inner, "weighted_by_key", "num-examples"))
        records = list(reply.content.array_records.values())
        if len(records) != 1 or records[0].keys() != self._sent.keys():
            raise AccordError("its arrays are not those of the model")
        values = {name: numpy_in(name, records[0][name], _NUMBERS, sent.shape) for name, sent in self._sent.items()}
        changed = {entry.name: values[entry.name] - self._sent[entry.name] for entry in layout.parameters}
        delta = self._flat(changed, layout)
        why = why_leave_out(delta, 1, layout)
        if why is not None:
            raise AccordError(why)
        if not all(np.isfinite(value).all() for value in values.values() if np.issubdtype(value.dtype, np.floating)):
            raise AccordError("NaN or infinity in a buffer")
        return delta, weight

    def _refuse(self, reply: Message, why: str) -> None:
        self.left_out += 1
        said = one_line(why)
        logging.getLogger("flwr").warning("the reply of node %s is left out: %s", reply.metadata.src_node_id, said)

    def _flat(self, values: dict[str, Any], layout: Layout) -> Tensor:
        return torch.cat(
            [
                torch.from_numpy(np.asarray(values[entry.name])).reshape(-1).to(layout.dtype)
                for entry in layout.parameters
            ]
        )

    def _stepped(self, arrays: ArrayRecord, layout: Layout, trust: Tensor) -> ArrayRecord:
        masks = {name: part.numpy().reshape(self._sent[name].shape) for name, part in layout.layers(trust)}
        made = {}
        for name, array in arrays.items():
            new, old = array.numpy(), self._sent[name]
            # Where a coordinate passes whole it is what the strategy within made it, to the last bit.
            made[name] = (
                np.where(masks[name] == 1.0, new, old + masks[name] * (new - old)).astype(new.dtype)
                if name in masks
                else new
            )
        return ArrayRecord({name: Array(np.asarray(value)) for name, value in made.items()})


def GMA(inner: FlowerStrategy, tau: float = 0.4, unmasked: Sequence[str] = BUFFERS) -> Masked:
    """Gradient masked averaging on a Flower strategy. `tau` is the net agreement a coordinate needs to pass whole; the
    `tau` of Flower's adaptive strategies is another thing, what they add to a root, and stays theirs.

    >>> strategy = GMA(FedAdam(eta=0.02, tau=1e-3), tau=0.4)
    """
    return Masked(inner, gma(tau), unmasked)


def _metrics_of(reply: Message) -> frozenset[str]:
    """The names of what a reply measured, and of the records that they stand in."""
    return frozenset(f"{record}.{name}" for record, of in reply.content.metric_records.items() for name in of)


def _weight(reply: Message, key: str) -> float:
    """The samples that a reply speaks for, which masks of sizes weigh by; 1 where it does not say."""
    for record in reply.content.metric_records.values():
        value = record.get(key)
        if value is None or value == 0:
            continue
        if not isinstance(value, int | float) or not (math.isfinite(value) and 0 < value <= MOST_SAMPLES):
            raise AccordError(f"{key} must be a number of at most {MOST_SAMPLES:,}, got {value!r:.60}")
        return float(value)
    return 1.0
