"""How long a run goes on, and the settings that make a run this run."""

import math
from dataclasses import dataclass
from typing import Any

from accord.core.errors import AccordError, check_whole
from accord.data.federated import Federation
from accord.engines.contract import Job
from accord.runs.fingerprint import describe
from accord.training.cohort import Conditions

_RELIABLE = Conditions()


@dataclass(frozen=True)
class Plan:
    """How long a run goes on, who takes part, and how often it is looked at."""

    rounds: int = 100
    sample: int | None = None  # all of them
    evaluate_every: int = 10
    checkpoint_every: int | None = None  # by time
    min_clients: int = 1
    conditions: Conditions = _RELIABLE
    budget: float | None = None
    seed: int = 0
    until_flat: int | None = None  # all rounds, flat or not
    flat_margin: float = 0.001

    def __post_init__(self) -> None:
        for name in ("rounds", "sample", "evaluate_every", "checkpoint_every", "min_clients", "until_flat"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise AccordError(f"seed must be a whole number, got {self.seed!r}")
        if self.budget is not None and not self.budget > 0:
            raise AccordError(f"budget must be a number of seconds above 0, got {self.budget}")
        if not isinstance(self.flat_margin, int | float) or not 0 <= self.flat_margin < math.inf:
            raise AccordError(f"flat_margin must be a number of at least 0, got {self.flat_margin!r}")

    def check(self, fed: Federation) -> None:
        """Refuses a plan that the federation cannot carry out."""
        if not fed.train:
            raise AccordError("the federation has no participating clients")
        if self.sample is not None and self.sample > len(fed.train):
            raise AccordError(f"sample must be at most the {len(fed.train)} participating clients, got {self.sample}")
        cohort = self.sample or len(fed.train)
        if self.min_clients > cohort:
            raise AccordError(f"min_clients must be at most the {cohort} clients of a round, got {self.min_clients}")

    def check_flat(self, heldout: bool) -> None:
        """Refuses to wait for a run to be flat where there is no held-out data to tell by."""
        if self.until_flat is not None and not heldout:
            raise AccordError(
                "until_flat needs held-out data of participating clients to tell when a run is flat, and there is none"
            )

    def check_privacy(self) -> None:
        """Refuses rounds whose cohort is not C of N clients: that is what the accounting of differential privacy is
        for."""
        for name, value, usual in [("available", self.conditions.available, 1.0), ("lost", self.conditions.lost, 0.0)]:
            if value != usual:
                raise AccordError(
                    f"{name} must be {usual:g} with privacy, got {value}: epsilon is known for rounds of a fixed size"
                )
        if self.min_clients != 1:
            raise AccordError(
                f"min_clients must be 1 with privacy, got {self.min_clients}: a skipped round tells how many reports"
                " were bad"
            )

    def identity(self) -> dict[str, Any]:
        """What of it changes results: not how far to go, how often to save, or the seed, which a folder's name spells
        out."""
        aside = {"rounds", "checkpoint_every", "budget", "seed", *(["flat_margin"] if self.until_flat is None else [])}
        described: dict[str, Any] = describe(self)
        for name in aside:
            described.pop(name, None)
        return described


def identity(job: Job, plan: Plan) -> dict[str, Any]:
    """The settings of a run made in Python: model and data by their content, functions by their code, everything else
    by value."""
    shift, augment = job.fed.shift, job.fed.augment
    return {
        "model": describe(job.module),
        "data": job.fed.fingerprint(),
        "prepare": describe(job.fed.prepare),
        **({"shift": [describe(shift.shift), describe(shift.tables)]} if shift else {}),
        **({"augment": describe(augment)} if augment else {}),
        "algorithm": describe(job.algorithm),
        "training": describe(job.training),
        "plan": plan.identity(),
        "loss": describe(job.loss),
        "metrics": [[name, describe(metric)] for name, metric in job.metrics.items()],  # in order: the first one judges
        **({"attack": describe(job.attack.attack)} if job.attack else {}),
        **({"precision": "bf16"} if "bf16" in job.speed else {}),
    }
