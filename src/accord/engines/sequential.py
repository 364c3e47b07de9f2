"""The readable reference: clients one after another, on one device. Every other engine is held to what this one computes."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from accord import draws
from accord.engines.contract import ClientRow, Group, Job, Member, Outcome, Table, Work, batches, shards
from accord.errors import AccordError
from accord.record import Record, State
from accord.reports import Reports, why_leave_out

_EVALUATION_BATCH = {
    "cpu": 250,
    "cuda": 4096,
}  # on a CPU a larger batch falls out of the cache: 1000 took twice as long per sample
_GRADIENT_BATCH = 512  # samples at a time for a gradient over all of a client's data


Key = tuple[str, int, str, int]  # purpose, round, client, step


class Sequential:
    """Trains and evaluates in a plain loop."""

    name = "sequential"

    def __init__(self, job: Job) -> None:
        self.job = job
        self.module = copy.deepcopy(job.module).to(job.device)  # the user's module is never touched
        self.fed = job.fed.to(job.device)
        self.drops_out = _probe(self)

    def close(self) -> None:
        """Nothing is held open."""

    # ------------------------------------------------------------------------------------------------------------ training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports, shard by shard."""
        record: Record | None = None
        rows: list[ClientRow] = []
        staged: dict[str, State] = {}
        self.module.train()
        with torch.random.fork_rng(devices=[self.job.device] if self.job.device.type == "cuda" else []):
            for shard in shards(cohort):
                of_shard: Record | None = None
                for member in shard:
                    try:
                        reports, row = self._train_client(work, member)
                    except (RuntimeError, ValueError) as error:
                        raise AccordError(f"client {member.client} could not train in round {work.round}: {error}") from error
                    rows.append(row)
                    if reports is not None:
                        lifted = self.job.algorithm.lift(reports, work.memory)
                        of_shard = lifted if of_shard is None else of_shard + lifted
                        staged[member.client] = {name: value[0] for name, value in reports.after.items()}
                if of_shard is not None:
                    record = of_shard if record is None else record + of_shard
        return Outcome(record, rows, staged)

    def _train_client(self, work: Work, member: Member) -> tuple[Reports | None, ClientRow]:
        """One client's round: local steps, the check of what came out, and its report (K = 1)."""
        job, local = self.job, self.job.algorithm.local
        self._seed_torch(draws.key(job.seed, "torch", work.round, member.client) % 2**63)
        start, start_buffers = local.start(work.vector, work.buffers, member.own)
        plan = batches(job, work.round, member)
        end, buffers, loss, gradients = self._descend(work, member, start, start_buffers, plan)
        delta = end - start
        end_buffers = job.layout.pack_buffers(buffers).to(start_buffers.device)
        # Buffers may hold infinities on purpose (attention masks); what did not change has changed by nothing.
        moved = torch.where(end_buffers == start_buffers, torch.zeros_like(end_buffers), end_buffers - start_buffers)
        reason = why_leave_out(delta, len(member.rows), job.layout, moved)
        row = ClientRow(member.client, len(member.rows), len(plan), loss, float(delta.norm()), reason)
        if reason is not None:
            return None, row
        extra = {"mean_gradient": gradients / len(plan)} if gradients is not None else {}
        if "start_gradient" in job.algorithm.needs:
            extra["start_gradient"] = self._full_gradient(work, member, start)
        return self._report(work, member, delta, moved, len(plan), extra), row

    def _report(self, work: Work, member: Member, delta: Tensor, moved: Tensor, steps: int, extra: State) -> Reports:
        number = torch.ones(1, 1, dtype=delta.dtype, device=delta.device)
        before = {name: value[None] for name, value in member.own.items()}
        reports = Reports(
            delta=delta[None],
            weight=number * len(member.rows),
            steps=number * steps,
            buffers=moved[None],
            extra={name: value[None] for name, value in extra.items()},
            before=before,
        )
        lr = self.job.training.lr_at(work.round)
        after = self.job.algorithm.local.keep(work.memory["local"], before, reports, lr)
        return Reports(**{**reports.__dict__, "after": after})

    def _descend(
        self, work: Work, member: Member, start: Tensor, start_buffers: Tensor, plan: list[Tensor]
    ) -> tuple[Tensor, State, float, Tensor | None]:
        """SGD with momentum over the planned batches: the end point, the buffers, the mean loss, and the sum of gradients if asked for."""
        job, training, local = self.job, self.job.training, self.job.algorithm.local
        lr, drift = training.lr_at(work.round), local.drift(work.memory["local"], member.own)
        buffers = job.layout.unpack_buffers(start_buffers)
        w = start.clone().requires_grad_()
        velocity = torch.zeros_like(start)
        gradients = torch.zeros_like(start) if "mean_gradient" in job.algorithm.needs else None
        loss_sum = torch.zeros((), device=start.device)
        for number, batch in enumerate(plan):
            gradient, loss = self._gradient(w, buffers, batch, ("dropout", work.round, member.client, number))
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
        seen = sum(len(batch) for batch in plan)
        return w.detach(), buffers, float(loss_sum) / max(seen, 1), gradients

    def _gradient(self, w: Tensor, buffers: State, rows: Tensor, key: Key) -> tuple[Tensor, Tensor]:
        """Gradient `[P]` and value of the mean loss over `rows`. Buffers are updated in place, as the module does it; dropout draws
        from `key`."""
        x, y = self._samples(rows)
        parameters = {**self.job.layout.unpack(w), **buffers}
        if self.drops_out:
            with draws.routed_dropout(draws.device_key(self.job.seed, *key)):
                output = functional_call(self.module, parameters, (x,))
        else:
            output = functional_call(self.module, parameters, (x,))
        loss = self.job.loss(output, y).mean()
        (gradient,) = torch.autograd.grad(loss, w)
        return gradient, loss.detach()

    def _full_gradient(self, work: Work, member: Member, at: Tensor) -> Tensor:
        """The gradient of the client's mean loss over all its data, a part at a time. Buffers are read, not moved."""
        w, total = at.clone().requires_grad_(), torch.zeros_like(at)
        for number, rows in enumerate(member.rows.split(_GRADIENT_BATCH)):
            key = ("dropout at the start", work.round, member.client, number)
            buffers = self.job.layout.unpack_buffers(work.buffers)
            total += self._gradient(w, buffers, rows, key)[0] * (len(rows) / len(member.rows))
        return total

    def _seed_torch(self, seed: int) -> None:
        """For random calls other than dropout. Generator by generator: `torch.manual_seed` takes a stack trace at every call."""
        torch.default_generator.manual_seed(seed)
        if self.job.device.type == "cuda":
            torch.cuda.default_generators[self.job.device.index or 0].manual_seed(seed)

    def _samples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        rows = rows.to(self.fed.x.device)
        return self.fed.prepare(self.fed.x[rows]), self.fed.y[rows]

    # ---------------------------------------------------------------------------------------------------------- evaluation

    @torch.no_grad()
    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        """Loss and metrics summed over each group's samples. Groups share batches: evaluation sees samples, not clients."""
        self.module.eval()
        state = {**self.job.layout.unpack(vector), **self.job.layout.unpack_buffers(buffers)}
        functions = {"loss": self.job.loss, **self.job.metrics}
        values: dict[str, list[Tensor]] = {name: [] for name in functions}
        all_rows = torch.cat([rows for _, _, rows in groups]) if groups else torch.zeros(0, dtype=torch.int64)
        for rows in all_rows.split(_EVALUATION_BATCH[self.job.device.type]):
            x, y = self._samples(rows)
            output = functional_call(self.module, state, (x,))
            for name, function in functions.items():
                values[name].append(function(output, y).double())
        sizes = np.array([len(rows) for _, _, rows in groups], dtype=np.int64)
        owner = np.repeat(np.arange(len(groups)), sizes)
        sums = {
            name: np.bincount(owner, torch.cat(parts).cpu().numpy() if parts else None, minlength=len(groups))
            for name, parts in values.items()
        }
        return Table([(split, client) for split, client, _ in groups], sizes, sums)


