"""Workers on every device of the cluster, and tasks handed out to them, whoever comes, finishes first or is lost."""

import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from accord.core.errors import AccordError
from accord.engines.contract import Job
from accord.engines.ray.payload import packed
from accord.engines.ray.tasks import Hand, Task
from accord.engines.ray.worker import Worker

TRIES = 3  # so many workers may end over one task, and so many may fail to start, before it is given up
_GATHER = 30.0  # seconds that the first round waits for workers who are still on their way
_PATIENCE = 120.0  # seconds without a single worker


class Crew:
    """The workers of one engine, a `kind` of device each: "CPU" or "GPU"."""

    def __init__(self, job: Job, kind: str, local: str) -> None:
        self.job, self.kind, self.local = job, kind, local
        self.hands: list[Hand] = []
        self._luggage: Any = None
        self._failures: list[str] = []  # why workers could not start, since the last one did

    def close(self) -> None:
        """Ends all workers at once: nobody waits for what they are at."""
        while self.hands:
            self.dismiss(self.hands[-1])
        self._luggage = None

    @property
    def ready(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.ready]

    def someone(self, node: str) -> Hand | None:
        """A worker on that node or, if there is none any more, on another."""
        return next((hand for hand in self.ready if hand.node == node), next(iter(self.ready), None))

    def nodes(self) -> dict[str, int]:
        """The nodes that are there now, and how many devices each has."""
        return {node["NodeID"]: int(node["Resources"].get(self.kind, 0)) for node in ray.nodes() if node["Alive"]}

    # -------------------------------------------------------------------------------------- handing tasks out

    def carry_out(self, tasks: Sequence[Task]) -> None:
        """Has all tasks done. A node takes tasks that follow each other, while it has some, so that its shards are one
        sum; a worker with nothing left helps another node, from its end. Of several failures the first is told, as one
        process would."""
        if not tasks:
            return
        self.staff(len(tasks))
        self._gather()
        runs, again = self._dealt(tasks), deque[Task]()
        since = time.monotonic()  # when a worker was last there
        while not all(task.done for task in tasks):
            for hand in self.ready:
                if hand.task is None and (task := _next(hand.node, runs, again)):
                    hand.give(task)
            for hand in self._spoke():
                if lost := self._listen(hand):
                    again.append(lost)
                    self.staff(len(tasks))
            if self.ready:
                since = time.monotonic()
            elif time.monotonic() - since > _PATIENCE or len(self._failures) >= TRIES:
                raise AccordError(self._nobody())
            else:
                self.staff(len(tasks))
        for task in tasks:
            if task.error is not None:
                raise task.error

    def _dealt(self, tasks: Sequence[Task]) -> dict[str, deque[Task]]:
        """To every node a run of tasks, as long as it has workers."""
        nodes = sorted(hand.node for hand in self.ready) or [""]
        bounds = np.linspace(0, len(tasks), len(nodes) + 1).round().astype(int)
        runs: dict[str, deque[Task]] = {node: deque() for node in nodes}
        for number, node in enumerate(nodes):
            runs[node].extend(tasks[bounds[number] : bounds[number + 1]])
        return runs

    def _spoke(self) -> list[Hand]:
        """Workers who have something to say. Waits for one, but not for ever: a cluster may change meanwhile."""
        asked = {hand.call: hand for hand in self.hands if hand.call is not None}
        if not asked:
            time.sleep(0.2)
            return []
        said, _ = ray.wait(list(asked), timeout=1.0)
        return [asked[call] for call in said]

    def _listen(self, hand: Hand) -> Task | None:
        """Takes a worker's answer. If it died instead, its task comes back."""
        try:
            answer = ray.get(hand.call).open(copy=True)
        except RayError as error:
            self.dismiss(hand)
            return self._bury(hand, reason(error))
        if hand.task is not None:
            hand.take(answer)
        elif isinstance(answer, Exception):
            raise answer
        elif answer != torch.__version__:
            raise AccordError(
                f"node {hand.node[:8]} computes with torch {answer}, this one with {torch.__version__}: install the"
                " same"
            )
        else:
            hand.ready, hand.call, self._failures = True, None, []
        return None

    def _bury(self, hand: Hand, why: str) -> Task | None:
        task = hand.task
        if task is None:
            self._failures.append(f"node {hand.node[:8]}: {why}")
            return None
        task.deaths += 1
        if task.deaths == TRIES:
            raise AccordError(f"the worker for {task.who} ended {TRIES} times without an answer: {why}")
        task.begin()
        return task

    # --------------------------------------------------------------------------------------- coming and going

    def staff(self, wanted: int) -> None:
        """Hires on the nodes that are there now, until there are as many workers as tasks, or as devices."""
        nodes = self.nodes()
        while len(self.hands) < wanted and nodes:
            room = {node: devices - sum(hand.node == node for hand in self.hands) for node, devices in nodes.items()}
            node = max(room, key=lambda node: room[node])
            if room[node] <= 0:
                return
            self._hire(node)

    def _hire(self, node: str) -> None:
        if self._luggage is None:
            # once: a node fetches it into its own shared memory with its first worker
            self._luggage = ray.put(packed(self.job))
        needs = {"num_cpus": 1} if self.kind == "CPU" else {"num_cpus": 0, "num_gpus": 1}
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = (
            ray.remote(Worker)
            .options(scheduling_strategy=there, max_restarts=0, **needs)
            .remote(self._luggage, self.local, self.kind, [place for place in sys.path if place])
        )
        self.hands.append(Hand(actor, node, actor.hello.remote()))

    def _gather(self) -> None:
        """Before the first round, waits for all who were hired: who comes late could take only what others leave."""
        until = time.monotonic() + _GATHER
        if not self.ready:
            while not all(hand.ready for hand in self.hands) and time.monotonic() < until:
                for hand in self._spoke():
                    self._listen(hand)

    def dismiss(self, hand: Hand) -> None:
        self.hands.remove(hand)
        ray.kill(hand.actor)  # it holds nothing that could be lost

    def _nobody(self) -> str:
        start = f"no worker could be started on a {self.kind} of the Ray cluster"
        if self._failures:
            return f"{start}: {self._failures[-1]}"
        return f"{start}: its {len(self.nodes())} nodes have {sum(self.nodes().values())}, and others may be using them"


def _next(node: str, runs: dict[str, deque[Task]], again: deque[Task]) -> Task | None:
    if again:
        return again.popleft()
    if runs.get(node):
        return runs[node].popleft()
    longest = max(runs.values(), key=len)
    return longest.pop() if longest else None


def reason(error: RayError) -> str:
    """The line that says what happened, of the many that Ray gives."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line]
    return (named or lines or [type(error).__name__])[-1 if named else 0]
