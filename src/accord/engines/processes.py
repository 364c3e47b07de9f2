"""Clients spread over processes: one worker per core, each a `Sequential` engine that computes on one thread.

A worker is handed whole shards and sends one summed record of each back. Shards are handed out as workers come free and
added in their own order, so the number of workers and who finishes first change nothing. Samples are never copied: a
forked worker reads its parent's memory, a spawned one maps what the parent laid out once.
"""

import multiprocessing
import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError, check_whole
from accord.engines.compiled import one_by_one
from accord.engines.contract import (
    Engine,
    Group,
    Job,
    Member,
    Outcome,
    Table,
    Work,
    evaluation_batches,
    shards,
    whole,
)
from accord.engines.measuring import tabulate
from accord.engines.shared_memory import Area, Line
from accord.engines.worker_process import Luggage, serve

_TRIES = 3  # so many workers may die of one task before it is given up
_BATCHES = 4  # evaluated at a time: with a small model, half a millisecond between tasks counts


class Processes(Engine):
    """Trains shards and evaluates batches in worker processes, which start when there is work for them and last until
    `close`.

    `start="fork"` takes any model, loss and metric. `"spawn"` needs ones that can be pickled; it is the default only
    where torch sees an accelerator, because there a forked process cannot compute gradients once its parent has.
    """

    name = "processes"

    def __init__(self, job: Job, workers: int | None = None, start: str | None = None) -> None:
        if job.device.type != "cpu":
            raise AccordError(
                f"the processes engine trains on the CPU, got device {job.device}: choose device cpu, or another engine"
            )
        if start not in (None, "fork", "spawn"):
            raise AccordError(f"start must be 'fork' or 'spawn', got {start!r}")
        check_whole("workers", 1 if workers is None else workers)
        self.job, self.workers = job, workers or _usable_cores()
        self.start = start or ("spawn" if torch.accelerator.is_available() else "fork")
        self._engine = one_by_one(job)  # what a forked worker takes over; says at once what does not fit
        self._luggage = Luggage(job) if self.start == "spawn" else None
        self._sent = Area()  # the round's model, for all workers
        self._crew: list[_Worker] = []
        self._threads = torch.get_num_threads()

    def close(self) -> None:
        """Ends all workers at once: nobody waits for what they are at."""
        while self._crew:
            self._crew.pop().end()
        torch.set_num_threads(self._threads)

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Trains every client of the cohort from `work` and adds up their reports, shard by shard."""
        # that one never leaves the server
        memory = {part: state for part, state in work.memory.items() if part != "server"}
        sent = self._sent.dump((work.round, work.vector, work.buffers, memory, work.lr))
        return whole(self.job.algorithm, self._spread([self._shard(work, sent, shard) for shard in shards(cohort)]))

    def _shard(self, work: Work, sent: bytes, shard: Sequence[Member]) -> "_Task":
        def client_state(number: int) -> Any:
            return shard[number].read_state()  # when the client's turn comes: a shard may be large

        known = self.job.fed.train  # the workers have these rows too: only others must travel
        members = [(m.client, None if m.rows is known.get(m.client) else m.rows, m.share) for m in shard]
        clients = f"client{'s' * (len(shard) > 1)} {', '.join(m.client for m in shard)}"
        answers: dict[str, Callable[..., Any]] = {"state": client_state, "stage": work.stage}
        return _Task(("train", sent, members), f"{clients} in round {work.round}", answers)

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        """Loss and metrics summed over each group's samples, in the batches that every engine takes."""
        sent = self._sent.dump((0, vector, buffers, {}, 0.0))
        batches = evaluation_batches(self.job, groups)
        parts = [batches[first : first + _BATCHES] for first in range(0, len(batches), _BATCHES)]
        answers = self._spread([_Task(("evaluate", sent, part), part[0].who) for part in parts])
        return tabulate(self.job, groups, [values for answer in answers for values in answer])

    # -------------------------------------------------------------------------------------- handing tasks out

    def _spread(self, tasks: Sequence["_Task"]) -> Iterator[Any]:
        """What the tasks come to, in their order, whoever finishes first."""
        waiting = deque(tasks)
        try:
            for task in tasks:
                while not task.answer:
                    self._hand_out(waiting)
                    busy: dict[Any, _Worker] = {worker.line.pipe: worker for worker in self._crew if worker.tasks}
                    for pipe in connection.wait(list(busy)):
                        self._listen(busy[pipe], waiting)
                self._hand_out(waiting)
                answer = task.answer.pop()
                if isinstance(answer, Exception):
                    # only when its turn has come: of several failures the first is told, as one process would
                    raise answer
                yield answer
        except BaseException:
            self.close()  # whoever is still at work would answer a question that nobody asks any more
            raise

    def _hand_out(self, waiting: deque["_Task"]) -> None:
        """Gives every free worker a task, hiring while there are fewer than there may be; and while there are plenty,
        one more, so that nobody waits between two. The last ones go to whoever is free first."""
        while waiting:
            if len(self._crew) < self.workers and all(worker.tasks for worker in self._crew):
                self._hire()
            worker = min(self._crew, key=lambda worker: len(worker.tasks))
            if len(worker.tasks) >= (2 if len(waiting) > len(self._crew) else 1):
                return
            worker.tasks.append(waiting.popleft())
            worker.line.send(*worker.tasks[-1].call)

    def _hire(self) -> None:
        # While workers have the cores, the parent's further threads would only take them away: they spin for a while
        # after each operation.
        torch.set_num_threads(1)
        context: Any = multiprocessing.get_context(self.start)
        here, there = context.Pipe()
        down, up = [Area(), Area()], [Area(), Area()]
        brings = self._luggage or self._engine
        process = context.Process(
            target=serve, args=(Line(there, [*up], [*down]), self._sent, brings, os.getpid()), daemon=True
        )
        # Ctrl-C reaches every process of a terminal. A worker never sees it: what it means is for the parent to say.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of every fork beside threads: see `serve`
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            self._crew.append(_Worker(process, Line(here, down, up)))
        except OSError as error:
            raise AccordError(f"no worker process can be started beside {len(self._crew)} others: {error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()

    def _listen(self, worker: "_Worker", waiting: deque["_Task"]) -> None:
        """Takes a worker's answer or answers its question. What a worker died of is tried again before all else."""
        task = worker.tasks[0]
        try:
            word, *content = worker.line.receive()
        except (EOFError, OSError):
            self._crew.remove(worker)
            worker.process.join(1)  # it may still be about to say how it ended
            worker.end()
            task.deaths += 1
            if task.deaths == _TRIES:
                raise AccordError(self._obituary(worker, task)) from None
            waiting.extendleft(reversed(worker.tasks))
            return
        if word == "ask":
            name, *arguments = content
            worker.line.send("reply", task.asks[name](*arguments))
        else:
            worker.tasks.popleft().answer = content

    def _obituary(self, worker: "_Worker", task: "_Task") -> str:
        code = worker.process.exitcode or 0
        how, why = f"exit code {code}", "what it printed may say why"
        if code < 0:
            how, why = signal.Signals(-code).name, "is there enough memory?"
        elif self.start == "spawn":
            why += ", and a script that spawns processes must start its work under `if __name__ == '__main__':`"
        return f"the worker process for {task.who} ended {_TRIES} times without an answer ({how}): {why}"


@dataclass(eq=False)
class _Task:
    """What a worker is to do, on whose data, and what it may ask meanwhile; and the answer, once there is one."""

    call: tuple[Any, ...]
    who: str
    asks: dict[str, Callable[..., Any]] = field(default_factory=dict)
    answer: list[Any] = field(default_factory=list)
    deaths: int = 0


@dataclass(eq=False)
class _Worker:
    """A worker as the parent sees it: the first of its tasks is the one it is at."""

    process: Any
    line: Line
    tasks: deque[_Task] = field(default_factory=deque)

    def end(self) -> None:
        self.process.kill()  # it holds nothing that could be lost
        self.process.join()
        self.line.pipe.close()


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
