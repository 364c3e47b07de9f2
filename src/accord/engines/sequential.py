"""The readable reference: clients one after another, on one device. Every other engine is held to what this one computes."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from accord import draws
from accord.engines.contract import ClientRow, Group, Job, Member, Outcome, Table, Work, batches, shards
from accord.engines.probe import probe
from accord.errors import AccordError
from accord.losses import is_smaller_better
from accord.record import Record, State
from accord.reports import Reports, why_leave_out

_EVALUATION_BATCH = {"cpu": 250, "cuda": 4096}  # on a CPU a larger batch falls out of the cache: 1000 took twice as long per sample
_GRADIENT_BATCH = 512  # samples at a time for a gradient over all of a client's data

Key = tuple[str, int, str, int]  # purpose, round, client, step


class Sequential:
    """Trains and evaluates in a plain loop."""

    name = "sequential"

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fed = job.fed.to(job.device)
        self.probed = probe(job)
        self.module = copy.deepcopy(job.module).to(job.device)  # the user's module is never touched
        laid_out = {entry.name for entry in job.layout.buffers}
        self._fixed = {name: b for name, b in self.module.named_buffers() if name not in laid_out}

    def close(self) -> None:
        """Nothing is held open."""

    # ------------------------------------------------------------------------------------------------------------ training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports, shard by shard."""
        record: Record | None = None
        rows: list[ClientRow] = []
        self.module.train()
        with self._own_generator():
            for shard in shards(cohort):
                of_shard: Record | None = None
                for member in shard:
                    with _naming(f"client {member.client} could not train in round {work.round}"):
                        reports, row = self._train_client(work, member)
                    rows.append(row)
                    if reports is None:
                        continue
                    lifted = self.job.algorithm.lift(reports, work.memory)
                    of_shard = lifted if of_shard is None else of_shard + lifted
                    if reports.after:
                        work.stage(member.client, {name: value[0] for name, value in reports.after.items()})
                if of_shard is not None:
                    record = of_shard if record is None else record + of_shard
        return Outcome(record, rows)

    def _train_client(self, work: Work, member: Member) -> tuple[Reports | None, ClientRow]:
        """One client's round: local steps, its report (K = 1), and the check of everything in it."""
        samples, least = len(member.rows), self.probed.least_batch
        row = ClientRow(member.client, samples, steps=0, loss=0.0, norm=0.0)
        if samples < least:
            too_few = "no samples" if samples == 0 else f"{samples} sample, and the model needs {least} to train on"
            return None, replace(row, left_out_because=too_few)
        self._seed_torch("torch", work.round, member.client)
        own = member.own()
        plan = batches(self.job, work.round, member, least)
        reports, loss = self._descend(work, member, own, plan)
        row = replace(row, steps=len(plan), loss=loss, norm=float(reports.delta.norm()))
        kept = [value[0] for name, value in reports.after.items() if name != "b"]  # buffers may hold infinities on purpose
        reason = why_leave_out(reports.delta[0], samples, self.job.layout, reports.buffers[0], kept)
        return (reports, row) if reason is None else (None, replace(row, left_out_because=reason))

    def _descend(self, work: Work, member: Member, own: State, plan: list[Tensor]) -> tuple[Reports, float]:
        """SGD with momentum over the planned batches: the client's report and the mean loss it met."""
        job, training, local = self.job, self.job.training, self.job.algorithm.local
        lr, drift = training.lr_at(work.round), local.drift(work.memory["local"], own)
        start, start_buffers = local.start(work.vector, work.buffers, own)
        buffers = job.layout.unpack_buffers(start_buffers)
        fixed = {name: value.clone() for name, value in self._fixed.items()}
        w = start.clone().requires_grad_()
        velocity, loss_sum = torch.zeros_like(start), torch.zeros((), device=start.device)
        gradients = torch.zeros_like(start) if "mean_gradient" in job.algorithm.needs else None
        on_device = torch.cat(plan).to(job.device).split([len(batch) for batch in plan])
        for number, batch in enumerate(on_device):
            at = (work.round, member.client, number)
            gradient, loss = self._gradient(w, {**buffers, **fixed}, batch, ("dropout", *at), self._augment_key(*at))
            with torch.no_grad():
                loss_sum += loss * len(batch)
                if training.clip is not None:
                    gradient *= (training.clip / (gradient.norm() + 1e-12)).clamp(max=1.0)
                if training.weight_decay:
                    gradient += training.weight_decay * w
                if gradients is not None:
                    gradients += gradient
                if local.mu:
                    gradient += local.mu * (w - start)
                if drift is not None:
                    gradient += drift
                velocity.mul_(training.momentum).add_(gradient)
                w.sub_(velocity, alpha=lr)
        extra = {} if gradients is None else {"mean_gradient": gradients / len(plan)}
        if "start_gradient" in job.algorithm.needs:
            extra["start_gradient"] = self._full_gradient(work, member, start, start_buffers)
        moved = _moved(start_buffers, job.layout.pack_buffers(buffers).to(start_buffers.device))
        report = self._report(work, member, own, w.detach() - start, moved, len(plan), extra)
        return report, float(loss_sum) / sum(len(batch) for batch in plan)

    def _report(self, work: Work, member: Member, own: State, delta: Tensor, moved: Tensor, steps: int, extra: State) -> Reports:
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
        lr = self.job.training.lr_at(work.round)
        return replace(reports, after=self.job.algorithm.local.keep(work.memory["local"], before, reports, lr))

    def _gradient(self, w: Tensor, buffers: State, rows: Tensor, key: Key, augment: int | None = None) -> tuple[Tensor, Tensor]:
        """Gradient `[P]` and value of the mean loss over `rows`. Buffers are updated in place; dropout draws from `key`."""
        x, y = self.fed.read(rows, augment)
        with self._dropout(*key):
            output = functional_call(self.module, {**self.job.layout.unpack(w), **buffers}, (x,))
        loss = self.job.loss(output, y).mean()
        (gradient,) = torch.autograd.grad(loss, w)
        return gradient, loss.detach()

    def _full_gradient(self, work: Work, member: Member, at: Tensor, buffers: Tensor) -> Tensor:
        """The gradient of the client's mean loss over all its data, in near-equal parts. Buffers are read, not moved."""
        w, total = at.clone().requires_grad_(), torch.zeros_like(at)
        for number, rows in enumerate(member.rows.tensor_split(-(-len(member.rows) // _GRADIENT_BATCH))):
            key = ("dropout at the start", work.round, member.client, number)
            state = {**self.job.layout.unpack_buffers(buffers), **{name: value.clone() for name, value in self._fixed.items()}}
            total += self._gradient(w, state, rows.to(self.job.device), key)[0] * (len(rows) / len(member.rows))
        return total

    # ---------------------------------------------------------------------------------------------------------- evaluation

    @torch.no_grad()
    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        """Loss and metrics summed over each group's samples. Groups share batches: evaluation sees samples, not clients."""
        self.module.eval()
        state = {**self.job.layout.unpack(vector), **self.job.layout.unpack_buffers(buffers)}
        functions = {"loss": self.job.loss, **self.job.metrics}
        sizes = np.array([len(rows) for _, _, rows in groups], dtype=np.int64)
        owner = np.repeat(np.arange(len(groups)), sizes)
        values = {name: np.zeros(len(owner)) for name in functions}
        all_rows = torch.cat([rows for _, _, rows in groups]) if len(owner) else torch.zeros(0, dtype=torch.int64)
        size = _EVALUATION_BATCH[self.job.device.type]
        with self._own_generator():
            for start in range(0, len(owner), size):
                self._seed_torch("evaluate", start)
                split, client, _ = groups[owner[start]]
                with _naming(f"evaluation failed at or soon after {split} data of client {client}"), self._dropout("evaluate", start):
                    x, y = self.fed.read(all_rows[start : start + size].to(self.job.device))
                    output = functional_call(self.module, state, (x,))
                    for name, function in functions.items():
                        values[name][start : start + size] = function(output, y).double().cpu().numpy()
        sums = {name: np.bincount(owner, per_sample, minlength=len(groups)) for name, per_sample in values.items()}
        smaller = frozenset(name for name, function in functions.items() if name == "loss" or is_smaller_better(function))
        return Table([(split, client) for split, client, _ in groups], sizes, sums, smaller)

    # ------------------------------------------------------------------------------------------------------------- helpers

    def _augment_key(self, *path: int | str) -> int | None:
        return None if self.fed.augment is None else draws.device_key(self.job.seed, "augment", *path)

    @contextmanager
    def _own_generator(self) -> Iterator[None]:
        """Whatever is drawn within leaves the caller's generators where they were."""
        with torch.random.fork_rng(devices=[self.job.device] if self.job.device.type == "cuda" else []):
            yield

    def _seed_torch(self, purpose: str, *path: int | str) -> None:
        """For random calls other than dropout. Generator by generator: `torch.manual_seed` takes a stack trace at every call."""
        seed = draws.key(self.job.seed, purpose, *path) % 2**63
        torch.default_generator.manual_seed(seed)
        if self.job.device.type == "cuda":
            torch.cuda.default_generators[self.job.device.index or 0].manual_seed(seed)

    def _dropout(self, purpose: str, *path: int | str) -> "draws.Routed | nullcontext[None]":
        if not self.probed.drops_out:
            return nullcontext()
        return draws.Routed(draws.device_key(self.job.seed, purpose, *path))


def _moved(start: Tensor, end: Tensor) -> Tensor:
    """The change of the buffers. They may hold infinities on purpose (attention masks): what did not change has changed by nothing."""
    same = (start == end) | (start.isnan() & end.isnan())
    return torch.where(same, torch.zeros_like(end), end - start)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Says who it was when the user's model, loss or data fail."""
    try:
        yield
    except AccordError:
        raise
    except Exception as error:
        raise AccordError(f"{what}: {error}") from error
