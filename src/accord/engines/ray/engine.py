"""The engine `ray`: clients spread over the devices of a cluster, one record home.

Every node gets the model once and sends one record on: the first adds up its shards, the next adds its own to that sum,
and so on from node to node; the last sum goes to the driver. Shards are thus added one after another in their own
order, wherever they were trained. On CPUs of one type the result has the bits of `sequential` on one thread, whichever
node was faster, came late or was lost.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError, RayTaskError
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.record import Record
from accord.engines.contract import (
    Engine,
    Group,
    Job,
    Member,
    Outcome,
    Part,
    Table,
    Work,
    added,
    evaluation_batches,
    shards,
    whole,
)
from accord.engines.measuring import tabulate
from accord.engines.probe import probe
from accord.engines.ray.connect import connect
from accord.engines.ray.payload import Parcel
from accord.engines.ray.tasks import Batches, Shard
from accord.engines.ray.workers import TRIES, Crew

_TURNS = 4  # tasks that a worker gets of an evaluation, so that a slow one holds up nobody


class Cluster(Engine):
    """Trains and evaluates on a Ray cluster, with workers that start when there is work for them and last until
    `close`.

    `local` names the engine of a worker; left out, it is `vectorised` on GPUs and `sequential` on one thread of a CPU.
    """

    name = "ray"

    def __init__(self, job: Job, local: str | None = None) -> None:
        kind = "GPU" if job.device.type == "cuda" else "CPU"
        self.job, self.local = job, local or ("vectorised" if kind == "GPU" else "sequential")
        probe(job)  # says at once what does not fit
        connect()
        self.crew = Crew(job, kind, self.local)

    def close(self) -> None:
        """Ends all workers at once. The connection to the cluster lasts as long as this process."""
        self.crew.close()

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports, shard by shard."""
        # that one never leaves the server
        memory = {part: state for part, state in work.memory.items() if part != "server"}
        with self._closing_on_failure():
            sent = ray.put(Parcel.of((work.round, work.vector, work.buffers, memory, work.lr)))
            tasks = [Shard(self.job, work, sent, part) for part in self._parts(cohort)]
            record = self._record(tasks)
        rows, kept = [row for task in tasks for row in task.rows], [state for task in tasks for state in task.kept]
        return whole(self.job.algorithm, [Part(record, rows, _here(kept, self.job.device))])

    def _parts(self, cohort: Sequence[Member]) -> Iterator[Sequence[Member]]:
        """The experiment's shards or, for workers who train many clients at once, as many parts as there are
        workers."""
        if self.local == "sequential":
            yield from shards(cohort)
            return
        devices = sum(self.crew.nodes().values())
        for numbers in np.array_split(np.arange(len(cohort)), max(1, min(len(cohort), devices))):
            yield [cohort[number] for number in numbers]

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        """Loss and metrics summed over each group's samples, in the batches that every engine takes."""
        batches = evaluation_batches(self.job, groups)
        some = max(1, len(batches) // (_TURNS * max(1, sum(self.crew.nodes().values()))))
        with self._closing_on_failure():
            sent = ray.put(Parcel.of((vector, buffers)))
            tasks = [Batches(sent, batches[first : first + some]) for first in range(0, len(batches), some)]
            self.crew.carry_out(tasks)
        return tabulate(self.job, groups, [values for task in tasks for values in task.values])

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        """Whoever is still at work would answer a question that nobody asks any more."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------------------------- one record of many

    def _record(self, tasks: Sequence[Shard]) -> Record | None:
        """The sum of all shards' records. What a lost node took with it is trained again."""
        for _ in range(TRIES):
            self.crew.carry_out([task for task in tasks if not task.done])
            try:
                return _here(self._added(tasks), self.job.device)
            except _Lost as lost:
                for task in tasks:
                    if task.node in lost.nodes:
                        task.begin()
        raise AccordError(
            f"nodes of the cluster were lost {TRIES} times in round {tasks[0].work.round}: is it being taken down?"
        )

    def _added(self, tasks: Sequence[Shard]) -> Record | None:
        if any(task.grows for task in tasks):  # handed from node to node, such a record would travel many times
            return functools.reduce(added, (self._fetched(task.record, {task.node}) for task in tasks), None)
        total, before, sums = None, "", []
        for node, run in groupby(tasks, key=lambda task: task.node):
            worker = self.crew.someone(node)
            if worker is None:
                raise _Lost({node})
            made, total = worker.actor.fold.options(num_returns=2).remote(total, *(task.record for task in run))
            sums.append((made, {node, before}))  # it fails if its own shards are gone, or the sum of those before
            before = node
        for made, nodes in sums:
            self._fetched(made, nodes)
        return None if total is None else self._fetched(total, {before})

    def _fetched(self, value: Any, nodes: set[str]) -> Any:
        """What lies on these nodes, if they are still there."""
        try:
            got = ray.get(value)
        except RayError as error:
            if isinstance(error, RayTaskError) and not isinstance(error.cause, RayError):
                raise  # a mistake of accord's own
            for hand in [hand for hand in self.crew.hands if hand.node in nodes]:
                self.crew.dismiss(hand)
            raise _Lost(nodes) from None
        return got.open(copy=True) if isinstance(got, Parcel) else got


class _Lost(Exception):
    """What lay on these nodes may be gone."""

    def __init__(self, nodes: set[str]) -> None:
        super().__init__(nodes)
        self.nodes = nodes


def _here(value: Any, device: torch.device) -> Any:
    """Records and clients' memories, on the device of the driver."""
    if device.type == "cpu" or value is None:
        return value
    if isinstance(value, Record):
        return value.mapped(lambda field: replace(field, value=field.value.to(device)))
    if isinstance(value, dict):
        return {name: _here(each, device) for name, each in value.items()}
    return [_here(each, device) for each in value] if isinstance(value, list) else value.to(device)
