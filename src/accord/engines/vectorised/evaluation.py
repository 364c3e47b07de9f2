"""Evaluation of several runs as lanes: one forward pass for a batch of each, and sums by group on the device.

Every batch has one size, whichever runs go along, and a run alone has company, as in training: what a run gets does not
depend on the others. The host waits for the device once, but for outputs that a metric of a whole group needs. The
forward passes of a run that is evaluated alone again and again are replayed as one CUDA graph.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from accord.core.itself import Itself
from accord.engines.contract import Group, Job, Table
from accord.engines.measuring import OUTPUT, TARGET, kept, numbers, per_sample, table_of
from accord.engines.transfer import sent
from accord.engines.vectorised.lanes import Model, outputs
from accord.engines.vectorised.replay import beside, graph_of
from accord.kernels.segments import segment_sums

_BATCH = 1024  # samples of a run at a time
_PASS = 1 << 30  # bytes that the samples of one pass may take
_SMALL = 64 << 20  # bytes that samples of a batch, and all outputs, may take in a graph, which keeps them


Gathered = tuple[Tensor, Tensor] | None  # all outputs and targets of a run


@dataclass(frozen=True)
class Look:
    """A model of a run, and the samples to evaluate it on. Runs that read the same data share one list of groups."""

    job: Job
    vector: Tensor  # [P]
    buffers: Tensor  # [B]
    groups: Sequence[Group]


@dataclass(frozen=True, eq=False)
class _Read:
    """What is read of some groups: their rows on the device, filled up to whole batches, and where each group ends."""

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
        return _Read([(split, client) for split, client, _ in groups], sizes, rows.to(device), bounds.to(device))


@dataclass(frozen=True)
class _Replayed:
    """The forward passes of one run over all that it reads, as a graph: what it reads of, and what it gives."""

    read: _Read
    vectors: Tensor  # [2, P]
    buffers: Tensor  # [2, B]
    graph: torch.cuda.CUDAGraph
    outputs: tuple[Tensor, Tensor]  # of all samples, and their targets

    def __call__(self, vectors: Tensor, buffers: Tensor) -> list[tuple[Tensor, Tensor]]:
        self.vectors.copy_(vectors)
        self.buffers.copy_(buffers)
        self.graph.replay()
        return [self.outputs]


class Evaluation:
    """Evaluates runs whose models have one shape, on one device."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._read: dict[Itself[Sequence[Group]], _Read] = {}  # of the groups that were evaluated last
        self._before: tuple[_Read, int] | None = None  # what a run alone read last, and how many bytes of outputs
        self._replayed: _Replayed | None = None

    def forget(self) -> None:
        """Lets go of the device's memory."""
        self._before = self._replayed = None

    @cached_property
    def _sample(self) -> int:
        """The bytes of one."""
        return self.model.fed.read(torch.zeros(1, dtype=torch.int64, device=self.model.fed.x.device))[0].nbytes

    @torch.no_grad()
    def __call__(self, looks: Sequence[Look]) -> list[Table]:
        """A table for each."""
        device, wanted = self.model.fed.x.device, [Itself(look.groups) for look in looks]
        self._read = {groups: self._read.get(groups) or _Read.of(groups.of, device) for groups in dict.fromkeys(wanted)}
        reads = [self._read[groups] for groups in wanted]
        self.model.module.eval()
        at_once = max(2, _PASS // (self._sample * _BATCH))
        sums: list[Tensor] = []
        gathered: list[Gathered] = []
        for first in range(0, len(looks), at_once):
            some, of_some = looks[first : first + at_once], reads[first : first + at_once]
            twice = 2 if len(some) == 1 else 1
            group_sums, outputs_of = self._sums(list(some) * twice, of_some * twice)
            sums += group_sums[: len(some)]
            gathered += outputs_of[: len(some)]
        fetched = torch.cat([each.reshape(-1) for each in sums]).cpu().numpy()  # the one look at the device
        parts = np.split(fetched, np.cumsum([each.numel() for each in sums])[:-1])
        return [_table(*each) for each in zip(looks, reads, parts, gathered, strict=True)]

    def _sums(self, looks: Sequence[Look], reads: Sequence[_Read]) -> tuple[list[Tensor], list[Gathered]]:
        """For each run, `[M, G]`: every number per sample summed over each group; and, where a metric of a whole group
        is asked for, its outputs and targets on the host."""
        job, device = looks[0].job, self.model.fed.x.device
        length = max(len(read.rows) for read in reads)
        names, held = per_sample(job), dict[str, list[Tensor]]({OUTPUT: [], TARGET: []})
        values = torch.empty(len(looks), len(names), length, dtype=torch.float64, device=device)
        first = 0
        for output, target in self._passes(looks, reads, length):
            measured, end = numbers(job, output, target), first + len(target) // len(looks)
            for number, name in enumerate(names):
                values[:, number, first:end] = measured[name].view(len(looks), -1)
            for what, some in kept(output, target).items() if job.of_group else ():
                held[what].append(some.unflatten(0, (len(looks), -1)).cpu())
            first = end
        sums: dict[int, Tensor] = {}
        for read in dict.fromkeys(reads):
            chosen = [at for at, other in enumerate(reads) if other is read]
            mine = values if len(chosen) == len(reads) else values[sent(np.array(chosen), device)]
            sums |= dict(zip(chosen, self._by_group(mine, read).unbind(0), strict=True))
        gathered: list[Gathered] = [None] * len(looks)
        if job.of_group:
            all_outputs, targets = torch.cat(held[OUTPUT], 1), torch.cat(held[TARGET], 1)
            for at, count in enumerate(int(read.sizes.sum()) for read in reads):
                # copies: a run's own must not hold on to all runs'
                gathered[at] = all_outputs[at, :count].clone(), targets[at, :count].clone()
        return [sums[at] for at in range(len(looks))], gathered

    def _passes(self, looks: Sequence[Look], reads: Sequence[_Read], length: int) -> Iterable[tuple[Tensor, Tensor]]:
        """Outputs and targets of one batch of every run after another; of a run alone that read the same before, of all
        samples at once."""
        vectors, buffers = (torch.stack([getattr(look, name) for look in looks]) for name in ("vector", "buffers"))
        if looks[0] is not looks[-1]:
            # a run that has fewer samples repeats its first one; no group holds them
            rows = torch.stack([torch.cat([r.rows, r.rows[:1].expand(length - len(r.rows))]) for r in reads])
            return self._batches(vectors, buffers, rows)
        read = reads[0]
        if self._replayed is None or self._replayed.read is not read:
            if not self._worth_a_graph(read):
                return self._noted(read, self._batches(vectors, buffers, read.rows.expand(len(looks), -1)))
            self._replayed = self._captured(read, vectors, buffers)
        return self._replayed(vectors, buffers)

    def _worth_a_graph(self, read: _Read) -> bool:
        """Whether a run alone read this the last time, and a graph of it would not keep much memory."""
        before, size = self._before or (None, 0)
        return before is read and self.model.tuned and max(size, 2 * _BATCH * self._sample) <= _SMALL

    def _noted(self, read: _Read, passes: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        size = 0
        for output, target in passes:
            size += output.nbytes
            yield output, target
        self._before = read, size

    def _captured(self, read: _Read, vectors: Tensor, buffers: Tensor) -> _Replayed:
        vectors, buffers = vectors.clone(), buffers.clone()

        def passes() -> tuple[Tensor, Tensor]:
            parts = self._batches(vectors, buffers, read.rows.expand(len(vectors), -1))
            predicted, wanted = zip(*parts, strict=True)
            return _together(predicted, len(vectors)), _together(wanted, len(vectors))

        with beside():
            passes()
        return _Replayed(read, vectors, buffers, *graph_of(passes))

    def _batches(self, vectors: Tensor, buffers: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and targets of models `[R, P]` with buffers `[R, B]` on samples `[R, N]`, a batch of each after
        another."""
        parameters, layout = self.model.layout.pieces(vectors), self.model.layout
        unpacked = layout.unpack_buffers(buffers.to(rows.device))
        for some in rows.split(_BATCH, 1):
            x, y = self.model.fed.read(some)
            yield outputs(self.model, parameters, unpacked, x).flatten(0, 1), y.flatten(0, 1)

    def _by_group(self, values: Tensor, read: _Read) -> Tensor:
        if self.model.tuned:
            return segment_sums(values, read.bounds)
        owner = np.repeat(np.arange(len(read.sizes)), read.sizes)
        flat = values[..., : len(owner)].reshape(-1, len(owner)).cpu().numpy()
        counts = np.stack([np.bincount(owner, row, minlength=len(read.sizes)) for row in flat])
        return torch.from_numpy(counts).view(*values.shape[:-1], -1).to(values.device)


def _table(look: Look, read: _Read, sums: np.ndarray, gathered: Gathered) -> Table:
    names = per_sample(look.job)
    by_name = dict(zip(names, sums.reshape(len(names), len(read.sizes)), strict=True))
    return table_of(look.job, read.names, read.sizes, by_name, gathered)


def _together(parts: Sequence[Tensor], runs: int) -> Tensor:
    """Batches `[R * B, ...]` of so many runs as one, `[R * N, ...]`."""
    return torch.cat([part.unflatten(0, (runs, -1)) for part in parts], 1).flatten(0, 1)
