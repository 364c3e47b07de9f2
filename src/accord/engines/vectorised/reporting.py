"""What lanes report, run by run: updates and what clients remember, the record they add up to, and a row for each
client."""

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from accord.core.record import Record, State
from accord.core.reports import Reports, why_leave_out
from accord.engines.contract import ClientRow, Member, Part, added
from accord.engines.vectorised.client_lane import Lane, Trained
from accord.kernels.lane_norms import lane_norms
from accord.rules.company import unstacked

Total = tuple[Record | None, list[State]]  # a record, and what clients keep for a second exchange


@dataclass(frozen=True)
class Reported:
    """What one run's clients report, and what it comes to if none of them is left out. `read`: a run's reports are cut
    out of those of several when somebody asks for them."""

    total: Total
    read: Callable[[], Reports]
    remembers: bool
    unchecked: frozenset[str] = frozenset()

    @cached_property
    def reports(self) -> Reports:
        return self.read()

    @property
    def kept(self) -> State:
        """What clients would remember and must be finite."""
        return {name: value for name, value in self.reports.after.items() if name not in self.unchecked}


def report(lanes: list[Lane], of_run: Sequence[Sequence[Member]], trained: Trained) -> Reported:
    job, work = lanes[0].job, lanes[0].work
    before = {name: torch.stack([lane.client_state[name] for lane in lanes]) for name in lanes[0].client_state}
    # others may need more
    extra = {name: value for name, value in trained.extra.items() if name in job.algorithm.needs}
    reports = Reports(trained.delta, trained.weight, trained.steps, trained.moved, extra, before)
    if job.algorithm.local.remembers:
        reports = replace(reports, after=job.algorithm.local.keep(work.memory["local"], before, reports, work.lr))
    if trained.personal:
        reports = replace(reports, after={**reports.after, **trained.personal})
    if job.attack is not None:
        reports = job.attack.reported(reports, [lane.member.client for lane in lanes], work.round)
    # Made before anyone knows whether a client is left out: a CUDA device adds up by itself, while the host looks
    # ahead.
    return Reported(_added_up(lanes, of_run, reports), lambda: reports, bool(reports.after), job.unchecked)


def report_together(runs: Sequence[list[Lane]], trained: Trained) -> list[Reported]:
    """The same for runs of one algorithm whose clients remember nothing: everything `[R, K, ...]`, added up at once."""
    job, work, shape = runs[0][0].job, runs[0][0].work, (len(runs), len(runs[0]))
    extra = {name: value for name, value in trained.extra.items() if name in job.algorithm.needs}
    columns = [trained.delta, trained.weight, trained.steps, trained.moved]
    apart = {name: value.unflatten(0, shape) for name, value in extra.items()}
    delta, weight, steps, moved = (column.unflatten(0, shape) for column in columns)
    reports = Reports(delta, weight, steps, moved, apart)
    records = unstacked(job.algorithm.lift(reports, work.memory), len(runs))
    return [Reported((record, []), partial(_of_run, reports, run), False) for run, record in enumerate(records)]


def _of_run(reports: Reports, run: int) -> Reports:
    extra = {name: value[run] for name, value in reports.extra.items()}
    return Reports(reports.delta[run], reports.weight[run], reports.steps[run], reports.buffers[run], extra)


def measure(of_runs: Sequence[Reported], together: Trained) -> Tensor:
    """`[L, 3]`: each client's loss, the norm of its update, and a number that is finite only if all else it reports
    is. Of several runs, whose clients report an update and nothing that they made of it, all at once."""
    delta, others = together.delta, [together.moved, *together.extra.values()]
    if len(of_runs) == 1:
        reports = of_runs[0].reports
        delta, others = reports.delta, [reports.buffers, *of_runs[0].kept.values(), *reports.extra.values()]
    others = [value for value in others if value.shape[-1]]
    if delta is together.delta and not others:
        return together.figures
    loss, norms, _ = together.figures.unbind(1)
    rest = torch.zeros_like(loss)
    for value in others:
        rest = rest + value.abs().sum(-1).to(loss)
    return torch.stack([loss, norms if delta is together.delta else lane_norms(delta), rest], 1)


def part_of(
    lanes: list[Lane], of_run: Sequence[Sequence[Member]], reported: Reported, measured: list[list[float]]
) -> Part:
    """One run's record, with a row for each of its clients; what accepted clients will remember is staged."""
    job, work = lanes[0].job, lanes[0].work
    rows: list[ClientRow] = []
    accepted: set[str] = set()
    for k, (lane, (loss, norm, rest)) in enumerate(zip(lanes, measured, strict=True)):
        row = ClientRow(lane.member.client, lane.member.samples, len(lane.sizes), loss, norm)
        if not (math.isfinite(norm) and math.isfinite(rest)):
            reports = reported.reports
            parts = reports.delta[k], row.samples, job.layout, reports.buffers[k]
            also = ([value[k] for value in state.values()] for state in (reported.kept, reports.extra))
            row = replace(row, left_out_because=why_leave_out(*parts, *also))
        rows.append(row)
        if row.left_out_because is None:
            accepted.add(row.client)
            if reported.remembers:
                work.stage(row.client, {name: value[k] for name, value in reported.reports.after.items()})
    if len(accepted) == len(lanes):
        return Part(reported.total[0], rows, reported.total[1])
    record, held = _added_up(lanes, of_run, reported.reports, accepted)
    return Part(record, rows, held)


def _added_up(
    lanes: list[Lane], of_run: Sequence[Sequence[Member]], reports: Reports, accepted: Container[str] | None = None
) -> Total:
    """The sum over shards of what clients report, those that are accepted or all."""
    job, work = lanes[0].job, lanes[0].work
    clients = [lane.member.client for lane in lanes]
    number = {client: k for k, client in enumerate(clients) if accepted is None or client in accepted}
    record: Record | None = None
    held: list[State] = []
    for shard in of_run:
        chosen = [number[member.client] for member in shard if member.client in number]
        if chosen:
            some = reports.of(chosen)
            record = added(record, job.algorithm.lift(some, work.memory))
            if job.algorithm.asks_twice:
                held.append(some.extra)
    return record, held
