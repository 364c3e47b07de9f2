"""A verdict on a claim, and the rule by which an interval decides.

    ahead       confirmed: the interval lies above 0. Refuted: it lies below 0, or within the margin around 0.
    not behind  confirmed: it lies above minus the margin. Refuted: it lies below minus the margin.
    behind      as ahead, with the sign turned; not ahead: as not behind, with the sign turned.
    equal       confirmed: it lies within the margin around 0. Refuted: it lies beyond the margin.
    grows       as ahead, for the change of the difference from the axis's smallest value to its largest; falls: with
                the sign turned.

Else the claim is open.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from accord.core.metrics import Metric
from accord.studies.claim import Claim
from accord.studies.differences import Difference
from accord.studies.statistics import Array, Estimate, estimate
from accord.studies.text import ACCURACY, interval_text

MARGIN = 0.002  # 0.2 points of accuracy: a smaller difference is none
_ROUNDING = 1e-12  # where all seeds agree, an interval is as wide as this
NO_CONTROL = "no control"  # of a rule beside which none was run: what is its own, and what the shorter step's?
FEW_CONTROLS = "too few runs of its control"
SEEDS = 3  # fewer say nothing about how much seeds vary
NOT_RUN = "not run yet"  # of a claim whose cells nobody has run
NOT_PAIRED = "no cell of it has a seed that both rules were run with"


@dataclass(frozen=True)
class Verdict:
    """`kind` is confirmed, refuted, open, `NOT_RUN`, consistent (theory that a simulation does not contradict), or
    depends: then `why` has a verdict for each value of an axis."""

    kind: str
    why: str
    figure: str = ""  # the one number that tells most: the difference with its interval
    printed: str = ""  # what the paper has there
    cells: str = ""  # how many count
    small: bool = False  # confirmed, by a difference that is clear of 0 and under the margin
    over_control: str = ""  # the same difference from its control
    by_value: Mapping[str, str] = field(default_factory=dict)  # of one that depends: the kinds, by the axis's values


def called(expects: str, estimate: Estimate, margin: float = MARGIN) -> str:
    """The rule of this page's head."""
    if expects == "not behind":
        if estimate.low > -margin:
            return "confirmed"
        return "refuted" if estimate.high < -margin else "open"
    if expects in ("behind", "not ahead"):
        return called("ahead" if expects == "behind" else "not behind", _turned(estimate), margin)
    if expects == "equal":
        if estimate.within(margin):
            return "confirmed"
        return "refuted" if estimate.low > margin or estimate.high < -margin else "open"
    if estimate.low > _ROUNDING:
        return "confirmed"
    return "refuted" if estimate.high < -_ROUNDING or estimate.within(margin) else "open"


def size_remark(kind: str, difference: Estimate) -> str:
    """Of a difference that decides though it is hardly any."""
    if kind == "open" or not difference.within(MARGIN):
        return ""
    return ", within the margin" if kind == "refuted" else ", a difference under the margin"


def _turned(estimate: Estimate) -> Estimate:
    return replace(estimate, value=-estimate.value, low=-estimate.high, high=-estimate.low)


def over_control(gap: Estimate, control: str, metric: Metric = ACCURACY) -> str:
    """How far a rule is ahead of its control, in words."""
    text = interval_text(gap, metric)
    if gap.within(MARGIN):
        return f"{control} does the same: {text}"
    if gap.low > 0:
        return f"ahead of {control} by {text}"
    if gap.high < 0:
        return f"behind {control} by {text}"
    return f"no difference shown from {control}: {text}"


def control_name(claim: Claim) -> str:
    return f"`{claim.control.replace('{rival}', '...')}`" if claim.control else "a shorter step"


def in_cells(count: int, cells: int) -> str:
    """Of an estimate from fewer cells than the claim's own: how many."""
    return f" (in {count} of {cells} cells)" * (count < cells)


def lacking_control(controls: Sequence[Difference | None]) -> str:
    """Of cells whose controls cannot be judged: why not."""
    return FEW_CONTROLS if any(control is not None for control in controls) else NO_CONTROL


def pooled(differences: Sequence[Difference | None], level: float = 0.95) -> Estimate | None:
    """The estimate over the cells that have seeds enough to count; None where too few of them do."""
    enough = [difference for difference in differences if difference is not None and difference.seeds >= SEEDS]
    return None if len(enough) < min(2, len(differences)) else estimate(matrix(enough), level=level)


def matrix(differences: Sequence[Difference | None]) -> Array:
    """Cells by seeds, NaN where a cell lacks a seed."""
    known = [difference.by_seed for difference in differences if difference is not None]
    seeds = sorted({seed for by_seed in known for seed in by_seed})
    return np.array([[by_seed.get(seed, math.nan) for seed in seeds] for by_seed in known])
