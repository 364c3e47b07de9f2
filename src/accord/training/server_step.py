"""The server's step: what a cohort's record makes of the model, and what the round's row tells of it. All that the host
must know of it, it learns in one look at the device."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from accord.core.layout import Layout
from accord.core.record import Record
from accord.core.round import Round
from accord.engines.contract import Job
from accord.engines.transfer import fetched
from accord.rules.algorithm import Memory
from accord.rules.company import stacked, stacked_memory, unstacked_memory
from accord.training.checkpoint import Progress

Checked = tuple[bool, dict[str, Any]]  # whether another round can build on a step, and what a row tells of it
Stepped = tuple[Progress | None, dict[str, Any]]  # where the step led, None if nowhere, and what a row tells of it


@dataclass(frozen=True)
class Step:
    """The step that a record leads to. A device takes it by itself; `checked` waits until it has."""

    record: Record
    after: Progress  # if another round can build on it
    checked: Callable[[], Checked]

    def taken(self) -> Stepped:
        sound, row = self.checked()
        return (self.after if sound else None), row


def begin_step(job: Job, sample: int | None, number: int, before: Progress, record: Record) -> Step:
    """Where a run will stand after a round."""
    start = before.vector, before.buffers, before.memory
    vector, buffers, memory, checked = _step(job, sample, number, record, *start)
    return Step(record, before.stepped(number, vector, buffers, memory), lambda: checked()[0])


def take_steps(
    job: Job, sample: int | None, number: int, before: Sequence[Progress], records: Sequence[Record]
) -> list[Stepped]:
    """The same round of several runs of one algorithm: everything `[R, ...]`, and still a single look."""
    vectors, buffers = torch.stack([p.vector for p in before]), torch.stack([p.buffers for p in before])
    start = vectors, buffers, stacked_memory([p.memory for p in before])
    vectors, buffers, memory, checked = _step(job, sample, number, stacked(records), *start)
    parts = vectors.unbind(0), buffers.unbind(0), unstacked_memory(memory, len(before)), checked()
    return [
        (p.stepped(number, vector, held, mine) if sound else None, row)
        for p, vector, held, mine, (sound, row) in zip(before, *parts, strict=True)
    ]


def _step(
    job: Job, sample: int | None, number: int, record: Record, vector: Tensor, buffers: Tensor, memory: Memory
) -> tuple[Tensor, Tensor, Memory, Callable[[], list[Checked]]]:
    """Model, buffers and memory after the step, of one run or, `[R, ...]`, of several; and what is told of each."""
    algorithm = job.algorithm
    round = Round(number, job.layout, len(job.fed.train), job.seed, sample)
    record = algorithm.released(record, round)
    lowered, moved, memory = algorithm.lower(record, memory, round)
    seen = algorithm.mask.agreement(record.part("mask"), memory["mask"], round) if algorithm.mask else None
    change, memory = algorithm.step(lowered, memory)
    vector, buffers = vector + change, buffers + moved
    kept = [vector, *(value for state in memory.values() for value in state.values())]
    return vector, buffers, memory, checks_of(lowered.update, change, kept, seen, job.layout)


def checks_of(
    update: Tensor, change: Tensor, kept: Sequence[Tensor], seen: tuple[Tensor, Tensor] | None, layout: Layout
) -> Callable[[], list[Checked]]:
    """Of one run or, `[R, ...]`, of several: whether all that is `kept` is finite, since one infinity in a moment would
    freeze its coordinate for good; norms of the averaged update and of the server's step; and, where a mask has `seen`
    it, the clients' mean agreement, overall and by parameter, and the share of coordinates under tau."""
    runs = update.numel() // layout.size

    def each(values: Sequence[Tensor], kind: float) -> list[Tensor]:
        """A norm of every value of every run, from one kernel."""
        rows = chain.from_iterable(value.reshape(runs, -1).unbind(0) for value in values) if runs > 1 else values
        return list(torch._foreach_norm(list(rows), kind))

    numbers = [value for value in kept if value.numel() and value.is_floating_point()]  # whole ones are finite
    norms = each([update, change], 2) + each(numbers, math.inf)  # NaN, if there is one
    if seen is not None or len({(norm.dtype, norm.device) for norm in norms}) > 1:
        norms = [norm.to(update.device, torch.float64) for norm in norms]
    columns = torch.stack(norms)
    if seen is not None:
        agreement, enough = (value.reshape(runs, -1) for value in seen)
        parts = agreement.split([entry.size for entry in layout.parameters], -1)
        columns = torch.cat([columns, enough.sum(-1).double(), *map(_sums, parts)])
    arrived = fetched(columns)

    def checked() -> list[Checked]:
        return [_checked(row, 2 + len(numbers), layout) for row in arrived().view(-1, runs).T.tolist()]

    return checked


def _checked(numbers: list[float], norms: int, layout: Layout) -> Checked:
    """Of one run: so many norms, then what a mask has seen."""
    (update_norm, step_norm, *largest), agreed = numbers[:norms], numbers[norms:]
    row: dict[str, Any] = {"update_norm": update_norm, "step_norm": step_norm}
    if agreed:
        passed, *sums = agreed
        row["agreement"] = sum(sums) / layout.size
        row["below_tau"] = 1.0 - passed / layout.size
        by_layer = zip(layout.parameters, sums, strict=True)
        row["agreement_by_layer"] = {entry.name: total / entry.size for entry, total in by_layer if entry.size}
    return all(map(math.isfinite, largest)), row


def _sums(part: Tensor) -> Tensor:
    """`[R]` in float64. Sums of float32 shares are exact there, in whatever order a device adds them; others are added
    as those of one run are."""
    if part.dtype != torch.float64:
        return part.sum(-1, dtype=torch.float64)
    return torch.stack([row.sum() for row in part])
