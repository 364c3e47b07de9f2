"""The readable reference: clients one after another, on one device. Every other engine is held to what this one
computes."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from accord.attacks import flipped
from accord.core import draws
from accord.core.errors import AccordError
from accord.core.record import Record, State
from accord.core.reports import Reports, why_leave_out
from accord.engines import speed
from accord.engines.contract import (
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
    added,
    batches,
    change_of_buffers,
    evaluation_batches,
    scores,
    shards,
    tabulate,
    too_few,
    whole,
)
from accord.engines.probe import probe

_GRADIENT_BATCH = 512  # samples at a time for a gradient over all of a client's data
_READ = 256  # samples read at a time: pictures of that many stay in a core's cache

Key = tuple[str, int, str, int]  # purpose, round, client, step


class Sequential:
    """Trains and evaluates in a plain loop."""

    name = "sequential"

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fed = job.fed.to(job.device)
        self.probed = probe(job)
        self.module = copy.deepcopy(job.module).to(job.device).train()  # the user's module is never touched
        named = dict(self.module.named_parameters())
        self._parameters = [named[entry.name] for entry in job.layout.parameters]
        self._mixed = any(entry.dtype != job.layout.dtype for entry in job.layout.parameters)
        self._buffers = dict(self.module.named_buffers())
        laid_out = {entry.name for entry in job.layout.buffers}
        self._fixed = {name: b.clone() for name, b in self._buffers.items() if name not in laid_out}

    def close(self) -> None:
        """Nothing is held open."""

    # ----------------------------------------------------------------------------------------------- training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports, shard by shard."""
        return whole(self.job.algorithm, (self.train_shard(work, shard) for shard in shards(cohort)))

    def train_shard(self, work: Work, shard: Sequence[Member]) -> Part:
        """Trains one part of a cohort, client by client: their reports added up, a row for each, and what they keep for
        a second exchange."""
        record: Record | None = None
        rows: list[ClientRow] = []
        kept: list[State] = []
        self._switch(training=True)
        with self._own_generator():
            for member in shard:
                with _naming(f"client {member.client} could not train in round {work.round}"):
                    reports, row = self._train_client(work, member)
                rows.append(row)
                if reports is None:
                    continue
                record = added(record, self.job.algorithm.lift(reports, work.memory))
                if self.job.algorithm.asks_twice:
                    kept.append(reports.extra)
                if reports.after:
                    work.stage(member.client, {name: value[0] for name, value in reports.after.items()})
        return Part(record, rows, kept)

    def _train_client(self, work: Work, member: Member) -> tuple[Reports | None, ClientRow]:
        """One client's round: local steps, its report (K = 1), and the check of everything in it."""
        samples, least = len(member.rows), self.probed.least_batch
        if samples < least:
            return None, too_few(member, least)
        self._seed_torch("torch", work.round, member.client)
        own = member.own()
        plan = batches(self.job, work.round, member, least)
        reports, loss = self._descend(work, member, own, plan)
        row = ClientRow(member.client, samples, len(plan), loss, norm=float(reports.delta.norm()))
        kept = [value[0] for name, value in reports.after.items() if name not in self.job.algorithm.local.unchecked]
        extra = [value[0] for value in reports.extra.values()]
        reason = None
        if not math.isfinite(row.norm) or not all(
            bool(value.isfinite().all()) for value in (reports.buffers, *kept, *extra)
        ):
            reason = why_leave_out(reports.delta[0], samples, self.job.layout, reports.buffers[0], kept, extra)
        return (reports, row) if reason is None else (None, replace(row, left_out_because=reason))

    def _descend(self, work: Work, member: Member, own: State, plan: list[Tensor]) -> tuple[Reports, float]:
        """SGD with momentum over the planned batches: the client's report and the mean loss it met."""
        job, training, local = self.job, self.job.training, self.job.algorithm.local
        lr, drift = training.lr_at(work.round), local.drift(work.memory["local"], own)
        start, start_buffers = local.start(work.vector, work.buffers, own)
        w, velocity = start.clone(), torch.zeros_like(start)
        self._load(w, start_buffers)
        needs = job.algorithm.needs
        gradients = torch.zeros_like(start) if "mean_gradient" in needs else None
        plain = (
            training.clip is None and not training.weight_decay and gradients is None and not local.mu and drift is None
        )
        speeds, losses, last = self._pieces(velocity), [], None
        for number, (x, y) in enumerate(self._read(work.round, member.client, plan)):
            parts, loss = self._gradient(x, y, ("dropout", work.round, member.client, number))
            losses.append(loss)
            if number + 1 == len(plan) and "last_gradient" in needs:
                last = self._flat(parts)  # as it is: what a step follows may be clipped, decayed and corrected
            if not plain:
                parts = self._pieces(self._followed(self._flat(parts), w, start, drift, gradients))
            # by parameter: to lay a large gradient out flat takes as long as a step
            for part, piece in zip(parts, speeds, strict=True):
                torch.add(part, piece, alpha=training.momentum, out=piece)
            w.sub_(velocity, alpha=lr)
            if self._mixed:
                self._point_at(w)
        ended = job.layout.pack_buffers(self._buffers).to(start_buffers.device)
        extra = {} if gradients is None else {"mean_gradient": gradients / len(plan)}
        if last is not None:
            extra["last_gradient"] = last
        if "start_gradient" in needs:
            extra["start_gradient"], _ = self._full_gradient(work, member, "start", start, start_buffers)
        if needs & {"end_gradient", "end_loss"}:
            extra["end_gradient"], extra["end_loss"] = self._full_gradient(work, member, "end", w, ended)
        report = self._report(work, member, own, w - start, change_of_buffers(start_buffers, ended), len(plan), extra)
        sizes = torch.tensor([len(batch) for batch in plan], device=start.device)
        return report, float((torch.stack(losses) * sizes).sum()) / int(sizes.sum())

    def _followed(
        self, gradient: Tensor, w: Tensor, start: Tensor, drift: Tensor | None, gradients: Tensor | None
    ) -> Tensor:
        """What a step follows instead of the bare gradient, all `[P]`. `gradients` sums what there is before the local
        rule adds to it."""
        training, mu = self.job.training, self.job.algorithm.local.mu
        if training.clip is not None:
            gradient *= (training.clip / (gradient.norm() + 1e-12)).clamp(max=1.0)
        if training.weight_decay:
            gradient += training.weight_decay * w
        if gradients is not None:
            gradients += gradient
        if mu:
            gradient += mu * (w - start)
        if drift is not None:
            gradient += drift
        return gradient

    def _report(
        self, work: Work, member: Member, own: State, delta: Tensor, moved: Tensor, steps: int, extra: State
    ) -> Reports:
        number = torch.ones(1, 1, dtype=delta.dtype, device=delta.device)
        before = {name: value[None] for name, value in own.items()}
        reports = Reports(
            delta=delta[None],
            weight=number * len(member.rows),
            steps=number * steps,
            buffers=moved[None],
            extra={name: value[None] for name, value in extra.items()},
            before=before,
        )
        lr, attack = self.job.training.lr_at(work.round), self.job.attack
        reports = replace(reports, after=self.job.algorithm.local.keep(work.memory["local"], before, reports, lr))
        return reports if attack is None else attack.reported(reports, [member.client], work.round)

    def _read(self, round: int, client: str, plan: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """What the model reads at each step. Unless augmentation draws for every step, several are read at once:
        reading is a handful of small operations, which take hardly longer for many samples than for few."""
        if self.fed.augment is not None:
            for number, batch in enumerate(plan):
                yield self._lesson(client, batch, draws.device_key(self.job.seed, "augment", round, client, number))
            return
        steps = max(1, _READ // len(plan[0]))
        for some in (plan[first : first + steps] for first in range(0, len(plan), steps)):
            x, y = self._lesson(client, torch.cat(some))
            sizes = [len(batch) for batch in some]
            yield from zip(x.split(sizes), y.split(sizes), strict=True)

    def _lesson(self, client: str, rows: Tensor, key: int | None = None) -> tuple[Tensor, Tensor]:
        """These rows as a client learns from them, with the labels that it takes them to have."""
        x, y = self.fed.read(rows.to(self.job.device), key)
        top = -1 if self.job.attack is None else self.job.attack.top(client)
        return x, y if top < 0 else flipped(y, top)

    def _gradient(self, x: Tensor, y: Tensor, key: Key) -> tuple[Sequence[Tensor], Tensor]:
        """Gradient of a batch's mean loss, by parameter, and its value, with the module as it is. Dropout draws from
        `key`."""
        with self._dropout(*key):
            output = self._output(x)
        loss = self.job.loss(output, y).mean()
        # a parameter that took no part has a gradient of 0
        parts = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
        return parts, loss.detach()

    def _full_gradient(
        self, work: Work, member: Member, where: str, at: Tensor, buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradient `[P]` and value `[1]` of the client's mean loss over all its data, in near-equal parts, which all
        meet the same buffers. Dropout draws otherwise at the round's start than at its end."""
        gradient, value = torch.zeros_like(at), torch.zeros_like(at[:1])
        for number, rows in enumerate(member.rows.tensor_split(-(-len(member.rows) // _GRADIENT_BATCH))):
            self._load(at, buffers)
            key = (f"dropout at the {where}", work.round, member.client, number)
            parts, loss = self._gradient(*self._lesson(member.client, rows), key)
            share = len(rows) / len(member.rows)
            gradient += self._flat(parts) * share
            value += loss * share
        return gradient, value

    # --------------------------------------------------------------------------------------------- evaluation

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        """Loss and metrics summed over each group's samples. Groups share batches: evaluation sees samples, not
        clients."""
        with self._own_generator():
            parts = [self._scored(vector, buffers, batch) for batch in evaluation_batches(self.job, groups)]
            with _naming("evaluation failed"):  # a CUDA device tells of a failure only when it is waited for
                values = [_fetched(parts)] if parts else []
        return tabulate(self.job, groups, values)

    def evaluate_batch(self, vector: Tensor, buffers: Tensor, batch: Batch) -> Values:
        """Loss and metrics of every sample of one batch."""
        with self._own_generator():
            return _fetched([self._scored(vector, buffers, batch)])

    @torch.no_grad()
    def _scored(self, vector: Tensor, buffers: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Loss and metrics of every sample of one batch, still on the device."""
        self._switch(training=False)
        self._load(vector, buffers)
        with _naming(f"evaluation failed at or soon after {batch.who}"), self._dropout("evaluate", batch.start):
            self._seed_torch("evaluate", batch.start)
            x, y = self.fed.read(batch.rows.to(self.job.device))
            output = self._output(x)
            return {name: function(output, y).double() for name, function in scores(self.job).items()}

    # ------------------------------------------------------------------------------------------------ helpers

    def _output(self, x: Tensor) -> Tensor:
        with speed.precision(self.job.speed, x.device):
            output: Tensor = self.module(x)
        return speed.widened(self.job.speed, output)

    def _load(self, vector: Tensor, buffers: Tensor) -> None:
        """Puts the module at `vector`, with buffers of its own, so that nothing leaks from one client, or one batch of
        an evaluation, to the next."""
        self._point_at(vector)
        fixed = {name: value.clone() for name, value in self._fixed.items()}
        for name, value in {**self.job.layout.unpack_buffers(buffers), **fixed}.items():
            self._buffers[name].data = value

    def _point_at(self, vector: Tensor) -> None:
        """Makes the module's parameters views of `vector`, which follow it, or copies, where their precision is
        another. Unlike `functional_call`, which swaps them in and out around every step, it costs nothing until the
        next client."""
        for parameter, value in zip(self._parameters, self.job.layout.unpack(vector).values(), strict=True):
            parameter.data = value

    def _pieces(self, vector: Tensor) -> list[Tensor]:
        """Views of `vector`, a parameter each."""
        return [vector[entry.where].view(entry.shape) for entry in self.job.layout.parameters]

    def _flat(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.reshape(-1) for part in parts]).to(self.job.layout.dtype)

    def _switch(self, training: bool) -> None:
        if self.module.training != training:  # to tell every submodule takes a tenth of a small step
            self.module.train(training)

    @contextmanager
    def _own_generator(self) -> Iterator[None]:
        """Whatever is drawn within leaves the caller's generators where they were."""
        with torch.random.fork_rng(devices=[self.job.device] if self.job.device.type == "cuda" else []):
            yield

    def _seed_torch(self, purpose: str, *path: int | str) -> None:
        """For random calls other than dropout. Generator by generator: `torch.manual_seed` takes a stack trace at every
        call."""
        seed = draws.key(self.job.seed, purpose, *path) % 2**63
        torch.default_generator.manual_seed(seed)
        if self.job.device.type == "cuda":
            torch.cuda.default_generators[self.job.device.index or 0].manual_seed(seed)

    def _dropout(self, purpose: str, *path: int | str) -> "draws.Routed | nullcontext[None]":
        if not self.probed.drops_out:
            return nullcontext()
        return draws.Routed(draws.device_key(self.job.seed, purpose, *path))


def _fetched(parts: Sequence[dict[str, Tensor]]) -> Values:
    """Batches' values one after another, with one wait for the device, not one for every batch."""
    return {name: torch.cat([part[name] for part in parts]).cpu().numpy() for name in parts[0]}


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Says who it was when the user's model, loss or data fail."""
    try:
        yield
    except AccordError:
        raise
    except Exception as error:
        raise AccordError(f"{what}: {error}") from error
