"""Steps of lanes on CUDA: captured once as a graph and replayed, so that hundreds of small kernels are launched by one
call."""

import copy
from dataclasses import fields
from typing import TypeVar

import torch
from torch import Tensor

from accord.engines.vectorised.lanes import Lanes, Model, Plan, advance

_Part = TypeVar("_Part", Lanes, Plan)


class Captured:
    """A step as a CUDA graph, for lanes and plans of the shapes it was captured with. (Several steps in one graph were
    no faster.)"""

    def __init__(self, model: Model, lanes: Lanes, plan: Plan) -> None:
        self.lanes, self.plan = _cloned(lanes), _cloned(plan)
        self.step = torch.zeros(1, dtype=torch.int64, device=lanes.start.device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries set themselves up in their first calls, which cannot be captured
            for _ in range(3):
                self.step.zero_()
                advance(model, self.lanes, self.plan, self.step)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        self.step.zero_()
        with torch.cuda.graph(self.graph):
            advance(model, self.lanes, self.plan, self.step)

    def run(self, lanes: Lanes, plan: Plan, steps: int) -> Lanes:
        """The first `steps` steps of the plan. The lanes given back are this object's own: the next call overwrites
        them."""
        _fill(self.lanes, lanes)
        _fill(self.plan, plan)
        self.step.zero_()
        for _ in range(steps):
            self.graph.replay()
        return self.lanes


def shapes(*parts: Lanes | Plan) -> tuple[object, ...]:
    """What a captured step depends on: which tensors there are, and their shapes."""
    tensors = [
        (name, None if value is None else tuple(value.shape)) for part in parts for name, value in _tensors(part)
    ]
    still = (part.rests if isinstance(part, Plan) else type(part.optimiser) for part in parts)
    return (*tensors, *still)


def _tensors(part: Lanes | Plan) -> list[tuple[str, Tensor | None]]:
    named: list[tuple[str, Tensor | None]] = []
    for entry in fields(part):
        value = getattr(part, entry.name)
        if isinstance(value, dict | Tensor | None):
            named += list(value.items()) if isinstance(value, dict) else [(entry.name, value)]
    return named


def _cloned(part: _Part) -> _Part:
    twin = copy.copy(part)
    for entry in fields(part):
        value = getattr(part, entry.name)
        if isinstance(value, dict):
            setattr(twin, entry.name, {name: tensor.clone() for name, tensor in value.items()})
        elif isinstance(value, Tensor):
            setattr(twin, entry.name, value.clone())
    return twin


def _fill(mine: Lanes | Plan, theirs: Lanes | Plan) -> None:
    """Copies values into tensors that a graph reads."""
    pairs = zip(_tensors(mine), _tensors(theirs), strict=True)
    changed = [(to, given) for (_, to), (_, given) in pairs if to is not None and given is not None and to is not given]
    if changed:
        torch._foreach_copy_([to for to, _ in changed], [given for _, given in changed], non_blocking=True)
