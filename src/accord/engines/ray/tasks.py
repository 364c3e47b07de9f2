"""What the driver hands out: a shard to train or batches to evaluate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accord.core.record import State
from accord.engines.contract import Batch, ClientRow, Job, Member, Work
from accord.engines.measuring import Values
from accord.engines.ray.payload import Parcel
from accord.engines.ray.worker import Answer, Piece

_OWN = 256 << 20  # bytes of clients' memories that travel at a time


class Task:
    """Something for one worker to do, in one call or several. `begin` forgets what was done of it."""

    def __init__(self, who: str) -> None:
        self.who, self.deaths = who, 0
        self.done, self.node = False, ""
        self.error: Exception | None = None

    def begin(self) -> None:
        self.done = False

    def ask(self, actor: Any) -> Any:
        """Makes the next call; its answer is for `take`."""
        raise NotImplementedError

    def take(self, answer: Any) -> None:
        """Takes an answer in; the last one makes the task done."""
        raise NotImplementedError


class Shard(Task):
    """Clients to train. Their memories stay with the driver and travel as their turn comes, for a shard may be large;
    its record stays on the node it was made on."""

    def __init__(self, job: Job, work: Work, sent: Any, shard: Sequence[Member]) -> None:
        super().__init__(
            f"client{'s' * (len(shard) > 1)} {', '.join(member.client for member in shard)} in round {work.round}"
        )
        self.job, self.work, self.sent = job, work, sent
        size = len(shard)
        if job.remembers:
            size = max(1, _OWN // (work.vector.nbytes + work.buffers.nbytes))
        self.pieces = [shard[first : first + size] for first in range(0, len(shard), size)]
        self.begin()

    def begin(self) -> None:
        super().begin()
        self.rows: list[ClientRow] = []
        self.kept: list[State] = []
        self.at, self.grows, self.record = 0, False, None

    def ask(self, actor: Any) -> Any:
        # the workers have these rows too: only others must travel
        members, known = self.pieces[self.at], self.job.fed.train
        states = [member.read_state() for member in members] if self.job.remembers else []
        who = [
            (member.client, None if member.rows is known.get(member.client) else member.rows, member.share)
            for member in members
        ]
        piece = Piece(who, states, first=self.at == 0, last=self.at == len(self.pieces) - 1)
        answer, self.record = actor.train.options(num_returns=2).remote(self.sent, Parcel.of(piece))
        return answer

    def take(self, answer: Answer) -> None:
        for client, state in answer.staged:
            self.work.stage(client, state)
        self.rows += answer.rows
        self.kept += answer.kept
        self.grows |= answer.grows
        self.at += 1
        self.done = self.at == len(self.pieces)


class Batches(Task):
    """Batches to evaluate."""

    def __init__(self, sent: Any, batches: Sequence[Batch]) -> None:
        super().__init__(batches[0].who)
        self.sent, self.batches = sent, batches
        self.values: list[Values] = []

    def ask(self, actor: Any) -> Any:
        return actor.evaluate.remote(self.sent, Parcel.of(self.batches))

    def take(self, answer: list[Values]) -> None:
        self.values, self.done = answer, True


@dataclass(eq=False)
class Hand:
    """A worker as the driver sees it: `call` is what it was last asked, if it has not answered yet. It is ready once it
    said hello."""

    actor: Any
    node: str
    call: Any
    ready: bool = False
    task: Task | None = None

    def give(self, task: Task) -> None:
        self.task, self.call = task, task.ask(self.actor)

    def take(self, answer: Any) -> None:
        """Takes an answer in and goes on with the task, or is free."""
        assert self.task is not None
        if isinstance(answer, Exception):
            self.task.error, self.task.done = answer, True
        else:
            self.task.take(answer)
        if self.task.done:
            self.task.node = self.node
            self.task = self.call = None
        else:
            self.call = self.task.ask(self.actor)
