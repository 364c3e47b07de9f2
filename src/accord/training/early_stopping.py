"""Whether a run is flat: held-out data of participating clients has said nothing new for so many rounds.

Told by the evaluations on record and by nothing else, so a run that was killed and resumed, or that went along with
others, ends where a straight run ends.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from accord.runs.evaluation import Evaluation
from accord.runs.rows import RoundRow


@dataclass(frozen=True)
class Rise:
    """The last time that held-out data was better, by more than a margin, than the time before. Many small gains add
    up: each is measured against the last that counted."""

    margin: float
    round: int = 0
    score: float = -math.inf
    seen: int = 0  # the last round that was looked at

    def after(self, number: int, evaluation: Evaluation) -> "Rise":
        """With one more evaluation."""
        if "heldout" not in evaluation.splits:
            return self
        reached = evaluation.score("heldout")
        if reached > self.score + self.margin:
            return Rise(self.margin, number, reached, number)
        return Rise(self.margin, self.round, self.score, number)

    def after_all(self, rows: Iterable[RoundRow]) -> "Rise":
        """With the rounds on record, but for an evaluation that a run got only because it was to end there."""
        rise = self
        for row in rows:
            if row.evaluation is not None and not row.off_schedule:
                rise = rise.after(row.round, row.evaluation)
        return rise

    def is_over(self, rounds: int | None) -> bool:
        """Whether that was so many rounds ago. A round that nobody looked at says nothing."""
        return rounds is not None and self.seen - self.round >= rounds
