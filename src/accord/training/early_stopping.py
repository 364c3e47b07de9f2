"""Early stopping: a run ends when held-out data of participating clients has not improved for `patience` rounds.

It depends on the evaluations on record and on nothing else, so a run that was killed and resumed, or that was trained
in lockstep with others, ends where a straight run ends.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from accord.runs.evaluation import Evaluation
from accord.runs.rows import RoundRow


@dataclass(frozen=True)
class EarlyStopping:
    """The last round in which held-out data improved, by more than a margin, on the one before. Many small gains add
    up: each is measured against the last that counted."""

    margin: float
    round: int = 0
    score: float = -math.inf
    seen: int = 0  # the last round that was looked at

    def after(self, number: int, evaluation: Evaluation) -> "EarlyStopping":
        """With one more evaluation."""
        if "heldout" not in evaluation.splits:
            return self
        reached = evaluation.score("heldout")
        if reached > self.score + self.margin:
            return EarlyStopping(self.margin, number, reached, number)
        return EarlyStopping(self.margin, self.round, self.score, number)

    def after_all(self, rows: Iterable[RoundRow]) -> "EarlyStopping":
        """With the rounds on record, but for an evaluation that a run got only because it was to end there."""
        rise = self
        for row in rows:
            if row.evaluation is not None and not row.off_schedule:
                rise = rise.after(row.round, row.evaluation)
        return rise

    def is_over(self, patience: int | None) -> bool:
        """Whether that was so many rounds ago. A round that was not evaluated does not count."""
        return patience is not None and self.seen - self.round >= patience
