"""The reference: what a round is, clients one after another on one device. Every other engine is held to what this one
computes."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from accord.attacks import flipped
from accord.core import draws
from accord.core.errors import AccordError
from accord.core.layout import change_of_buffers
from accord.core.record import State
from accord.core.reports import Reports, why_leave_out
from accord.engines import contract, speed
from accord.engines.contract import Batch, ClientRow, Group, Job, Member, Outcome, Part, Table, Work
from accord.engines.measuring import Values, measured, tabulate
from accord.engines.probe import probe
from accord.rules.local.step import Gradient, LocalStep, Piece, Steps, gradient_of, local_step

_GRADIENT_BATCH = 512  # samples at a time for a gradient over all of a client's data


class Sequential:
    """Trains and evaluates in a plain loop."""

    name = "sequential"
    lanes_at_once = None
    ahead = None
    holds_clients = False

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fed = job.fed.to(job.device)
        self.probed = probe(job)
        self.module = copy.deepcopy(job.module).to(job.device).train()  # the user's module is never touched
        self._forward = speed.forward_pass(self.module, job.speed)
        named = dict(self.module.named_parameters())
        self._parameters = [named[entry.name] for entry in job.whole.parameters]
        self._mixed = any(entry.dtype != job.whole.dtype for entry in job.whole.parameters)
        self._buffers = dict(self.module.named_buffers())
        laid_out = {entry.name for entry in job.whole.buffers}
        self._fixed = {name: b.clone() for name, b in self._buffers.items() if name not in laid_out}
        self._generators = [job.device] if job.device.type == "cuda" else []
        self._gradient: Gradient = partial(gradient_of, self._forward, job.loss, self._parameters)
        self._step: LocalStep = partial(local_step, self._gradient, job.training.clip, job.whole.flatten)
        # what the algorithm says once for all rounds
        self._needs, self._asks_twice = job.algorithm.needs, job.algorithm.asks_twice
        self._remembers, self._unchecked = job.algorithm.local.remembers, job.unchecked
        self._number = partial(torch.tensor, dtype=job.layout.dtype, device=job.device)
        self._steps = Steps(job.training.rule, self._number, job.algorithm.local.mu)

    def close(self) -> None:
        """Nothing is held open."""

    # ----------------------------------------------------------------------------------------------- training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports, shard by shard."""
        parts = map(partial(self.train_shard, work), contract.shards(cohort))
        return contract.whole(self.job.algorithm, parts)

    def train_shard(self, work: Work, shard: Sequence[Member]) -> Part:
        """Trains one part of a cohort, client by client: their reports added up, a row for each, and what they keep for
        a second exchange."""
        least, record = self.probed.least_batch, None
        rows: list[ClientRow] = []
        kept: list[State] = []
        self._switch(training=True)
        with torch.random.fork_rng(self._generators):  # the caller's generators stay where they are
            for member in shard:
                if len(member.rows) < least:
                    rows.append(contract.too_few(member, least))
                    continue
                with error_context(f"client {member.client} could not train in round {work.round}"):
                    reports, row = self._train_client(work, member)
                reason = self._why_leave_out(reports, row.samples)
                rows.append(replace(row, left_out_because=reason))
                if reason is not None:
                    continue
                lifted = self.job.algorithm.lift(reports, work.memory)
                record = lifted if record is None else record + lifted
                if self._asks_twice:
                    kept.append(reports.extra)
                if reports.after:
                    work.stage(member.client, {name: value[0] for name, value in reports.after.items()})
        return Part(record, rows, kept)

    def _train_client(self, work: Work, member: Member) -> tuple[Reports, ClientRow]:
        """One client's round: local steps, its report (K = 1) and its row."""
        job, local, needs, samples = self.job, self.job.algorithm.local, self._needs, len(member.rows)
        client_state = member.read_state()
        before = {name: value[None] for name, value in client_state.items()}
        plan = contract.batches(job, work.round, member, self.probed.least_batch)
        draws.seed_torch(job.device, job.seed, "torch", work.round, member.client)
        start, buffers = local.start(work.vector, work.buffers, client_state)
        drift = local.drift(work.memory["local"], client_state)
        if job.algorithm.personal:  # of which a local rule knows nothing
            start, buffers = job.assembled(start, buffers, client_state)
            drift = job.widened(drift)
        w, extra, loss = self._descend(work, member, plan, start, buffers, drift)
        ended, moved = buffers, torch.zeros_like(buffers)
        if job.whole.buffers:
            ended = job.whole.pack_buffers(self._buffers).to(buffers.device)
            moved = change_of_buffers(buffers, ended)
        if "start_gradient" in needs:
            extra["start_gradient"], _ = self._full_gradient(work, member, "start", start, buffers)
        if needs & {"end_gradient", "end_loss"}:
            extra["end_gradient"], extra["end_loss"] = self._full_gradient(work, member, "end", w, ended)
        one = torch.ones(1, 1, dtype=w.dtype, device=w.device)
        delta, moved = (w - start)[: job.layout.size], moved[: job.layout.buffer_size]
        extra = {name: value[:, : job.layout.size] for name, value in extra.items()}
        reports = Reports(delta[None], one * samples, one * len(plan), moved[None], extra, before)
        if self._remembers:
            reports = replace(reports, after=local.keep(work.memory["local"], before, reports, work.lr))
        if job.algorithm.personal:
            reports = replace(reports, after={**reports.after, **job.personal_part(w[None], ended[None])})
        if job.attack is not None:
            reports = job.attack.reported(reports, [member.client], work.round)
        return reports, ClientRow(member.client, samples, len(plan), loss, float(reports.delta.norm()))

    def _why_leave_out(self, reports: Reports, samples: int) -> str | None:
        """The check of everything in a client's report."""
        kept = map(reports.after.__getitem__, reports.after.keys() - self._unchecked)
        extra, layout = reports.extra.values(), self.job.layout
        return why_leave_out(reports.delta[0], samples, layout, reports.buffers, kept, extra)

    def _descend(
        self, work: Work, member: Member, plan: list[Tensor], start: Tensor, buffers: Tensor, drift: Tensor | None
    ) -> tuple[Tensor, State, float]:
        """The optimiser's steps over the planned batches, from `start: [P]`: where it ends, the gradients `[1, P]` of
        its steps that the algorithm needs, and the mean loss it met."""
        job, drops_out = self.job, self.probed.drops_out
        w = start.clone()
        gradients = torch.zeros_like(start) if "mean_gradient" in self._needs else None
        flip_from = -1 if job.attack is None else job.attack.flip_from(member.client)
        extra, losses = State(), list[Tensor]()
        steps = self._round_steps(work.lr, len(plan))
        pieces = self._begin(w, buffers, start, drift, gradients)
        keys = partial(draws.device_key, job.seed, "augment", work.round, member.client)
        for number, (x, y) in enumerate(self.fed.read_steps(plan, keys)):
            key = draws.device_key(job.seed, "dropout", work.round, member.client, number) if drops_out else None
            keeps = number + 1 == len(plan) and "last_gradient" in self._needs
            batch = x, y if flip_from < 0 else flipped(y, flip_from), key
            loss, gradient = self._step(steps[number], pieces, *batch, keeps)
            losses.append(loss)
            if gradient is not None:
                extra["last_gradient"] = gradient[None]
            if self._mixed:
                self._attach(job.whole.pieces(w))
        if gradients is not None:
            extra["mean_gradient"] = (gradients / len(plan))[None]
        sizes = torch.tensor(list(map(len, plan)), device=start.device)
        return w, extra, float((torch.stack(losses) * sizes).sum()) / int(sizes.sum())

    def _full_gradient(
        self, work: Work, member: Member, where: str, at: Tensor, buffers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradient `[1, P]` and value `[1, 1]` of the client's mean loss over all its data, in near-equal parts, which
        all meet the same buffers. Dropout draws otherwise at the round's start than at its end."""
        job, purpose, at_step = self.job, f"dropout at the {where}", (work.round, member.client)
        gradient, value = torch.zeros_like(at), torch.zeros_like(at[:1])
        flip_from = -1 if job.attack is None else job.attack.flip_from(member.client)
        for number, rows in enumerate(member.rows.tensor_split(-(-len(member.rows) // _GRADIENT_BATCH))):
            self._load(at, buffers)
            x, y = self.fed.read(rows)
            key = draws.device_key(job.seed, purpose, *at_step, number) if self.probed.drops_out else None
            parts, loss = self._gradient(x, y if flip_from < 0 else flipped(y, flip_from), key)
            share = len(rows) / len(member.rows)
            gradient += job.whole.flatten(parts) * share
            value += loss * share
        return gradient[None], value[None]

    def _round_steps(self, lr: float, count: int) -> Sequence[Callable[..., None]]:
        """The optimiser's steps of a round."""
        return self._steps.of_round(lr, count)

    def _begin(
        self, w: Tensor, buffers: Tensor, start: Tensor, drift: Tensor | None, gradients: Tensor | None
    ) -> list[Piece]:
        """Puts the module at `w`, and gives what steps move and go by, by parameter: to lay a large gradient out flat
        takes as long as a step."""
        self._reset_buffers(buffers)
        views: list[Any] = self.job.whole.by_parameter(w, start, drift, gradients, *self._steps.begin(w))
        self._attach([view[0] for view in views])
        return [Piece(w, start, drift, gradients, kept) for w, start, drift, gradients, *kept in views]

    # --------------------------------------------------------------------------------------------- evaluation

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        """Loss and metrics of each group. Groups share batches: evaluation sees samples, not clients."""
        with torch.random.fork_rng(self._generators):
            parts = self._scored(vector, buffers, contract.evaluation_batches(self.job, groups))
            with error_context("evaluation failed"):  # a CUDA device tells of a failure only when it is waited for
                values = [_fetched(parts)] if parts else []
        return tabulate(self.job, groups, values)

    def evaluate_batch(self, vector: Tensor, buffers: Tensor, batch: Batch) -> Values:
        """Loss and metrics of every sample of one batch."""
        with torch.random.fork_rng(self._generators):
            return _fetched(self._scored(vector, buffers, [batch]))

    @torch.no_grad()
    def _scored(self, vector: Tensor, buffers: Tensor, batches: Sequence[Batch]) -> list[dict[str, Tensor]]:
        """Loss and metrics of every sample, batch by batch, still on the device."""
        self._switch(training=False)
        self._attach(self.job.whole.pieces(vector))
        values = list[dict[str, Tensor]]()
        for batch in batches:
            self._reset_buffers(buffers)
            draw = self.job.seed, "evaluate", batch.start
            dropout = draws.Routed(draws.device_key(*draw)) if self.probed.drops_out else nullcontext()
            with error_context(f"evaluation failed at or soon after {batch.who}"), dropout:
                draws.seed_torch(self.job.device, *draw)
                x, y = self.fed.read(batch.rows)
                values.append(measured(self.job, self._forward(x), y))
        return values

    # ------------------------------------------------------------------------------------------------ helpers

    def _load(self, vector: Tensor, buffers: Tensor) -> None:
        """Puts the module at `vector`, with buffers of its own."""
        self._reset_buffers(buffers)
        self._attach(self.job.whole.pieces(vector))

    def _attach(self, pieces: Sequence[Tensor]) -> None:
        """Makes the module's parameters pieces of a vector, which follow it, or copies, where their precision is
        another. Unlike `functional_call`, which swaps them in and out around every step, it costs nothing until the
        next client."""
        for parameter, piece in zip(self._parameters, pieces, strict=True):
            parameter.data = piece.to(parameter.dtype)

    def _reset_buffers(self, buffers: Tensor) -> None:
        """Gives the module buffers of its own, if it has any, so that nothing leaks from one client, or one batch of an
        evaluation, to the next."""
        if self._buffers:
            for name, value in self.job.whole.unpack_buffers(buffers).items():
                self._buffers[name].data = value
            for name, value in self._fixed.items():
                self._buffers[name].data = value.clone()

    def _switch(self, training: bool) -> None:
        if self.module.training != training:  # to tell every submodule takes a tenth of a small step
            self.module.train(training)


def _fetched(parts: Sequence[dict[str, Tensor]]) -> Values:
    """Batches' values one after another, with one wait for the device, not one for every batch."""
    return {name: torch.cat([part[name] for part in parts]).cpu().numpy() for name in parts[0]}


@contextmanager
def error_context(what: str) -> Iterator[None]:
    """Says what was being done when the user's model, loss or data failed."""
    try:
        yield
    except AccordError:
        raise
    except Exception as error:
        raise AccordError(f"{what}: {error}") from error
