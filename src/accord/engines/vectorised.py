"""All clients of a round as lanes of one batched computation, on CUDA or on the CPU, for any model that `torch.func` can batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch
from torch import Tensor

from accord.engines.contract import SHARDS, ClientRow, Group, Job, Member, Outcome, Table, Work, order, shards
from accord.engines.descent import Descent, Lane, Trained
from accord.engines.planning import Order
from accord.engines.sequential import Sequential
from accord.record import Record
from accord.reports import Reports, why_leave_out

_UPDATES = 16 << 30  # bytes that the updates of clients trained at once may take


@dataclass(frozen=True)
class Request:
    """A cohort to train for one run. Runs that go in lockstep differ in anything but the shapes of model and batches."""

    job: Job
    work: Work
    cohort: Sequence[Member]


class Vectorised:
    """Trains clients as lanes. `lanes` bounds how many go at once; it is halved whenever the device runs out of memory."""

    name = "vectorised"

    def __init__(self, job: Job, lanes: int | None = None) -> None:
        self.job = job
        self._reference = Sequential(job)  # evaluates, and says what does not fit
        self.probed = self._reference.probed
        self.descent = Descent(job, self._reference.fed, self.probed.drops_out, lanes)
        self._ahead: dict[tuple[int, int, str], Order] = {}  # (run, round, client) -> batches drawn before they are asked for

    def close(self) -> None:
        """Lets go of the device's memory."""
        self.descent.forget()

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        return self._reference.evaluate(vector, buffers, groups)

    # ------------------------------------------------------------------------------------------------------------ training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports."""
        return self.train_many([Request(self.job, work, cohort)])[0]

    def train_many(self, requests: Sequence[Request]) -> list[Outcome]:
        """Several runs' cohorts in lockstep. What a run gets does not depend on the others."""
        self.descent.model.module.train()
        outcomes = [Outcome(None, []) for _ in requests]
        for parts in zip_longest(*(self._parts(request.cohort) for request in requests), fillvalue=()):
            outcomes = [_added(*pair) for pair in zip(outcomes, self._train_parts(requests, parts), strict=True)]
        return outcomes

    def _parts(self, cohort: Sequence[Member]) -> list[list[Sequence[Member]]]:
        """The cohort's shards, as many at a time as their updates are allowed memory. A small cohort is a single sum."""
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

    def _train_parts(self, requests: Sequence[Request], parts: Sequence[Sequence[Sequence[Member]]]) -> list[Outcome]:
        """Some shards of every request."""
        least = self.probed.least_batch
        lanes: list[list[Lane]] = []
        for request, of_run in zip(requests, parts, strict=True):
            job, work = request.job, request.work
            able = [member for shard in of_run for member in shard if len(member.rows) >= least]
            lanes.append([Lane(job, work, member, member.own(), *self._order(job, work.round, member)) for member in able])
        together = [lane for of_run in lanes for lane in of_run]
        trained = self.descent(together) if together else None
        self._look_ahead(requests)
        outcomes, start = [], 0
        for chosen, of_run in zip(lanes, parts, strict=True):
            outcome = Outcome(None, [])
            if chosen and trained is not None:
                outcome = self._report(chosen, of_run, trained.of(slice(start, start + len(chosen))))
            start += len(chosen)
            told = {row.client: row for row in outcome.rows}
            rows = [told.get(member.client) or too_few(member, least) for shard in of_run for member in shard]
            outcomes.append(Outcome(outcome.record, rows))
        return outcomes

    def _order(self, job: Job, round: int, member: Member) -> Order:
        made = self._ahead.pop((id(job), round, member.client), None)
        return made or order(job, round, member, self.probed.least_batch)

    def _look_ahead(self, requests: Sequence[Request]) -> None:
        """While the device works, which it does by itself, the host draws the next round's batches."""
        if self.job.device.type != "cuda" or self._ahead:
            return
        for request in requests:
            for member in request.work.ahead():
                at = id(request.job), request.work.round + 1, member.client
                self._ahead[at] = order(request.job, at[1], member, self.probed.least_batch)

    def _report(self, lanes: list[Lane], of_run: Sequence[Sequence[Member]], trained: Trained) -> Outcome:
        """One run's record, with a row for each of its clients; what accepted clients will remember is staged."""
        job, work = lanes[0].job, lanes[0].work
        before = {name: torch.stack([lane.own[name] for lane in lanes]) for name in lanes[0].own}
        reports = Reports(trained.delta, trained.weight, trained.steps, trained.moved, trained.extra, before)
        reports = replace(reports, after=job.algorithm.local.keep(work.memory["local"], before, reports, job.training.lr_at(work.round)))
        kept = {name: value for name, value in reports.after.items() if name != "b"}  # buffers may hold infinities on purpose
        norm = trained.delta.norm(dim=1)
        sums = [value.sum(-1) for value in (trained.delta.abs(), trained.moved.abs(), *(value.abs() for value in kept.values()))]
        sound = torch.stack([value.isfinite() for value in sums]).all(0)
        told = torch.stack([trained.loss.double(), norm.double(), sound.double()]).tolist()  # one look at the device
        rows: list[ClientRow] = []
        accepted: dict[str, int] = {}
        for k, (lane, loss, length, fine) in enumerate(zip(lanes, *told, strict=True)):
            row = ClientRow(lane.member.client, len(lane.member.rows), len(lane.sizes), loss, length)
            if not fine:
                parts = trained.delta[k], row.samples, job.layout, trained.moved[k], [value[k] for value in kept.values()]
                row = replace(row, left_out_because=why_leave_out(*parts))
            rows.append(row)
            if row.left_out_because is None:
                accepted[row.client] = k
                if reports.after:
                    work.stage(row.client, {name: value[k] for name, value in reports.after.items()})
        record: Record | None = None
        for shard in of_run:
            chosen = [accepted[member.client] for member in shard if member.client in accepted]
            if chosen:
                some = reports if len(chosen) == len(lanes) else reports.of(torch.tensor(chosen, device=job.device))
                lifted = job.algorithm.lift(some, work.memory)
                record = lifted if record is None else record + lifted
        return Outcome(record, rows)


def too_few(member: Member, least: int) -> ClientRow:
    """The row of a client with fewer samples than the model can train on."""
    samples = len(member.rows)
    reason = "no samples" if samples == 0 else f"{samples} sample, and the model needs {least} to train on"
    return ClientRow(member.client, samples, steps=0, loss=0.0, norm=0.0, left_out_because=reason)


def _added(first: Outcome, second: Outcome) -> Outcome:
    records = [outcome.record for outcome in (first, second) if outcome.record is not None]
    return Outcome(records[0] + records[1] if len(records) == 2 else records[0] if records else None, first.rows + second.rows)
