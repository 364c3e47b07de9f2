"""All clients of a round as lanes of one batched computation, on CUDA or on the CPU, for any model that `torch.func`
can batch."""

import copy
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, zip_longest

import torch
from torch import Tensor

from accord.core.record import Record
from accord.engines.compiled import one_by_one
from accord.engines.contract import (
    SHARDS,
    Ahead,
    Batch,
    Begun,
    Engine,
    Group,
    Job,
    Member,
    Order,
    Outcome,
    Part,
    Table,
    Work,
    orders,
    shards,
    too_few,
    whole,
)
from accord.engines.measuring import Values
from accord.engines.probe import draws_in_evaluation
from accord.engines.sequential import Sequential
from accord.engines.transfer import fetched
from accord.engines.vectorised.batchable import CannotBatch
from accord.engines.vectorised.client_lane import Lane
from accord.engines.vectorised.descent import Descent
from accord.engines.vectorised.evaluation import Evaluation, Look
from accord.engines.vectorised.reporting import Reported, measure, part_of, report, report_together
from accord.rules.algorithm import Algorithm
from accord.rules.company import takes_runs

_UPDATES = 16 << 30  # bytes that the updates of clients trained at once may take
_SMALL = 64 << 20  # bytes of updates up to which two rounds are held at once: more keep a device busy by themselves


@dataclass(frozen=True)
class Request:
    """A cohort to train for one run. Runs that go in lockstep differ in anything but the shapes of model and
    batches."""

    job: Job
    work: Work
    cohort: Sequence[Member]


