"""Rounds of one run that begin before the host knows what came of the one before: a device that works by itself need
not wait while the host checks reports and writes rows.

What a round builds on is then the step that follows if every report is accepted, which is almost always so. If it is
not, the round that was begun is dropped, and begins once more from where the run stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from accord.engines.contract import Ahead, Begun, Job, Member, Outcome, Work
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
    progress: Progress

    def ask(self, now: Progress) -> Asked: ...
    def next_is_free(self, number: int) -> bool: ...


@dataclass(frozen=True)
class _Flight:
    """A round that was begun, and the step that follows if nobody is left out."""

    begun: Begun
    step: Step | None


class RoundsAhead:
    """Trains the rounds that a run asks for on an engine whose device works by itself."""

    def __init__(self, run: Asks, engine: Ahead) -> None:
        self._run, self._engine = run, engine
        self._next: _Flight | None = None
        self._last: Step | None = None  # of the round before

    def train(self, asked: Asked) -> tuple[Outcome, Step | None]:
        """What came of a round, and its step, if that was begun. The next round begins before the host waits for
        them."""
        # where clients fail round after round, or the model diverges, every other round would be trained twice
        held = self._last is None or self._last.after.vector is asked.work.vector
        flight, self._next = self._next, None
        if flight is None or not held:
            flight = self._begin(asked, self._run.progress)
        if flight.step is not None and held and self._run.next_is_free(asked.work.round):
            after = flight.step.after
            self._next = self._begin(self._run.ask(after), after)
        self._last = flight.step
        return flight.begun.outcome(), flight.step

    def _begin(self, asked: Asked, before: Progress) -> _Flight:
        run, begun = self._run, self._engine.begin(asked.work, asked.cohort)
        if begun.record is None:
            return _Flight(begun, None)
        return _Flight(begun, begin_step(run.job, run.plan.sample, asked.work.round, before, begun.record))
