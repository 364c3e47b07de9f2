"""What runs in lockstep do together once their clients have trained: server steps as one, evaluation as lanes, one look
at the device for all. Each run's record is what it would be alone."""

import time
from collections.abc import Hashable, Sequence

import torch

from accord.engines.contract import SHARDS, Outcome, Table
from accord.engines.vectorised import Look, Vectorised
from accord.rules.company import whole_of
from accord.runs.rows import RoundRow
from accord.training.evaluator import summaries
from accord.training.loop import Asked, Learned, Loop
from accord.training.server_step import take_steps

Turn = tuple[Loop, Asked, Outcome]  # a run, the round it asked for, and what came of it


class Lockstep:
    """Takes in rounds of runs that share an engine."""

    def __init__(self, engine: Vectorised, defers: bool = False) -> None:
        self.engine, self.defers = engine, defers
        # Server steps need not wait for other runs' training. All they read is complete, since the host has waited for
        # the reports, and it waits for what they come to.
        cuda = engine.job.device.type == "cuda"
        self._aside = torch.cuda.Stream(engine.job.device, priority=-1) if cuda else None
        self._waiting: list[tuple[Loop, RoundRow, Table | None, float, float]] = []

    def absorb(self, turns: Sequence[Turn], seconds: float) -> None:
        """Takes in a round of every run, which took the engine so many seconds each. What is to be recorded of it waits
        for `record`, unless it may be a run's last."""
        turns = [turn for turn in turns if not self._dropped(*turn)]
        if not turns:
            return
        started = time.monotonic()
        if self._aside is not None and any(map(_added_late, turns)):
            self._aside.wait_stream(torch.cuda.current_stream(self.engine.job.device))
        with torch.cuda.stream(self._aside):
            learned = self._learn(turns)
        for (loop, _, _), (progress, _) in zip(turns, learned, strict=True):
            loop.progress = progress
        trained = time.monotonic()
        due = [loop for loop, asked, _ in turns if loop.plan.is_due(asked.work.round)]
        tables = self._tables(due)
        training = seconds + (trained - started) / len(turns)
        evaluating = (time.monotonic() - trained) / max(len(due), 1)
        for (loop, _, _), (_, row) in zip(turns, learned, strict=True):
            table = tables.get(loop)
            self._waiting.append((loop, row, table, training, 0.0 if table is None else evaluating))
        if not self.defers or any(loop.complete or loop.plan.patience for loop, _, _ in turns):
            self.record()

    def record(self) -> None:
        """Records what waits for it."""
        waiting, self._waiting = self._waiting, []
        looks = [loop.looked(row, table) for loop, row, table, _, _ in waiting if table is not None]
        evaluations = iter(summaries(looks))
        with torch.cuda.stream(self._aside):
            for loop, row, table, training, evaluating in waiting:
                evaluated = None if table is None else (table, next(evaluations))
                loop.record(row, evaluated, training, evaluating)
        if self._aside is not None:
            self._aside.synchronize()  # the best model so far was copied there, and may be read elsewhere

    def _dropped(self, loop: Loop, asked: Asked, outcome: Outcome) -> bool:
        """Whether the run was stopped, by a hook or its budget, after a round that was recorded while this one was
        trained already: then this one has not been."""
        if loop.stopped is None:
            return False
        loop.store.drop()
        return True

    def _tables(self, loops: Sequence[Loop]) -> dict[Loop, Table]:
        """Every run's evaluation; in one go where there is a common model to evaluate."""
        common = [loop for loop in loops if loop.evaluator.one_model]
        looks = [Look(loop.job, loop.progress.vector, loop.progress.buffers, loop.evaluator.groups) for loop in common]
        tables = dict(zip(common, self.engine.evaluate_many(looks) if looks else [], strict=True))
        return tables | {loop: loop.evaluated() for loop in loops if loop not in tables}

    def _learn(self, turns: Sequence[Turn]) -> list[Learned]:
        """Where every run stands after its round, and its row."""
        kinds: dict[Hashable, list[int]] = {}
        for at, turn in enumerate(turns):
            kinds.setdefault(self._kind(*turn) or ("alone", at), []).append(at)
        learned: dict[int, Learned] = {}
        for members in kinds.values():
            some = [turns[at] for at in members]
            steps = [some[0][0].learn(*some[0][1:])] if len(some) == 1 else learn_together(some)
            learned |= dict(zip(members, steps, strict=True))
        return [learned[at] for at in range(len(turns))]

    def _kind(self, loop: Loop, asked: Asked, outcome: Outcome) -> Hashable | None:
        """What runs share whose steps can be one: the algorithm, the round and what their records look like. None for a
        run that steps by itself: noise is drawn by seed, and a skipped round is none."""
        algorithm, record = loop.job.algorithm, outcome.record
        if record is None or algorithm.privacy or loop.skips(outcome) or not self.engine.steps_as_one(loop.job):
            return None
        if whole := whole_of(record):  # then they look alike, and need not be put together
            alike: Hashable = whole
        else:
            alike = tuple((name, field.how, field.value.shape) for name, field in record.fields().items())
        return algorithm, asked.work.round, len(loop.job.fed.train), loop.plan.sample, alike


def _added_late(turn: Turn) -> bool:
    """Whether a record was added up after the host had waited for the reports, so that it may not be complete: of many
    shards, of two exchanges, or without a client that was left out."""
    loop, asked, outcome = turn
    return len(outcome.accepted) < len(outcome.rows) or len(asked.cohort) > SHARDS or loop.job.algorithm.asks_twice


def learn_together(turns: Sequence[Turn]) -> list[Learned]:
    """The same round of runs of one algorithm, whose steps are one."""
    first, number = turns[0][0], turns[0][1].work.round
    records = [outcome.record for _, _, outcome in turns if outcome.record is not None]
    before = [loop.progress for loop, _, _ in turns]
    steps = take_steps(first.job, first.plan.sample, number, before, records)
    return [loop.settle(asked, outcome, step) for (loop, asked, outcome), step in zip(turns, steps, strict=True)]
