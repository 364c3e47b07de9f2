"""What every engine does: train a cohort into one record, and evaluate a model on groups of samples.

An engine may batch clients, spread them over processes or run them one by one; it may not change what they compute.
Batches, dropout and the order in which reports are added are fixed here, so that every engine gives the same answer.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError
from accord.core.record import Record, State
from accord.engines.group_values import Exact, GroupValues, Outputs, Settled
from accord.engines.job import Job as Job
from accord.rules.algorithm import Algorithm, Memory
from accord.rules.local import Training

_READ = 2**28  # samples that a client may read in a round, as often as they are: their numbers take 2 GB
Order = tuple[np.ndarray, list[int]]  # the rows of a client's batches, one after another, and the batches' sizes
SHARDS = 16  # a cohort is summed in at most so many parts; part of the experiment, not of the machine
# on a CPU a larger batch falls out of the cache: 1000 took twice as long per sample
EVALUATION_BATCH = {"cpu": 250, "cuda": 4096}


def _forget(client: str, state: State) -> None:
    """Stages nothing: for rules whose clients remember nothing."""


@dataclass(frozen=True)
class Work:
    """What a round's clients are sent, and where an engine stages what an accepted client would remember."""

    round: int
    vector: Tensor  # [P]
    buffers: Tensor  # [B]
    memory: Memory
    lr: float  # the clients' learning rate in this round
    stage: Callable[[str, State], None] = _forget
    # who will be asked in the next round: an engine may prepare for them while it waits
    ahead: "Callable[[], Sequence[Member]]" = list


@dataclass(frozen=True, eq=False)
class Member:
    """One client of a cohort: its training rows, what it remembers (read only when its turn comes: a cohort may be
    large), and the share of its steps it gets done. Equal to itself alone, so that an engine can look it up."""

    client: str
    rows: Tensor
    read_state: Callable[[], State] = dict
    share: float = 1.0

    @cached_property
    def samples(self) -> int:
        """How many rows it has; to ask a tensor for its length takes as long as much else of a round."""
        return len(self.rows)

    @cached_property
    def numbers(self) -> np.ndarray:
        """Its rows as numpy has them, kept for the same reason."""
        return self.rows.numpy()


@dataclass(slots=True)  # not frozen: there are thousands in a round of many runs
class ClientRow:
    """What is told of one client's round."""

    client: str
    samples: int
    steps: int
    loss: float
    norm: float
    left_out_because: str | None = None


@dataclass(frozen=True)
class Outcome:
    """A cohort's round: one record (None if no report was accepted), a row per client, and what else the round's row
    holds."""

    record: Record | None
    rows: list[ClientRow]
    row_fields: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def accepted(self) -> list[ClientRow]:
        """The rows of the clients whose reports made the record."""
        return [row for row in self.rows if row.left_out_because is None]


@dataclass(frozen=True)
class Begun:
    """A cohort's round that a device is at work on. `outcome` waits for it. `record` is what the reports add up to if
    none of them is left out, for whoever builds on it before that is known; None if there is none yet."""

    record: Record | None
    outcome: Callable[[], Outcome]


class Ahead(Protocol):
    """An engine whose device works by itself."""

    def begin(self, work: Work, cohort: Sequence[Member]) -> Begun:
        """Begins a round; the next one may begin before its outcome is asked for."""
        ...


Group = tuple[str, str, Tensor]  # (split, client, rows)


@dataclass(frozen=True)
class Table:
    """Sums over the samples of each group: `sums[metric][g]` belongs to `groups[g]`; metrics of a whole group are in
    `of_group`. Of the metrics in `smaller`, less is better."""

    groups: list[tuple[str, str]]
    samples: np.ndarray
    sums: dict[str, np.ndarray]
    smaller: frozenset[str] = frozenset({"loss"})
    of_group: Mapping[str, GroupValues] = field(default_factory=dict)
    nan: np.ndarray | None = None  # predictions that are NaN, by group; None: nobody counted
    metrics: tuple[str, ...] = ()  # all that was measured, in order: the first that is not the loss judges
    row_fields: Mapping[str, Any] = field(default_factory=dict)  # what the round's row holds of the evaluation besides

    def __post_init__(self) -> None:
        if not self.metrics:
            object.__setattr__(self, "metrics", (*self.sums, *self.of_group))

    def settled(self) -> "Table":
        """With the groups' figures alone: outputs of all samples are let go of."""
        return replace(self, of_group={name: Settled(of.each, of.needs) for name, of in self.of_group.items()})


def joined(tables: Sequence[Table]) -> Table:
    """Tables of one evaluation one after another, each by a model of its own."""
    first, counts = tables[0], [table.nan for table in tables if table.nan is not None]
    of_group = {}
    for name in first.of_group:
        values = [cast(Exact, table.of_group[name]) for table in tables]
        of_group[name] = replace(values[0], all=Outputs.joined([one.all for one in values]))
    return replace(
        first,
        groups=[group for table in tables for group in table.groups],
        samples=np.concatenate([table.samples for table in tables]),
        sums={metric: np.concatenate([table.sums[metric] for table in tables]) for metric in first.sums},
        of_group=of_group,
        nan=np.concatenate(counts) if len(counts) == len(tables) else None,
    )


