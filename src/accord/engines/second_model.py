"""Clients that train a second model beside the common one, and keep it (`Local.beside`)."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from accord.engines.contract import Engine, Group, Member, Outcome, Table, Work


class SecondModel:
    """An engine, and one of the same kind for the second models: a client whose report counts trains one too, from the
    same batches, and is sent the common model for it."""

    ahead = None  # who trains a second model is known when the reports are

    def __init__(self, engine: Engine, second: Engine) -> None:
        self._engine, self._second = engine, second
        self.name, self.holds_clients = engine.name, engine.holds_clients

    @property
    def lanes_at_once(self) -> int | None:
        return self._engine.lanes_at_once

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        outcome = self._engine.train(work, cohort)
        accepted = {row.client for row in outcome.accepted}
        if accepted:
            sent = replace(work, memory={**work.memory, "local": {"w": work.vector}}, ahead=list)
            self._second.train(sent, [member for member in cohort if member.client in accepted])
        return outcome

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        return self._engine.evaluate(vector, buffers, groups)

    def close(self) -> None:
        self._engine.close()
        self._second.close()