def _probe(engine: Sequential) -> bool:
    """Runs two samples through model and loss, so that what does not fit is said before training; tells whether the model drops out."""
    job = engine.job
    rows = next((rows[:2] for rows in job.fed.train.values() if len(rows)), None)
    if rows is None:
        raise AccordError("no participating client has any training data")
    x, y = engine._samples(rows.repeat(2)[:2])  # two, because BatchNorm refuses to train on one
    engine.module.train()
    state = {name: value.clone() for name, value in engine.module.named_buffers()}
    with torch.no_grad(), torch.random.fork_rng(devices=[job.device] if job.device.type == "cuda" else []):
        with draws.routed_dropout(0) as mode:
            try:
                output = functional_call(engine.module, state, (x,))
            except (RuntimeError, ValueError, TypeError) as error:
                raise AccordError(f"the model cannot read samples of shape {tuple(x.shape[1:])}: {error}") from error
        try:
            loss = job.loss(output, y)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise AccordError(
                f"the loss cannot take outputs of shape {tuple(output.shape)} and targets of shape {tuple(y.shape)}: {error}"
            ) from error
    if tuple(loss.shape) != (len(x),):
        raise AccordError(
            f"loss(output, target) must give one number per sample, shape [{len(x)}], got shape {list(loss.shape)}: use reduction='none'"
        )
    return mode.calls > 0
