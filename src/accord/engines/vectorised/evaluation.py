"""Evaluation of several runs as lanes: one forward pass for a batch of each, and sums by group on the device.

Every batch has one size, whichever runs go along, and a run alone has company, as in training: what a run gets does not
depend on the others. The host waits for the device once, but for outputs that a metric of a whole group needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from accord.engines.contract import Group, Job, Table
from accord.engines.measuring import OUTPUT, TARGET, kept, numbers, per_sample, table_of
from accord.engines.vectorised.lanes import Model, outputs
from accord.kernels.segments import segment_sums

_BATCH = 1024  # samples of a run at a time
_PASS = 1 << 30  # bytes that the samples of one pass may take


Gathered = tuple[Tensor, Tensor] | None  # all outputs and targets of a run


@dataclass(frozen=True)
class Look:
    """A model of a run, and the samples to evaluate it on. Runs that read the same data share one list of groups."""

    job: Job
    vector: Tensor  # [P]
    buffers: Tensor  # [B]
    groups: Sequence[Group]


@dataclass(frozen=True)
class _Read:
    """What is read of some groups: their rows on the device, filled up to whole batches, and where each group ends."""

    groups: Sequence[Group]
    names: list[tuple[str, str]]
    sizes: np.ndarray  # [G]
    rows: Tensor  # [N]
    bounds: Tensor  # [G + 1]

    @staticmethod
    def of(groups: Sequence[Group], device: torch.device) -> "_Read":
        sizes = np.array([len(rows) for _, _, rows in groups], dtype=np.int64)
        missing = -int(sizes.sum()) % _BATCH
        rows = torch.cat([rows for _, _, rows in groups])
        rows = torch.cat([rows, rows[:1].expand(missing)])
        bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
        return _Read(
            groups, [(split, client) for split, client, _ in groups], sizes, rows.to(device), bounds.to(device)
        )


class Evaluation:
    """Evaluates runs whose models have one shape, on one device."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._read: dict[int, _Read] = {}  # by the groups' id, which they keep while they are held here

    @torch.no_grad()
    def __call__(self, looks: Sequence[Look]) -> list[Table]:
        """A table for each."""
        device, wanted = self.model.fed.x.device, {id(look.groups): look.groups for look in looks}
        self._read = {at: self._read.get(at) or _Read.of(groups, device) for at, groups in wanted.items()}
        self.model.module.eval()
        sample = self.model.fed.read(torch.zeros(1, dtype=torch.int64, device=device))[0].nbytes
        at_once = max(2, _PASS // (sample * _BATCH))
        sums: list[Tensor] = []
        gathered: list[Gathered] = []
        for first in range(0, len(looks), at_once):
            some = looks[first : first + at_once]
            found, outputs_of = self._sums([*some, *some] if len(some) == 1 else some)
            sums += found[: len(some)]
            gathered += outputs_of[: len(some)]
        fetched = torch.cat([each.reshape(-1) for each in sums]).cpu().numpy()  # the one look at the device
        parts = np.split(fetched, np.cumsum([each.numel() for each in sums])[:-1])
        return [self._table(*each) for each in zip(looks, parts, gathered, strict=True)]

    def _sums(self, looks: Sequence[Look]) -> tuple[list[Tensor], list[Gathered]]:
        """For each run, `[M, G]`: every number per sample summed over each group; and, where a metric of a whole group
        is asked for, its outputs and targets on the host."""
        job, layout, device = looks[0].job, self.model.layout, self.model.fed.x.device
        reads = [self._read[id(look.groups)] for look in looks]
        parameters = layout.pieces(torch.stack([look.vector for look in looks]))
        buffers = layout.unpack_buffers(torch.stack([look.buffers for look in looks]).to(device))
        length = max(len(read.rows) for read in reads)
        # a run that has fewer samples repeats its first one; no group holds them
        rows = torch.stack([torch.cat([r.rows, r.rows[:1].expand(length - len(r.rows))]) for r in reads])
        names, held = per_sample(job), dict[str, list[Tensor]]({OUTPUT: [], TARGET: []})
        values = torch.empty(len(looks), len(names), length, dtype=torch.float64, device=device)
        for first in range(0, length, _BATCH):
            x, y = self.model.fed.read(rows[:, first : first + _BATCH])
            output, target = outputs(self.model, parameters, buffers, x).flatten(0, 1), y.flatten(0, 1)
            measured = numbers(job, output, target)
            for number, name in enumerate(names):
                values[:, number, first : first + _BATCH] = measured[name].view(len(looks), _BATCH)
            for what, some in kept(output, target).items() if job.of_group else ():
                held[what].append(some.unflatten(0, (len(looks), _BATCH)).cpu())
        sums: dict[int, Tensor] = {}
        for read in {id(read): read for read in reads}.values():
            chosen = [at for at, other in enumerate(reads) if other is read]
            found = self._by_group(values[torch.tensor(chosen, device=device)], read)
            sums |= dict(zip(chosen, found.unbind(0), strict=True))
        gathered: list[Gathered] = [None] * len(looks)
        if job.of_group:
            all_outputs, targets = torch.cat(held[OUTPUT], 1), torch.cat(held[TARGET], 1)
            for at, count in enumerate(int(read.sizes.sum()) for read in reads):
                # copies: a run's own must not hold on to all runs'
                gathered[at] = all_outputs[at, :count].clone(), targets[at, :count].clone()
        return [sums[at] for at in range(len(looks))], gathered

    def _by_group(self, values: Tensor, read: _Read) -> Tensor:
        if self.model.tuned:
            return segment_sums(values, read.bounds)
        owner = np.repeat(np.arange(len(read.sizes)), read.sizes)
        flat = values[..., : len(owner)].reshape(-1, len(owner)).cpu().numpy()
        found = np.stack([np.bincount(owner, row, minlength=len(read.sizes)) for row in flat])
        return torch.from_numpy(found).view(*values.shape[:-1], -1).to(values.device)

    def _table(self, look: Look, sums: np.ndarray, gathered: Gathered) -> Table:
        read, names = self._read[id(look.groups)], per_sample(look.job)
        by_name = dict(zip(names, sums.reshape(len(names), len(read.sizes)), strict=True))
        return table_of(look.job, read.names, read.sizes, by_name, gathered)
