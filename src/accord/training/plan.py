"""What makes a run this run: its plan, and the name its folder gets from the settings that change the result."""

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from accord.core.errors import AccordError, check_whole
from accord.data.federated import Federation
from accord.engines.contract import Job
from accord.runs.fingerprint import describe, fingerprint
from accord.training.cohort import Conditions


@dataclass(frozen=True)
class Plan:
    """How long a run goes on, who takes part, and how often it is looked at."""

    rounds: int = 100
    sample: int | None = None  # all of them
    evaluate_every: int = 10
    checkpoint_every: int | None = None  # by time
    min_clients: int = 1
    conditions: Conditions = field(default_factory=Conditions)
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
            raise AccordError("until_flat needs held-out data of participating clients to tell when a run is flat, and there is none")

    def that_changes_results(self) -> "Plan":
        """The plan with everything at its default that only says how far to go and how often to save, and without the seed, which a
        folder's name spells out."""
        margin = Plan.flat_margin if self.until_flat is None else self.flat_margin
        return replace(
            self,
            rounds=Plan.rounds,
            checkpoint_every=Plan.checkpoint_every,
            budget=Plan.budget,
            seed=Plan.seed,
            flat_margin=margin,
        )


def identity(job: Job, plan: Plan) -> dict[str, Any]:
    """The settings of a run made in Python: model and data by their content, functions by their code, everything else by value."""
    shift, augment = job.fed.shift, job.fed.augment
    return {
        "model": describe(job.module),
        "data": job.fed.fingerprint(),
        "prepare": describe(job.fed.prepare),
        **({"shift": [describe(shift.shift), describe(shift.tables)]} if shift else {}),
        **({"augment": describe(augment)} if augment else {}),
        "algorithm": describe(job.algorithm),
        "training": describe(job.training),
        "plan": describe(plan.that_changes_results()),
        "loss": describe(job.loss),
        "metrics": [[name, describe(metric)] for name, metric in job.metrics.items()],  # in order: the first one judges
        **({"attack": describe(job.attack.attack)} if job.attack else {}),
        **({"precision": "bf16"} if "bf16" in job.speed else {}),
    }


def run_name(job: Job, settings: dict[str, Any]) -> str:
    """`mnist-fedadam-gma-1f0c2d3e4b-s0`: readable parts first, then what tells settings apart."""
    return folder_name(
        [job.fed.name, job.algorithm.name, type(job.algorithm.mask).__name__ if job.algorithm.mask else ""], settings, job.seed
    )


def folder_name(words: list[str], settings: dict[str, Any], seed: int) -> str:
    """Words that people read, a fingerprint of the settings, and the seed."""
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", word) for word in words if word)
    return f"{readable}-{fingerprint(settings)}-s{seed}"