class Engine(Protocol):
    """The contract. `close` frees what the engine holds; it may be called twice."""

    name: str

    @property
    def holds_clients(self) -> bool:
        """Whether what clients remember is with them, where only they can evaluate their own models."""
        return False

    @property
    def lanes_at_once(self) -> int | None:
        """How many clients it trains together since its device ran out of memory; None if that never happened."""
        return None

    @property
    def ahead(self) -> Ahead | None:
        """The engine itself, if a round can begin before the host knows what came of the one before."""
        return None

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome: ...
    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table: ...
    def close(self) -> None: ...


def too_few(member: Member, least: int) -> ClientRow:
    """The row of a client with fewer samples than the model can train on."""
    samples = len(member.rows)
    reason = "no samples" if samples == 0 else f"{samples} sample, and the model needs {least} to train on"
    return ClientRow(member.client, samples, steps=0, loss=0.0, norm=0.0, left_out_because=reason)


def shards(cohort: Sequence[Member]) -> list[Sequence[Member]]:
    """The cohort in at most SHARDS consecutive parts. A part is summed in order, and the parts' records are added in
    order."""
    bounds = np.linspace(0, len(cohort), min(SHARDS, len(cohort)) + 1).round().astype(int)
    return [cohort[start:end] for start, end in pairwise(bounds)]


def added(record: Record | None, more: Record | None) -> Record | None:
    """The sum of two records. None is the record of nobody."""
    return more if record is None else record if more is None else record + more


@dataclass(frozen=True)
class Part:
    """Part of a cohort's round: one record, a row per client, and what clients keep for a second exchange."""

    record: Record | None = None
    rows: list[ClientRow] = field(default_factory=list)
    kept: list[State] = field(default_factory=list)

    def __add__(self, other: "Part") -> "Part":
        return Part(added(self.record, other.record), self.rows + other.rows, self.kept + other.kept)


def whole(algorithm: Algorithm, parts: Iterable[Part]) -> Outcome:
    """A cohort's round from its parts, in their order, and the second exchange, where the algorithm has one."""
    done = sum(parts, start=Part())
    if done.record is None or not done.kept:  # who is asked again has kept something
        return Outcome(done.record, done.rows)
    return Outcome(algorithm.again(done.record, done.kept), done.rows)


def orders(job: Job, round: int, members: Sequence[Member], least: int = 1) -> list[Order]:
    """The rows of each client's local steps, one after another, and how many each step takes: shuffled anew each epoch,
    the last batch of an epoch as short as it comes. Where a model cannot train on fewer than `least` samples (BatchNorm
    on one), a shorter rest joins the batch before it."""
    if job.algorithm.local.full_batch:
        return [(member.numbers, [member.samples] if member.samples else []) for member in members]
    sizes = [_sizes(job.training, member, least) for member in members]
    epochs = [
        math.ceil(sum(batch_sizes) / max(member.samples, 1)) for batch_sizes, member in zip(sizes, members, strict=True)
    ]
    counts: list[int] = []
    paths: list[tuple[int | str, ...]] = []
    for member, passes in zip(members, epochs, strict=True):
        counts += passes * [member.samples]
        paths += [(round, member.client, epoch) for epoch in range(passes)]
    drawn = iter(draws.permutations(counts, job.seed, "batches", paths))
    of_members = []
    for member, batch_sizes, passes in zip(members, sizes, epochs, strict=True):
        rows = member.numbers
        if passes:
            rows = rows[np.concatenate(list(islice(drawn, passes)))[: sum(batch_sizes)]]
        of_members.append((rows, batch_sizes))
    return of_members


def batches(job: Job, round: int, member: Member, least: int = 1) -> list[Tensor]:
    """The rows of every local step of one client."""
    ((rows, sizes),) = orders(job, round, [member], least)
    return list(torch.from_numpy(rows).split(sizes)) if sizes else []


def _sizes(training: Training, member: Member, least: int) -> list[int]:
    """How many samples each local step takes."""
    count, batch = member.samples, training.batch or member.samples
    if not count:
        return []
    sizes = [batch] * (count // batch) + [count % batch] * (count % batch > 0)
    if len(sizes) > 1 and sizes[-1] < least:
        sizes[-2:] = [sum(sizes[-2:])]
    steps = min(len(sizes) * training.epochs, training.steps or len(sizes) * training.epochs)
    steps = max(1, math.ceil(member.share * steps))
    if steps / len(sizes) * count > _READ:
        raise AccordError(
            f"epochs: {training.epochs:,} passes over the {count:,} samples of client {member.client} are more than a"
            f" round's {_READ:,} samples: give fewer, or a number of steps"
        )
    return (sizes * math.ceil(steps / len(sizes)))[:steps]


@dataclass(frozen=True)
class Batch:
    """Samples that are evaluated together: where they begin among all, which they are, and whose the first of them
    is."""

    start: int
    rows: Tensor
    who: str


def evaluation_batches(job: Job, groups: Sequence[Group]) -> list[Batch]:
    """All groups' rows in batches of one size, whichever group they belong to."""
    bounds = np.cumsum([len(rows) for _, _, rows in groups])
    rows = torch.cat([rows for _, _, rows in groups]) if groups else torch.zeros(0, dtype=torch.int64)
    size, batches = EVALUATION_BATCH[job.device.type], []
    for start in range(0, len(rows), size):
        split, client, _ = groups[int(np.searchsorted(bounds, start, side="right"))]
        batches.append(Batch(start, rows[start : start + size], f"{split} data of client {client}"))
    return batches
