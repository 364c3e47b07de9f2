"""All clients of a round as lanes of one batched computation, on CUDA or on the CPU, for any model that `torch.func`
can batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, zip_longest

import torch
from torch import Tensor

from accord.core.record import Record, State
from accord.core.reports import Reports, why_leave_out
from accord.engines.contract import (
    SHARDS,
    Batch,
    ClientRow,
    Group,
    Job,
    Member,
    Outcome,
    Part,
    Table,
    Values,
    Work,
    order,
    shards,
    too_few,
    whole,
)
from accord.engines.sequential import Sequential
from accord.engines.vectorised.batchable import CannotBatch
from accord.engines.vectorised.descent import Descent, Lane, Trained
from accord.engines.vectorised.planning import Order

_UPDATES = 16 << 30  # bytes that the updates of clients trained at once may take


@dataclass(frozen=True)
class Request:
    """A cohort to train for one run. Runs that go in lockstep differ in anything but the shapes of model and
    batches."""

    job: Job
    work: Work
    cohort: Sequence[Member]


class Vectorised:
    """Trains clients as lanes. `lanes` bounds how many go at once; it is halved whenever the device runs out of
    memory."""

    name = "vectorised"

    def __init__(self, job: Job, lanes: int | None = None) -> None:
        self.job = job
        self._reference = Sequential(job)  # evaluates, and says what does not fit
        self.probed = self._reference.probed
        self.descent = Descent(job, self._reference.fed, self.probed.drops_out, lanes)
        # (run, round, client) -> batches drawn before they are asked for. The job is kept beside them: while it lives,
        # no other has its id.
        self._ahead: dict[tuple[int, int, str], tuple[Job, Order]] = {}

    def close(self) -> None:
        """Lets go of the device's memory."""
        self.descent.forget()

    @property
    def lanes_at_once(self) -> int | None:
        """How many lanes go together since the device ran out of memory; None if it never did."""
        return self.descent.halved_to

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        return self._reference.evaluate(vector, buffers, groups)

    def evaluate_batch(self, vector: Tensor, buffers: Tensor, batch: Batch) -> Values:
        return self._reference.evaluate_batch(vector, buffers, batch)

    # ----------------------------------------------------------------------------------------------- training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports."""
        return self.train_many([Request(self.job, work, cohort)])[0]

    def train_shard(self, work: Work, shard: Sequence[Member]) -> Part:
        """Trains one part of a cohort: for whoever adds the parts up."""
        request = Request(self.job, work, shard)
        return sum((self._train_parts([request], [some])[0] for some in self._parts(shard)), start=Part())

    def train_many(self, requests: Sequence[Request]) -> list[Outcome]:
        """Several runs' cohorts in lockstep. What a run gets does not depend on the others."""
        done = [Part() for _ in requests]
        for parts in zip_longest(*(self._parts(request.cohort) for request in requests), fillvalue=()):
            done = [first + second for first, second in zip(done, self._train_parts(requests, parts), strict=True)]
        return [whole(request.job.algorithm, [part]) for request, part in zip(requests, done, strict=True)]

    def _parts(self, cohort: Sequence[Member]) -> list[list[Sequence[Member]]]:
        """The cohort's shards, as many at a time as their updates are allowed memory. A small cohort is a single
        sum."""
        if len(cohort) <= SHARDS:
            return [[cohort]]
        at_once = _UPDATES // (self.job.layout.size * self.job.layout.dtype.itemsize)
        parts: list[list[Sequence[Member]]] = []
        for shard in shards(cohort):
            if parts and sum(map(len, parts[-1])) + len(shard) <= at_once:
                parts[-1].append(shard)
            else:
                parts.append([shard])
        return parts

    def _train_parts(self, requests: Sequence[Request], parts: Sequence[Sequence[Sequence[Member]]]) -> list[Part]:
        """Some shards of every request."""
        if not self.descent.model.module.training:  # to tell every layer each round takes a while
            self.descent.model.module.train()
        least = self.probed.least_batch
        lanes: list[list[Lane]] = []
        for request, of_run in zip(requests, parts, strict=True):
            job, work = request.job, request.work
            able = [member for shard in of_run for member in shard if len(member.rows) >= least]
            lanes.append(
                [Lane(job, work, member, member.own(), *self._order(job, work.round, member)) for member in able]
            )
        together = [lane for of_run in lanes for lane in of_run]
        trained = self.descent(together) if together else None
        ends = list(accumulate(map(len, lanes)))
        reports = [
            (
                _reported(chosen, of_run, trained.of(slice(end - len(chosen), end)))
                if chosen and trained is not None
                else None
            )
            for chosen, of_run, end in zip(lanes, parts, ends, strict=True)
        ]
        measured = [_measured(of_run) for of_run in reports if of_run is not None]
        self._look_ahead(requests)
        numbers = iter(torch.cat(measured).tolist() if measured else [])  # one look at the device for all runs
        done: list[Part] = []
        for chosen, of_run, reported in zip(lanes, parts, reports, strict=True):
            part = Part() if reported is None else _part(chosen, of_run, reported, list(islice(numbers, len(chosen))))
            told = {row.client: row for row in part.rows}
            rows = [told.get(member.client) or too_few(member, least) for shard in of_run for member in shard]
            done.append(replace(part, rows=rows))
        return done

    def _order(self, job: Job, round: int, member: Member) -> Order:
        made = self._ahead.pop((id(job), round, member.client), None)
        return made[1] if made else order(job, round, member, self.probed.least_batch)

    def _look_ahead(self, requests: Sequence[Request]) -> None:
        """While a device works, which CUDA's does by itself, the host draws the next round's batches and lays them
        out."""
        now = {id(request.job): request.work.round for request in requests}
        # a run may have ended early
        self._ahead = {at: made for at, made in self._ahead.items() if at[1] > now.get(at[0], at[1])}
        if self._ahead:
            return  # this round was cut in parts, and an earlier one looked ahead
        for request in requests:
            for member in request.work.ahead():
                at = id(request.job), request.work.round + 1, member.client
                self._ahead[at] = request.job, order(request.job, at[1], member, self.probed.least_batch)
        self.descent.lay_out([made for _, made in self._ahead.values()])


