"""Algorithms of several runs at once: records and memories of runs in lockstep as one, `[R, ...]`, and apart again."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from accord.core.layout import Layout
from accord.core.record import Field, Record, State
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.algorithm import Algorithm, Memory
from accord.rules.rehearsal import drawn_reports


class OfRun(Record):
    """One run's part of the record of several. It is cut out when somebody asks for it, which as a rule nobody does:
    the runs take their steps together."""

    def __init__(self, whole: Record, run: int, runs: int) -> None:
        self.whole, self.run, self.runs = whole, run, runs

    @cached_property
    def _fields(self) -> dict[str, Field | Record]:  # type: ignore[override]
        return {
            name: OfRun(entry, self.run, self.runs)
            if isinstance(entry, Record)
            else replace(entry, value=entry.value[self.run])
            for name, entry in self.whole
        }


def whole_of(record: Record | None) -> Record | None:
    """The record of several runs that this one is part of, if it is."""
    return record.whole if isinstance(record, OfRun) else None


def stacked(records: Sequence[Record]) -> Record:
    """Records of several runs as one."""
    first = records[0]
    parts = [record for record in records if isinstance(record, OfRun) and record.whole is whole_of(first)]
    if len(parts) == len(records) and [part.run for part in parts] == list(range(parts[0].runs)):
        return parts[0].whole  # all of them, in order
    named: dict[str, Field | Record] = {}
    for name, entry in first:
        if isinstance(entry, Record):
            named[name] = stacked([record.part(name) for record in records])
        else:
            named[name] = replace(entry, value=torch.stack([record[name] for record in records]))
    return Record(**named)


def unstacked(record: Record, runs: int) -> list[Record]:
    """Each run's record again."""
    return [OfRun(record, run, runs) for run in range(runs)]


def stacked_memory(memories: Sequence[Memory]) -> Memory:
    """What the parts of several runs' algorithms remember, as one."""

    def state(part: str) -> State:
        return {name: torch.stack([memory[part][name] for memory in memories]) for name in memories[0][part]}

    return {part: state(part) for part in memories[0]}


def unstacked_memory(memory: Memory, runs: int) -> list[Memory]:
    """Each run's memory again."""
    values = {part: {name: value.unbind(0) for name, value in state.items()} for part, state in memory.items()}
    return [
        {part: {name: each[run] for name, each in state.items()} for part, state in values.items()}
        for run in range(runs)
    ]


@torch.no_grad()
def takes_runs(algorithm: Algorithm, layout: Layout, device: torch.device) -> bool:
    """Whether the algorithm's parts give several runs at once what each gets alone, bit for bit: tried on three cohorts
    of drawn reports. A part of somebody's own need not take leading dimensions."""
    if algorithm.asks_twice or algorithm.privacy or algorithm.pools or not algorithm.local.reports_updates:
        return False
    round, generator = Round(1, layout, 10), torch.Generator().manual_seed(1)
    vector = torch.zeros(layout.size, dtype=layout.dtype, device=device)
    memory = algorithm.init(layout, 10, vector)

    def stepped(reports: Reports, memory: Memory) -> list[Tensor]:
        record = algorithm.lift(reports, memory)
        lowered, moved, memory = algorithm.lower(record, memory, round)
        change, memory = algorithm.step(lowered, memory)
        seen = algorithm.mask.agreement(record.part("mask"), memory["mask"], round) if algorithm.mask else None
        states = [value for state in memory.values() for value in state.values()]
        return [lowered.update, moved, change, *(seen or ()), *states]

    cohorts = [drawn_reports(algorithm, layout, 5, generator, device) for _ in range(3)]
    try:
        together = stepped(_joined(cohorts), stacked_memory([memory] * 3))
        apart = [stepped(one, memory) for one in cohorts]
    except (RuntimeError, IndexError, KeyError, ValueError, TypeError):
        return False
    pairs = [pair for run, one in enumerate(apart) for pair in zip(one, (v[run] for v in together), strict=True)]
    return all(torch.equal(one, value) for one, value in pairs)


def _joined(cohorts: Sequence[Reports]) -> Reports:
    """Reports of several runs as one, `[R, K, ...]`."""

    def state(name: str) -> State:
        states = [getattr(reports, name) for reports in cohorts]
        return {key: torch.stack([one[key] for one in states]) for key in states[0]}

    def column(name: str) -> Tensor:
        return torch.stack([getattr(reports, name) for reports in cohorts])

    columns = column("delta"), column("weight"), column("steps"), column("buffers")
    return Reports(*columns, state("extra"), state("before"), state("after"))
