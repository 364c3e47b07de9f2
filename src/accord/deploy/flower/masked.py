"""A mask on a Flower strategy that you have already, with your client code as it is: `GMA(FedAdam(...))`.

Clients reply with weights. Their votes are the signs of what they changed; the strategy within makes its step as ever,
Adam's moments and all, and the mask scales what it would change. That is where the papers put it: after the server has
normalised.
"""

import logging
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
from accord.rules.algorithm import Algorithm, Memory
from accord.rules.masks import gma

# how BatchNorm's statistics are called; buffers are never masked
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_NOT_WEIGHTS = ("FedXgbBagging", "FedXgbCyclic")


class Masked(FlowerStrategy):
    """`inner` with `mask` on its step. Arrays whose names end like one of `unmasked`, and whole-number arrays, pass as
    they are.

    A reply with NaN, infinity or other shapes than the model's is left out before the strategy within sees it;
    `left_out` counts them.
    """

    def __init__(self, inner: FlowerStrategy, mask: Mask, unmasked: Sequence[str] = BUFFERS) -> None:
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
        self.inner, self.mask, self.unmasked = inner, mask, tuple(unmasked)
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
        for reply in replies:  # votes first: some strategies empty the replies that they are given
            delta, weight = self._delta(reply, layout)
            if delta is not None:
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

    def _delta(self, reply: Message, layout: Layout) -> tuple[Tensor | None, float]:
        """What a client changed, `[P]`, and its weight; None if the reply must not count."""
        if reply.has_error():
            return None, 0.0
        weight = _weight(reply, getattr(self.inner, "weighted_by_key", "num-examples"))
        records = list(reply.content.array_records.values())
        try:
            values = {name: array.numpy() for record in records[:1] for name, array in record.items()}
            fits = values.keys() == self._sent.keys() and all(
                values[name].shape == sent.shape for name, sent in self._sent.items()
            )
        except (ValueError, TypeError, OSError, EOFError):
            fits = False
        if not fits:
            return self._refuse(reply, "its arrays are not those of the model")
        delta = self._flat(
            {name: values[name] - self._sent[name] for name in (entry.name for entry in layout.parameters)}, layout
        )
        why = why_leave_out(delta, 1, layout)
        rest = all(
            np.isfinite(value).all() for name, value in values.items() if np.issubdtype(value.dtype, np.floating)
        )
        if why is None and rest:
            return delta, weight
        return self._refuse(reply, why or "NaN or infinity in a buffer")

    def _refuse(self, reply: Message, why: str) -> tuple[None, float]:
        self.left_out += 1
        logging.getLogger("flwr").warning("the reply of node %s is left out: %s", reply.metadata.src_node_id, why)
        return None, 0.0

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


def _weight(reply: Message, key: str) -> float:
    """The samples that a reply speaks for, which masks of sizes weigh by; 1 where it does not say."""
    for record in reply.content.metric_records.values():
        value = record.get(key)
        if isinstance(value, int | float) and value > 0:
            return float(value)
    return 1.0
