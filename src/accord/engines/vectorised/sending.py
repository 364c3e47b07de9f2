"""What the host sends for the steps of many lanes: batches, draws' keys and numbers, in one parcel."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from accord.core import draws
from accord.core.record import State
from accord.engines.transfer import NUMPY, Parcel, in_precision
from accord.engines.vectorised.client_lane import Lane
from accord.engines.vectorised.lanes import COUNTS, Plan
from accord.engines.vectorised.planning import Padded

RATES = {"weight_decay": 0.0, "clip": math.inf, "mu": 0.0}  # and what says that a lane has none
_KEYS = ("dropout", "augment")
_COLUMNS = "columns"
_TOGETHER = 4  # numbers of 4 bytes are 16 bytes


@dataclass(frozen=True)
class Shipment:
    """A plan on the device, still in its parcel. `columns` names the numbers that all of a lane's steps have in
    common."""

    parcel: Parcel
    columns: tuple[str, ...]
    lanes: int
    rests: bool

    @property
    def kind(self) -> tuple[object, ...]:
        """What a captured step depends on."""
        return self.parcel.form, self.columns, self.lanes, self.rests

    def numbers(self) -> State:
        """The columns, `[L, 1]` each."""
        columns = self.parcel.tensor(_COLUMNS)[:, : self.lanes].unsqueeze(-1)
        return dict(zip(self.columns, columns.unbind(0), strict=True))

    def plan(self) -> Plan:
        tensors = {name: self.parcel.tensor(name) for name, _, _ in self.parcel.form if name != _COLUMNS}
        batches = {name: tensors.pop(name) for name in ("rows", "share", "count")}
        others = {name: tensors.pop(name) for name in (*_KEYS, "top") if name in tensors}
        return Plan(**batches, columns=self.numbers(), numbers=tensors, **others, rests=self.rests)


def arrays_of(part: Padded, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """The batches as they are sent, with numbers in the model's precision."""
    return {
        "rows": part.rows,
        "share": part.share(NUMPY[dtype]),
        "count": in_precision(part.count, dtype),
    }


def shipped(
    part: Padded,
    arrays: Mapping[str, np.ndarray],
    chosen: Sequence[Lane],
    keyed: Sequence[str],
    dtype: torch.dtype,
    device: torch.device,
) -> Shipment:
    """The part, whose batches are `arrays` already, for these lanes; `keyed`: what their steps draw keys for."""
    names, table = _columns(chosen)
    keys = {purpose: draw_keys(purpose, part, chosen) for purpose in keyed}
    top = tops(chosen)
    others = {} if top is None else {"top": top}
    by_step = {name: in_precision(values, dtype) for name, values in _by_step(part, chosen).items()}
    parcel = Parcel.sent({_COLUMNS: in_precision(table, dtype), **arrays, **keys, **others, **by_step}, device)
    return Shipment(parcel, names, len(chosen), part.rests)


def _columns(chosen: Sequence[Lane]) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and `[C, L']` of `COUNTS`, of those of `RATES` that any lane has, and of the optimiser's numbers. A column
    is filled up so that the next one begins where kernels like memory to begin: they are compiled anew for others."""
    first, rates = chosen[0], dict[int, tuple[float, ...]]()
    for lane in chosen:
        if id(lane.work) not in rates:
            rates[id(lane.work)] = lane.rates
    names = *RATES, *first.job.training.rule.constants(first.work.lr)
    there = [
        at for at, name in enumerate(names) if name not in RATES or any(of[at] != RATES[name] for of in rates.values())
    ]
    wanted = {run: [of[at] for at in there] for run, of in rates.items()}
    table = np.zeros((len(COUNTS) + len(there), -(-len(chosen) // _TOGETHER) * _TOGETHER))
    table[:, : len(chosen)] = np.array([(*lane.counts, *wanted[id(lane.work)]) for lane in chosen]).T
    return (*COUNTS, *(names[at] for at in there)), table


def _by_step(part: Padded, chosen: Sequence[Lane]) -> dict[str, np.ndarray]:
    """The optimiser's numbers that differ by step, `[S, L, 1]` each. A lane that takes part in step n has taken all
    before it, so that the step's number is the lane's own."""
    known: dict[int, dict[str, np.ndarray]] = {}
    for lane in chosen:
        if id(lane.work) not in known:
            known[id(lane.work)] = lane.job.training.rule.corrections(lane.work.lr, part.number + 1.0)
    first = known[id(chosen[0].work)]
    return {name: np.stack([known[id(lane.work)][name] for lane in chosen], 1)[..., None] for name in first}


def tops(chosen: Sequence[Lane]) -> np.ndarray | None:
    """`[L, 1]`, how lanes read their labels; None if all read them as they are."""
    if all(lane.job.attack is None for lane in chosen):
        return None
    from_class = [-1 if lane.job.attack is None else lane.job.attack.flip_from(lane.member.client) for lane in chosen]
    return None if max(from_class) < 0 else np.array(from_class, dtype=np.int64)[:, None]


def draw_keys(purpose: str, part: Padded, chosen: Sequence[Lane]) -> np.ndarray:
    """`[S, L]`, a key for the draws of every lane's every step."""
    keys = [
        [
            (draws.device_key(lane.job.seed, purpose, lane.work.round, lane.member.client, int(number)) if count else 0)
            for lane, count in zip(chosen, counts, strict=True)
        ]
        for number, counts in zip(part.number, part.count, strict=True)
    ]
    return np.array(keys, dtype=np.int64)
