"""What is measured, and on what: a metric's unit, which way is better and how it is printed; the splits, and the gaps
between them. Tables, figures and the page have it from here."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

TITLES = {"train": "train", "heldout": "held-out", "unseen": "unseen", "test": "test"}  # of the splits
_SHARES = frozenset({"accuracy", "balanced_accuracy"})  # metrics that are shares of samples, told in percent
_SCORES = frozenset({"auc", "average_precision", "calibration_error", "f1", "r2"})  # about 1 in size: four decimals


@dataclass(frozen=True)
class Metric:
    """What is measured, per sample or of a whole group, by its name."""

    name: str
    smaller_is_better: bool = False

    @property
    def percent(self) -> bool:
        return self.name in _SHARES

    @cached_property
    def decimals(self) -> int | None:
        """How many decimals a person sees; None: four digits."""
        return 2 if self.percent else 4 if self.name in _SCORES else None

    @cached_property
    def scale(self) -> float:
        """What a value is multiplied by before a person sees it."""
        return 100.0 if self.percent else 1.0

    @property
    def title(self) -> str:
        """`accuracy (%)`."""
        return f"{self.name} (%)" if self.percent else self.name

    def figure(self, value: float | None) -> str:
        """A value for people: shares in percent, scores with four decimals, anything else with four digits; a dash for
        what is not a number."""
        if value is None or math.isnan(value):
            return "-"
        return f"{value:.4g}" if self.decimals is None else f"{self.scale * value:.{self.decimals}f}"

    def figures(self, rows: Iterable[Iterable[float | None]]) -> list[list[str]]:
        """The values of a table."""
        return [[self.figure(value) for value in row] for row in rows]

    def score(self, value: float | None) -> float:
        """How good a value is; larger is better, and a model that diverged is the worst."""
        if value is None or not math.isfinite(value):
            return -math.inf
        return -value if self.smaller_is_better else value

    def best(self, values: Sequence[float | None]) -> int:
        """Where the best of the values is, the first of equals."""
        return max(range(len(values)), key=lambda place: self.score(values[place]))

    def to_json(self) -> dict[str, Any]:
        """What a page needs to print its values as `figure` does."""
        return {"title": self.title, "scale": self.scale, "percent": self.percent, "decimals": self.decimals}


@dataclass(frozen=True)
class Gap:
    """How much better a model is on one split than on another."""

    title: str
    first: str
    second: str
    difference: str = field(init=False)  # `train - held-out`

    def __post_init__(self) -> None:
        object.__setattr__(self, "difference", f"{TITLES[self.first]} - {TITLES[self.second]}")

    def of(self, values: Mapping[str, float]) -> float | None:
        """The gap between values by split; None where one is missing."""
        there = self.first in values and self.second in values
        return values[self.first] - values[self.second] if there else None

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "difference": self.difference, "splits": [self.first, self.second]}


GAPS = {
    "out_of_sample": Gap("out-of-sample gap", "train", "heldout"),
    "participation": Gap("participation gap", "heldout", "unseen"),
}
