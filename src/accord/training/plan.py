"""How long a run goes on, and the settings that make a run this run."""

import math
from dataclasses import dataclass
from typing import Any

from accord.core.errors import AccordError, check_whole, whole_seed
from accord.data.federated import Federation
from accord.engines.contract import Job
from accord.engines.speed import precision_of
from accord.runs.fingerprint import describe
from accord.training.cohort import Conditions
from accord.training.evaluation_schedule import asked_for, check_evaluate_at

_RELIABLE = Conditions()
_FIRST_NAMES = {"patience": "until_flat", "min_delta": "flat_margin"}


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
    patience: int | None = None  # rounds without improvement after which a run ends; None: it does all its rounds
    min_delta: float = 0.001  # what counts as an improvement
    # instead of every so many rounds: "log", "last10", "window(a,b)", or several of them
    evaluate_at: tuple[str, ...] = ()
    evaluate_samples: int | None = None  # of training data, at most; None: all
    adapt_steps: int | None = None  # that unseen clients take before they are evaluated once more; None: they do not

    def __post_init__(self) -> None:
        counts = ("rounds", "sample", "evaluate_every", "checkpoint_every", "min_clients", "patience")
        for name in (*counts, "evaluate_samples", "adapt_steps"):
            if getattr(self, name) is not None or name in ("rounds", "evaluate_every", "min_clients"):
                check_whole(name, getattr(self, name))
        object.__setattr__(self, "seed", whole_seed(self.seed))
        check_evaluate_at(self.evaluate_at)
        if self.budget is not None and not self.budget > 0:
            raise AccordError(f"budget must be a number of seconds above 0, got {self.budget}")
        if not isinstance(self.min_delta, int | float) or not 0 <= self.min_delta < math.inf:
            raise AccordError(f"min_delta must be a number of at least 0, got {self.min_delta!r}")

    def evaluates(self, number: int) -> bool:
        """Whether a round is evaluated, however many there will be."""
        return asked_for(self.evaluate_at, number) if self.evaluate_at else number % self.evaluate_every == 0

    @property
    def last(self) -> int:
        """How many rounds at a run's end are evaluated, whatever else is."""
        return 10 if "last10" in self.evaluate_at else 1

    def is_due(self, number: int) -> bool:
        """Whether a round is evaluated: by the schedule, or as one of the last."""
        return self.evaluates(number) or number > self.rounds - self.last

    @property
    def evaluations(self) -> list[int]:
        """The rounds that are evaluated, of a run that does all its rounds."""
        return [n for n in range(1, self.rounds + 1) if self.is_due(n)]

    def check(self, fed: Federation) -> None:
        """Refuses a plan that the federation cannot carry out."""
        if not fed.train:
            raise AccordError("the federation has no participating clients")
        if self.sample is not None and self.sample > len(fed.train):
            raise AccordError(f"sample must be at most the {len(fed.train)} participating clients, got {self.sample}")
        cohort = self.sample or len(fed.train)
        if self.min_clients > cohort:
            raise AccordError(f"min_clients must be at most the {cohort} clients of a round, got {self.min_clients}")

    def check_patience(self, heldout: bool) -> None:
        """Refuses early stopping where there is nothing to go by."""
        if self.patience is not None and self.evaluate_at == ("last10",):
            raise AccordError("patience needs evaluations on the way: add log to evaluate_at, or leave evaluate_at out")
        if self.patience is not None and not heldout:
            raise AccordError(
                "patience needs held-out data of participating clients to see whether a run improves, and there is none"
            )

    def check_privacy(self) -> None:
        """Refuses rounds whose cohort is not C of N clients: that is what the accounting of differential privacy is
        for."""
        for name, value, usual in [("available", self.conditions.available, 1.0), ("lost", self.conditions.lost, 0.0)]:
            if value != usual:
                raise AccordError(
                    f"{name} must be {usual:g} with privacy, got {value}: epsilon is known for rounds of a fixed size"
                )
        if self.patience is not None:
            raise AccordError(
                "patience must be left out with privacy: when a run ends would tell of clients' held-out data, which"
                " epsilon does not count"
            )
        if self.min_clients != 1:
            raise AccordError(
                f"min_clients must be 1 with privacy, got {self.min_clients}: a skipped round reveals how many reports"
                " were bad"
            )

    def reports_needed(self, job: Job) -> int:
        """Sound reports without which a round changes nothing. With privacy there is no such number: a round of none
        gets its noise as any other does, so that nobody sees that it had none."""
        if job.algorithm.privacy and job.algorithm.privacy.hides_empty_rounds:
            return 0
        return 1 if job.fed.pooled else max(self.min_clients, job.algorithm.average.least)

    def identity(self) -> dict[str, Any]:
        """What of it changes results: not how far to go, how often to save, or the seed, which a folder's name spells
        out."""
        described: dict[str, Any] = describe(self)
        aside = ["rounds", "checkpoint_every", "budget", "seed", *(["min_delta"] if self.patience is None else [])]
        aside += ["evaluate_every"] if self.evaluate_at else []
        for name in aside:
            described.pop(name, None)
        # a folder's name must not change when a setting does: these keep what 0.1 called them
        for now, first in _FIRST_NAMES.items():
            if now in described:
                described[first] = described.pop(now)
        return described


def identity(job: Job, plan: Plan) -> dict[str, Any]:
    """The settings of a run made in Python: model and data by their content, functions by their code, everything else
    by value."""
    fed, shift = job.fed, job.fed.shift
    made = {
        "model": job.module,
        "data": fed.fingerprint(),
        "prepare": fed.prepare,
        **({"fields": fed.fields} if fed.fields else {}),
        **({"shift": [shift.shift, shift.tables]} if shift else {}),
        **({"augment": fed.augment} if fed.augment else {}),
        "algorithm": job.algorithm,
        "training": job.training,
        "plan": plan.identity(),
        "loss": job.loss,
        "metrics": list(job.metrics.items()),  # in order: the first one judges
        **({"attack": job.attack.attack} if job.attack else {}),
    }
    return {**describe(made), **precision_of(job.speed)}
