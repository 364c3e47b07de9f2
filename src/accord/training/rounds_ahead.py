"""Rounds of one run that begin before the host knows what came of the one before: a device that works by itself need
not wait while the host checks reports and writes rows.

What a round builds on is then the step that follows if every report is accepted, which is almost always so. If it is
not, the round that was begun is dropped, and begins once more from where the run stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from accord.engines.contract import Begun, Engine, Job, Member, Outcome, Work
from accord.training.checkpoint import Progress
from accord.training.cohort import Invited
from accord.training.plan import Plan
from accord.training.server_step import Step, begin_step


@dataclass(frozen=True)
class Asked:
    """A round as its engine gets it, and who was invited to it."""

    work: Work
    cohort: Sequence[Member]
    invited: Sequence[Invited]


class Asks(Protocol):
    """A run that asks for rounds: `accord.training.loop.Loop`."""

    job: Job
    plan: Plan
    engine: Engine
    progress: Progress

    def ask(self, now: Progress) -> Asked: ...
    def next_is_free(self, number: int) -> bool: ...


@dataclass(frozen=True)
class _Flight:
    """A round that was begun, and the step that follows if nobody is left out."""

    asked: Asked
    begun: Begun
    step: Step | None


class RoundsAhead:
    """Trains the rounds that a run asks for."""

    def __init__(self, run: Asks) -> None:
        self._run = run
        self._next: _Flight | None = None
        self._sound = True  # whether all reports of the last round were accepted

    def train(self, asked: Asked) -> tuple[Outcome, Step | None]:
        """What came of a round, and its step, if that was begun. Where the engine can, the next round begins before the
        host waits for them."""
        if self._run.engine.ahead is None:
            return self._run.engine.train(asked.work, asked.cohort), None
        flight, self._next = self._next, None
        if flight is None or not _same(flight.asked, asked):
            flight = self._begin(asked, self._run.progress)
        # where clients fail round after round, every other round would be trained twice
        if flight.step is not None and self._sound and self._run.next_is_free(asked.work.round):
            after = flight.step.after
            self._next = self._begin(self._run.ask(after), after)
        outcome = flight.begun.outcome()
        self._sound = flight.step is None or outcome.record is flight.step.record
        return outcome, flight.step

    def _begin(self, asked: Asked, before: Progress) -> _Flight:
        run, ahead = self._run, self._run.engine.ahead
        assert ahead is not None
        begun = ahead.begin(asked.work, asked.cohort)
        if begun.record is None:
            return _Flight(asked, begun, None)
        step = begin_step(run.job, run.plan.sample, asked.work.round, before, begun.record)
        return _Flight(asked, begun, step)


def _same(one: Asked, other: Asked) -> bool:
    """Whether both are one round from one model."""
    return one.work.round == other.work.round and one.work.vector is other.work.vector
