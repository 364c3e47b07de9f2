"""Lanes: a client of a run each, with its batches, labels and draws; and what their rounds came to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.record import State
from accord.engines.contract import Job, Member, Work


@dataclass(slots=True)  # not frozen: there are thousands in a round, and such take three times as long to make
class Lane:
    """One client of one run."""

    job: Job
    work: Work
    member: Member
    client_state: State
    rows: np.ndarray  # of its batches, one after another
    sizes: list[int]  # of its batches

    @property
    def rates(self) -> tuple[float, ...]:
        """What all lanes of its run share: `RATES` of `sending`, then its optimiser's."""
        training = self.job.training
        mu, lr = self.job.algorithm.local.mu, self.work.lr
        return training.rule.penalty, training.clip or math.inf, mu, *training.rule.constants(lr).values()

    @property
    def counts(self) -> tuple[float, ...]:
        """What is its own: `COUNTS` of `lanes`."""
        return self.member.samples, len(self.sizes), len(self.rows)


@dataclass(frozen=True)
class Trained:
    """What clients' rounds came to, still on the device."""

    delta: Tensor  # [L, P]
    moved: Tensor  # [L, B], change of the buffers
    figures: Tensor  # [L, 3], see `replay.ended`
    weight: Tensor  # [L, 1], training samples
    steps: Tensor  # [L, 1]
    extra: State  # name -> [L, P]
    personal: State  # of what stays with clients: where it ended, `[L, ...]`

    def of(self, part: slice) -> "Trained":
        if part == slice(0, len(self.delta)):
            return self
        columns: dict[str, Any] = {name: getattr(self, name)[part] for name in _COLUMNS}
        states: dict[str, Any] = {name: {key: t[part] for key, t in getattr(self, name).items()} for name in _STATES}
        return Trained(**columns, **states)

    @staticmethod
    def joined(parts: "Sequence[Trained]") -> "Trained":
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in _COLUMNS}
        states: dict[str, Any] = {
            name: {key: torch.cat([getattr(part, name)[key] for part in parts]) for key in getattr(parts[0], name)}
            for name in _STATES
        }
        return Trained(**columns, **states)


_COLUMNS = ("delta", "moved", "figures", "weight", "steps")
_STATES = ("extra", "personal")