class Vectorised(Engine):
    """Trains clients as lanes. `lanes` bounds how many go at once; it is halved whenever the device runs out of
    memory."""

    name = "vectorised"

    def __init__(self, job: Job, lanes: int | None = None) -> None:
        self.job = job
        self._reference = Sequential(job)  # evaluates, and says what does not fit
        self.probed = self._reference.probed
        self.descent = Descent(job, self._reference.fed, self.probed.drops_out, lanes)
        # A CPU evaluates one run after another as fast; kernels of a large model fill a device by themselves; a model
        # that draws when it is evaluated does so in the reference's order.
        lanes_pay = job.device.type == "cuda" and self.side_by_side is None and not draws_in_evaluation(job)
        self._evaluation = Evaluation(self.descent.model) if lanes_pay else None
        # batches that were drawn before they are asked for, or for another run: by round, federation and settings, then
        # by client and share of its steps, with the rows that they are batches of; or by a whole cohort's members
        self._orders: dict[Hashable, dict[tuple[str, float], tuple[Tensor, Order]]] = {}
        self._cohorts: dict[Hashable, list[Order]] = {}
        self._as_one: dict[Algorithm, bool] = {}

    def twin(self) -> "Vectorised":
        """An engine for other runs whose rounds begin before those of this one's runs have ended. They share the model,
        the samples and captured steps, so both must be used from one stream."""
        twin = copy.copy(self)
        twin.descent = self.descent.twin()
        twin._orders, twin._cohorts = {}, {}
        return twin

    def close(self) -> None:
        """Lets go of the device's memory."""
        self.descent.forget()
        if self._evaluation is not None:
            self._evaluation.forget()

    @property
    def side_by_side(self) -> int | None:
        """How many lanes of a large model are computed at the same time, each by itself. None where all lanes are one
        batch, which is the faster per lane the more there are."""
        streams = self.descent.model.streams
        return None if streams is None else len(streams)

    @property
    def lanes_at_once(self) -> int | None:
        """How many lanes go together since the device ran out of memory; None if it never did."""
        return self.descent.halved_to

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        return self.evaluate_many([Look(self.job, vector, buffers, groups)])[0]

    def evaluate_many(self, looks: Sequence[Look]) -> list[Table]:
        """Several runs' models, as lanes where that is faster. What a run gets does not depend on the others."""
        if self._evaluation is None or not all(any(len(rows) for _, _, rows in look.groups) for look in looks):
            return [self._reference.evaluate(look.vector, look.buffers, look.groups) for look in looks]
        return self._evaluation(looks)

    def evaluate_batch(self, vector: Tensor, buffers: Tensor, batch: Batch) -> Values:
        return self._reference.evaluate_batch(vector, buffers, batch)

    # ----------------------------------------------------------------------------------------------- training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports."""
        return self.train_many([Request(self.job, work, cohort)])[0]

    @property
    def ahead(self) -> Ahead | None:
        return self if self.job.device.type == "cuda" else None

    def begin(self, work: Work, cohort: Sequence[Member]) -> Begun:
        """The same for a host that does not wait for a CUDA device."""
        (record,), outcomes = self._begin([Request(self.job, work, cohort)])
        small = len(cohort) * self.job.layout.size * self.job.layout.dtype.itemsize <= _SMALL
        final = small and not self.job.algorithm.asks_twice
        return Begun(record if final else None, lambda: outcomes()[0])

    def train_shard(self, work: Work, shard: Sequence[Member]) -> Part:
        """Trains one part of a cohort: for whoever adds the parts up."""
        request = Request(self.job, work, shard)
        part = sum((self._begin_parts([request], [some])[1]()[0] for some in self._parts(shard)), start=Part())
        self._orders, self._cohorts = {}, {}  # nobody looks ahead here, who would let go of them: members hold states
        return part

    def train_many(self, requests: Sequence[Request]) -> list[Outcome]:
        """Several runs' cohorts in lockstep. What a run gets does not depend on the others."""
        return self.begin_many(requests)()

    def begin_many(self, requests: Sequence[Request]) -> Callable[[], list[Outcome]]:
        """The same for a host that has other things to do while a CUDA device trains: what is given back waits for
        it."""
        return self._begin(requests)[1]

    def _begin(self, requests: Sequence[Request]) -> tuple[list[Record | None], Callable[[], list[Outcome]]]:
        """Each run's record, if it is known before anyone knows whether a client is left out; and what waits for the
        device."""
        done = [Part() for _ in requests]
        *before, last = zip_longest(*(self._parts(request.cohort) for request in requests), fillvalue=())
        for parts in before:
            ended = self._begin_parts(requests, parts)[1]()
            done = [first + second for first, second in zip(done, ended, strict=True)]
        records, trained = self._begin_parts(requests, last, ahead=True)

        def outcomes() -> list[Outcome]:
            ended = [first + second for first, second in zip(done, trained(), strict=True)]
            return [whole(request.job.algorithm, [part]) for request, part in zip(requests, ended, strict=True)]

        return ([None] * len(requests) if before else records), outcomes

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

    def _begin_parts(
        self, requests: Sequence[Request], parts: Sequence[Sequence[Sequence[Member]]], ahead: bool = False
    ) -> tuple[list[Record | None], Callable[[], list[Part]]]:
        """Some shards of every request, and, with `ahead`, a look at the next round: what they add up to if nobody is
        left out, and what waits for the device."""
        if not self.descent.model.module.training:  # to tell every layer each round takes a while
            self.descent.model.module.train()
        least = self.probed.least_batch
        lanes: list[list[Lane]] = []
        for request, of_run in zip(requests, parts, strict=True):
            job, work = request.job, request.work
            able = [member for shard in of_run for member in shard if member.samples >= least]
            drawn = self._drawn(job, work.round, able)
            lanes.append(
                [
                    Lane(job, work, member, member.read_state(), *batches)
                    for member, batches in zip(able, drawn, strict=True)
                ]
            )
        together = [lane for of_run in lanes for lane in of_run]
        trained = self.descent(together) if together else None
        reports: list[Reported | None] = []
        measured: list[Tensor] = []
        at = 0
        for _, members in groupby(zip(lanes, parts, strict=True), lambda run: self._kind(*run)):
            some = list(members)
            count = sum(len(chosen) for chosen, _ in some)
            if not count or trained is None:
                reports += [None] * len(some)
                continue
            of_some = trained.of(slice(at, at + count))
            if len(some) > 1:
                group_reports = report_together([chosen for chosen, _ in some], of_some)
            else:
                group_reports = [report(*some[0], of_some)]
            reports += group_reports
            measured.append(measure(group_reports, of_some))
            at += count
        seen = None
        if measured:  # one look at the device for all runs
            seen = fetched(measured[0] if len(measured) == 1 else torch.cat(measured))
        if ahead:
            self._look_ahead(requests)

        def done() -> list[Part]:
            numbers = iter(seen().tolist() if seen else [])
            ended: list[Part] = []
            for chosen, of_run, reported in zip(lanes, parts, reports, strict=True):
                mine = list(islice(numbers, len(chosen)))
                part = Part() if reported is None else part_of(chosen, of_run, reported, mine)
                if len(part.rows) < sum(map(len, of_run)):
                    row_of = {row.client: row for row in part.rows}
                    rows = [row_of.get(member.client) or too_few(member, least) for shard in of_run for member in shard]
                    part = replace(part, rows=rows)
                ended.append(part)
            return ended

        return [None if reported is None else reported.total[0] for reported in reports], done

    def _kind(self, lanes: list[Lane], of_run: Sequence[Sequence[Member]]) -> Hashable:
        """What runs one after another share whose reports can be added up as one; a run that cannot has a kind of its
        own."""
        if not lanes:
            return id(lanes)
        job, memory = lanes[0].job, lanes[0].work.memory
        remembered = any(memory[part] for part in ("local", "average", "mask"))
        if len(of_run) > 1 or job.attack or job.remembers or remembered:
            return id(lanes)
        return (job.algorithm, len(lanes)) if self.steps_as_one(job) else id(lanes)

    def steps_as_one(self, job: Job) -> bool:
        """Whether what the server does for several runs of this algorithm can be done at once: see `takes_runs`."""
        try:
            known = self._as_one.get(job.algorithm)
        except TypeError:  # a part of somebody's own that is not hashable
            return False
        if known is None:
            known = self._as_one[job.algorithm] = takes_runs(job.algorithm, job.layout, job.device)
        return known

    def _drawn(self, job: Job, round: int, members: Sequence[Member]) -> list[Order]:
        """The clients' batches. Runs of one seed over one federation draw the same, which is drawn once."""
        training = job.training
        settings = training.epochs, training.batch, training.steps, job.algorithm.local.full_batch
        how = round, job.fed, job.seed, *settings
        cohort = how, *members
        if cohort in self._cohorts:
            return self._cohorts[cohort]
        known = self._orders.setdefault(how, {})
        keys = [(member.client, member.share) for member in members]
        new = {
            key: member
            for key, member in zip(keys, members, strict=True)
            if key not in known or known[key][0] is not member.rows  # rows need not be all of the client's
        }
        drawn = orders(job, round, list(new.values()), self.probed.least_batch) if new else []
        for (key, member), order in zip(new.items(), drawn, strict=True):
            known[key] = member.rows, order
        of_members = [known[key][1] for key in keys]
        self._cohorts[cohort] = of_members
        return of_members

    def _look_ahead(self, requests: Sequence[Request]) -> None:
        """While a device works, which CUDA's does by itself, the host draws the next round's batches and lays them
        out."""
        self._orders, self._cohorts = {}, {}
        drawn: list[Order] = []
        for request in requests:
            drawn += self._drawn(request.job, request.work.round + 1, request.work.ahead())
        self.descent.lay_out(drawn)


def batched_if_possible(job: Job) -> tuple[Vectorised | Sequential, str | None]:
    """The engine that trains all clients as one batch or, if the model cannot be batched, one by one; and why it
    cannot."""
    try:
        return Vectorised(job), None
    except CannotBatch as error:
        return one_by_one(job), str(error)
