"""Steps of lanes, one call after another, or, on CUDA, captured once as a graph and replayed, so that hundreds of small
kernels are launched by one call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from accord.engines.vectorised.lanes import Lanes, Model, Plan, advance
from accord.engines.vectorised.sending import Shipment
from accord.kernels.lane_norms import lane_norms

Result = TypeVar("Result")

_FEW = 16  # steps of a round that are one graph: to launch it costs the host no more than to launch one of a step
_SMALL = 64 << 20  # bytes of updates up to which a graph keeps a copy of them: more would be missing elsewhere


class Eager:
    """Steps one call after another."""

    def __init__(self, model: Model, shared: int) -> None:
        self.model, self.shared = model, shared

    def run(self, lanes: Lanes, sent: Shipment, steps: int) -> Lanes:
        """The first `steps` steps of what was sent."""
        self.lanes, self.plan = lanes, sent.plan()
        if not lanes.begun:
            lanes.begin()
        step = torch.zeros(1, dtype=torch.int64, device=lanes.start.device)
        for _ in range(steps):
            advance(self.model, lanes, self.plan, step)
        return lanes

    def ended(self) -> tuple[Tensor, Tensor]:
        """What the steps came to: see `ended`."""
        return ended(self.lanes, self.plan, self.shared)


class Captured:
    """The same as CUDA graphs, for lanes and plans of the shapes they were captured with: one that begins a round, one
    for each step and one that ends it; where steps are few, one that begins it and takes them all."""

    def __init__(self, model: Model, shared: int, lanes: Lanes, sent: Shipment) -> None:
        self._memory = sent.parcel.memory.clone()
        self.model, self.lanes, self.shared = model, _cloned(lanes), shared
        self.plan = replace(sent, parcel=replace(sent.parcel, memory=self._memory)).plan()
        self.step = torch.zeros(1, dtype=torch.int64, device=lanes.start.device)
        self.lanes.begin()  # takes memory, which must not be the other stream's
        with beside():
            for _ in range(3):
                self._begin()
                self._advance()
            self._ended()
        self._begins, _ = graph_of(self._begin)
        self._steps, _ = graph_of(self._advance)
        self._whole: dict[int, torch.cuda.CUDAGraph] = {}  # by how many steps it takes
        self._end = graph_of(self._ended) if lanes.start.nbytes <= _SMALL else None

    def run(self, lanes: Lanes, sent: Shipment, steps: int) -> Lanes:
        """The first `steps` steps of what was sent. The lanes given back are this object's own: the next call
        overwrites them."""
        self._memory.copy_(sent.parcel.memory, non_blocking=True)
        torch._foreach_copy_(self.lanes.given, lanes.given, non_blocking=True)
        if lanes.begun:
            torch._foreach_copy_(self.lanes.moved, lanes.moved, non_blocking=True)
            self.step.zero_()
        elif steps <= _FEW and lanes.start.nbytes <= _SMALL:
            if steps not in self._whole:
                # nothing of a step is left in its graph's memory, so that others may use it
                self._whole[steps], _ = graph_of(lambda: self._begin_and_advance(steps), self._steps.pool())
            self._whole[steps].replay()
            return self.lanes
        else:
            self._begins.replay()
        for _ in range(steps):
            self._steps.replay()
        return self.lanes

    def ended(self) -> tuple[Tensor, Tensor]:
        """What the steps came to, in memory of its own."""
        if self._end is None:
            return self._ended()
        graph, (delta, figures) = self._end
        graph.replay()
        return delta.clone(), figures.clone()

    def _begin(self) -> None:
        self.lanes.begin()
        self.step.zero_()

    def _advance(self) -> None:
        advance(self.model, self.lanes, self.plan, self.step)

    def _begin_and_advance(self, steps: int) -> None:
        self._begin()
        for _ in range(steps):
            self._advance()

    def _ended(self) -> tuple[Tensor, Tensor]:
        return ended(self.lanes, self.plan, self.shared)


@contextmanager
def beside() -> Iterator[None]:
    """Within it a stream of its own, for what goes before a capture: libraries set themselves up in their first calls,
    which cannot be captured."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(aside):
            yield
    finally:  # memory that goes back after a failure is not used before the stream is done with it
        torch.cuda.current_stream().wait_stream(aside)


def graph_of(work: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """A graph of what `work` does, in a `pool` of memory of its own or another graph's, and what it gives back, which
    every replay overwrites."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = work()
    return graph, result


def _cloned(lanes: Lanes) -> Lanes:
    """Lanes that have not begun, in memory of their own."""
    return Lanes(
        lanes.start.clone(memory_format=torch.contiguous_format),
        {name: value.clone() for name, value in lanes.buffers.items()},
        lanes.optimiser,
        None if lanes.drift is None else lanes.drift.clone(memory_format=torch.contiguous_format),
        lanes.needs,
    )


def ended(lanes: Lanes, plan: Plan, shared: int) -> tuple[Tensor, Tensor]:
    """The lanes' updates, of the first `shared` parameters, `[L, shared]`, and of each `[L, 3]` its mean loss over the
    samples it met and twice the update's norm, which is finite only if the update is."""
    # contiguous, as kernels take them; where all is shared, that is what they are
    delta = (lanes.w - lanes.start)[:, :shared].contiguous()
    norms = lane_norms(delta)
    return delta, torch.stack([lanes.loss / plan.columns["met"].squeeze(1), norms, norms], 1)
