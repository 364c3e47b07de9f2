"""Parts are tried once before the first round, so that a mistake in one is a sentence that names the part and the
method, and no engine makes something else of it than another."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Field, Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.algorithm import Algorithm


@torch.no_grad()
def rehearse(algorithm: Algorithm, layout: Layout, clients: int) -> None:
    """Calls the methods of all parts as a round does, with drawn reports of a few clients, and refuses what no round
    can go on with: an error, something that is no record, no state, no tensor `[P]` of the model's type, and records
    that do not add up."""
    local, average, server = algorithm.local, algorithm.average, _Tried("server rule", algorithm.server)
    parts = (local, average, algorithm.mask, algorithm.server)
    if all(map(_own, parts)) or not local.reports_updates or local.engine is not None:
        return  # accord's own have tests, and a study starts hundreds of runs
    round, vector = Round(1, layout, clients), torch.zeros(layout.size, dtype=layout.dtype)
    tried = {"local": _Tried("local rule", local), "average": _Tried("average", average)}
    tried |= {"mask": _Tried("mask", algorithm.mask)} if algorithm.mask else {}
    memory = {name: part.state("init", layout, clients) for name, part in tried.items()}
    reports = drawn_reports(algorithm, layout, max(3, average.least), torch.Generator().manual_seed(1))
    one, others = reports.of([0]), reports.of(range(1, len(reports.delta)))

    tried["local"].check_drift(vector, memory["local"], {name: value[0] for name, value in reports.before.items()})
    if local.remembers and local.beside is None:  # a second model is kept by who trains it
        kept = tried["local"].state("keep", memory["local"], reports.before, reports, 0.1)
        tried["local"].check_alike("keep", kept, reports.before)

    def lifted(name: str, reports: Reports) -> Record:
        if name != "local":
            reports = replace(reports, weight=tried["average"].tensor("weights", reports.weight, reports))
        return tried[name].record("lift", reports, memory[name])

    records = {name: lifted(name, reports) for name in tried}
    for name, record in records.items():
        tried[name].check_sum(record, lifted(name, one), lifted(name, others))
    if algorithm.asks_twice:
        first = Record(**records)
        second = tried["average"].record("second", reports.extra, algorithm.broadcast(first))
        records["average"] = algorithm.joined(first, second).part("average")
    after = {"local": tried["local"].state("lower", records.pop("local"), memory["local"], round)}
    for name, record in records.items():
        after[name] = tried[name].pair("lower", vector, record, memory[name], round)
    for name, state in after.items():
        tried[name].check_alike("lower", state, memory[name])
    state = server.state("init", vector)
    server.check_alike("direction", server.pair("direction", vector, state, reports.delta[0], state_first=True), state)
    if "mask" in tried:
        ones, delta = torch.ones_like(vector), reports.delta[0]
        tried["mask"].tensor("apply", vector, ones, delta)
        tried["mask"].pair("direction", vector, ones, algorithm.server, state, delta, state_first=True)


def drawn_reports(
    algorithm: Algorithm, layout: Layout, clients: int, generator: torch.Generator, device: torch.device | str = "cpu"
) -> Reports:
    """What so many clients might report, of the shapes that a round has."""
    sample = algorithm.sample_reports(layout)

    def drawn(like: Tensor) -> Tensor:
        return torch.randn(clients, *like.shape[1:], generator=generator, dtype=like.dtype).to(device)

    def each(state: State) -> State:
        return {name: drawn(value) for name, value in state.items()}

    weight = drawn(sample.weight).abs().mul(100).ceil()
    states = each(sample.extra), each(sample.before), each(sample.after)
    return Reports(drawn(sample.delta), weight, weight, drawn(sample.buffers), *states)


def _own(part: Any) -> bool:
    """Whether accord brought a part, and the parts within it."""
    home = type(part).__module__.partition(".")[0]
    if home != "accord" or not is_dataclass(part):
        return home in ("accord", "builtins", "fractions")
    return all(_own(getattr(part, field.name)) for field in fields(part))


class _Tried:
    """A part whose methods are called, and what they give looked at."""

    def __init__(self, what: str, part: Any) -> None:
        self._part, self._name = part, f"{what} {type(part).__name__}"

    def _call(self, method: str, *arguments: Any) -> Any:
        call: Callable[..., Any] = getattr(self._part, method)
        try:
            return call(*arguments)
        except AccordError:
            raise
        except Exception as error:
            raise AccordError(f"{self._name}: {method} failed with {type(error).__name__}: {error}") from error

    def _refuse(self, method: str, right: str, got: Any) -> None:
        raise AccordError(f"{self._name}: {method} must return {right}, got {_shown(got)}")

    def state(self, method: str, *arguments: Any) -> State:
        state = self._call(method, *arguments)
        self._check_state(method, "a dictionary of tensors", state)
        return dict(state)

    def _check_state(self, method: str, right: str, state: Any) -> None:
        if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
            self._refuse(method, right, state)

    def record(self, method: str, *arguments: Any) -> Record:
        record = self._call(method, *arguments)
        right = "a Record of sums, such as Record(delta=total(reports.delta))"
        if not isinstance(record, Record):
            self._refuse(method, right, record)
        for name, entry in record:
            if not isinstance(entry, Field | Record):
                self._refuse(method, right, f"{name}={_shown(entry)}")
        return record

    def tensor(self, method: str, like: Tensor, *arguments: Any) -> Any:
        got = self._call(method, *arguments)
        self._check_tensor(method, f"a tensor {_form(like)}", like, got)
        return got

    def check_drift(self, like: Tensor, *arguments: Any) -> None:
        """It may be of any type: a step takes it into the gradient's."""
        got = self._call("drift", *arguments)
        if got is not None and (not isinstance(got, Tensor) or got.shape != like.shape):
            self._refuse("drift", f"a tensor {list(like.shape)} or None", got)

    def _check_tensor(self, method: str, right: str, like: Tensor, got: Any) -> None:
        if not isinstance(got, Tensor) or got.shape != like.shape or got.dtype != like.dtype:
            self._refuse(method, right, got)

    def pair(self, method: str, like: Tensor, *arguments: Any, state_first: bool = False) -> State:
        """The state of a method that gives a tensor and a state, in the order that it has."""
        order = "(state, tensor)" if state_first else "(tensor, state)"
        right = f"{order} with a tensor {_form(like)} and a dictionary of tensors"
        got = self._call(method, *arguments)
        if not isinstance(got, tuple) or len(got) != 2:
            self._refuse(method, right, got)
        state, tensor = got if state_first else got[::-1]
        self._check_tensor(method, right, like, tensor)
        self._check_state(method, right, state)
        return dict(state)

    def check_sum(self, whole: Record, one: Record, others: Record) -> None:
        """Refuses records that are not the sums of their clients': engines add them up in parts of any size."""
        added = (one + others).fields()
        for name, field in whole.fields().items():
            there = added[name].value
            if field.value.shape != there.shape or not torch.allclose(field.value, there, 1e-3, 1e-4, equal_nan=True):
                raise AccordError(
                    f"{self._name}: {name} of lift is no sum over clients: together they give something else than one"
                    " by one and added"
                )

    def check_alike(self, method: str, after: State, before: State) -> None:
        """Refuses a state that has other names or shapes than the one before."""
        forms = [{name: _form(value) for name, value in state.items()} for state in (before, after)]
        if forms[0] != forms[1]:
            raise AccordError(f"{self._name}: {method} must keep the state {forms[0]}, and gave {forms[1]}")


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _shown(got: Any) -> str:
    if isinstance(got, Tensor):
        return f"a tensor {_form(got)}"
    if isinstance(got, tuple):
        return f"({', '.join(map(_shown, got))})"
    return repr(got) if got is None or isinstance(got, int | float | str) else f"a {type(got).__name__}"