@dataclass(frozen=True)
class _Reported:
    """What one run's clients report, their mean losses `[K]`, and the record it comes to if none of them is left
    out."""

    reports: Reports
    loss: Tensor
    record: Record | None
    unchecked: frozenset[str]

    @property
    def kept(self) -> State:
        """What clients would remember and must be finite."""
        return {name: value for name, value in self.reports.after.items() if name not in self.unchecked}


def _reported(lanes: list[Lane], of_run: Sequence[Sequence[Member]], trained: Trained) -> _Reported:
    job, work = lanes[0].job, lanes[0].work
    before = {name: torch.stack([lane.own[name] for lane in lanes]) for name in lanes[0].own}
    # others may need more
    extra = {name: value for name, value in trained.extra.items() if name in job.algorithm.needs}
    reports = Reports(trained.delta, trained.weight, trained.steps, trained.moved, extra, before)
    if job.algorithm.local.remembers:
        reports = replace(reports, after=job.algorithm.local.keep(work.memory["local"], before, reports, work.lr))
    if job.attack is not None:
        reports = job.attack.reported(reports, [lane.member.client for lane in lanes], work.round)
    # Made before anyone knows whether a client is left out: a CUDA device adds up by itself, while the host looks
    # ahead.
    record = job.algorithm.lift(reports, work.memory) if len(of_run) == 1 else None
    return _Reported(reports, trained.loss, record, job.algorithm.local.unchecked)


def _measured(of_run: _Reported) -> Tensor:
    """`[K, 3]`: each client's loss, the norm of its update, and a number that is finite only if all else it reports
    is."""
    reports, loss = of_run.reports, of_run.loss
    others = [value for value in (reports.buffers, *of_run.kept.values(), *reports.extra.values()) if value.shape[-1]]
    rest = sum((value.abs().sum(-1).to(loss) for value in others), torch.zeros_like(loss))
    return torch.stack([loss, reports.delta.norm(dim=1), rest], 1)


def _part(
    lanes: list[Lane], of_run: Sequence[Sequence[Member]], reported: _Reported, measured: list[list[float]]
) -> Part:
    """One run's record, with a row for each of its clients; what accepted clients will remember is staged."""
    job, work, reports = lanes[0].job, lanes[0].work, reported.reports
    rows: list[ClientRow] = []
    accepted: dict[str, int] = {}
    for k, (lane, (loss, norm, rest)) in enumerate(zip(lanes, measured, strict=True)):
        row = ClientRow(lane.member.client, len(lane.member.rows), len(lane.sizes), loss, norm)
        if not (math.isfinite(norm) and math.isfinite(rest)):
            parts = reports.delta[k], row.samples, job.layout, reports.buffers[k]
            also = ([value[k] for value in state.values()] for state in (reported.kept, reports.extra))
            row = replace(row, left_out_because=why_leave_out(*parts, *also))
        rows.append(row)
        if row.left_out_because is None:
            accepted[row.client] = k
            if reports.after:
                work.stage(row.client, {name: value[k] for name, value in reports.after.items()})
    record: Record | None = None
    held: list[State] = []
    for shard in of_run:
        chosen = [accepted[member.client] for member in shard if member.client in accepted]
        if chosen:
            everyone = len(chosen) == len(lanes)
            some = reports if everyone else reports.of(torch.tensor(chosen, device=job.device))
            lifted = (reported.record if everyone else None) or job.algorithm.lift(some, work.memory)
            record = lifted if record is None else record + lifted
            if job.algorithm.asks_twice:
                held.append(some.extra)
    return Part(record, rows, held)


def batched_if_possible(job: Job) -> tuple[Vectorised | Sequential, str | None]:
    """The engine that trains all clients as one batch or, if the model cannot be batched, one by one; and why it
    cannot."""
    try:
        return Vectorised(job), None
    except CannotBatch as error:
        return Sequential(job), str(error)
