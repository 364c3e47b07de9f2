"""What every engine does: train a cohort into one record, and evaluate a model on groups of samples.

An engine may batch clients, spread them over processes or run them one by one; it may not change what they compute. Batches, dropout and
the order in which reports are added are fixed here, so that every engine gives the same answer.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from accord import draws
from accord.algorithm import Algorithm, Memory
from accord.data.federated import Federation
from accord.layout import Layout
from accord.local import Training
from accord.losses import PerSample
from accord.record import Record, State

SHARDS = 16  # a cohort is summed in at most so many parts; part of the experiment, not of the machine


@dataclass(frozen=True)
class Job:
    """What stays the same for a whole run."""

    module: nn.Module
    layout: Layout
    fed: Federation
    algorithm: Algorithm
    training: Training
    loss: PerSample
    metrics: Mapping[str, PerSample]
    seed: int
    device: torch.device


def _forget(client: str, state: State) -> None:
    """Stages nothing: for rules whose clients remember nothing."""


@dataclass(frozen=True)
class Work:
    """What a round's clients are sent, and where an engine stages what an accepted client would remember."""

    round: int
    vector: Tensor  # [P]
    buffers: Tensor  # [B]
    memory: Memory
    stage: Callable[[str, State], None] = _forget


@dataclass(frozen=True)
class Member:
    """One client of a cohort: its training rows, what it remembers (read only when its turn comes: a cohort may be large), and the share of
    its steps it gets done."""

    client: str
    rows: Tensor
    own: Callable[[], State] = dict
    share: float = 1.0


@dataclass(frozen=True)
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
    """A cohort's round: one record (None if no report was accepted) and a row per client."""

    record: Record | None
    rows: list[ClientRow]


Group = tuple[str, str, Tensor]  # (split, client, rows)


@dataclass(frozen=True)
class Table:
    """Sums over the samples of each group: `sums[metric][g]` belongs to `groups[g]`. Of the metrics in `smaller`, less is better."""

    groups: list[tuple[str, str]]
    samples: np.ndarray
    sums: dict[str, np.ndarray]
    smaller: frozenset[str] = frozenset({"loss"})


class Engine(Protocol):
    """The contract. `close` frees what the engine holds; it may be called twice."""

    name: str

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome: ...
    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table: ...
    def close(self) -> None: ...


def shards(cohort: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """The cohort in at most SHARDS consecutive parts. A part is summed in order, and the parts' records are added in order."""
    bounds = np.linspace(0, len(cohort), min(SHARDS, len(cohort)) + 1).round().astype(int)
    for start, end in pairwise(bounds):
        yield cohort[start:end]


def batches(job: Job, round: int, member: Member, least: int = 1) -> list[Tensor]:
    """The rows of every local step of one client: shuffled anew each epoch, the last batch of an epoch as short as it comes. Where a model
    cannot train on fewer than `least` samples (BatchNorm on one), a shorter rest joins the batch before it."""
    count = len(member.rows)
    if not count:
        return []
    training = job.training
    if job.algorithm.local.full_batch:
        return [member.rows]
    plan: list[Tensor] = []
    for epoch in range(training.epochs):
        order = draws.permutation(count, job.seed, "batches", round, member.client, epoch)
        plan += _cut(member.rows[torch.from_numpy(order)], training.batch or count, least)
    plan = plan[: training.steps]
    return plan[: max(1, math.ceil(member.share * len(plan)))]


def _cut(rows: Tensor, size: int, least: int) -> list[Tensor]:
    parts = list(rows.split(size))
    if len(parts) > 1 and len(parts[-1]) < least:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
