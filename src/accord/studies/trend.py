"""A claim on a trend: how the difference between two rules changes along an axis."""

import re
from collections.abc import Sequence

import numpy as np

from accord.studies.claim import Claim
from accord.studies.differences import Comparison, Difference
from accord.studies.statistics import Estimate, estimate
from accord.studies.text import interval_text
from accord.studies.verdict import (
    MARGIN,
    SEEDS,
    Verdict,
    called,
    control_name,
    in_cells,
    lacking_control,
    matrix,
    size_remark,
)


def trend(claim: Claim, cells: Sequence[Comparison], total: int) -> Verdict:
    """The change of the difference along an axis, and of how far the rival is ahead of its control. `total` is how many
    cells the claim is about."""
    change, ends = _change(claim, [(c, c.difference) for c in cells], total)
    if change is None:
        few = f"a trend along {claim.axis} needs two of its values with {SEEDS} seeds or more"
        return Verdict("open", few + f", and a cell besides until all {total} have been run" * (len(cells) < total))
    kind = called("ahead" if claim.expects == "grows" else "behind", change)
    remark = size_remark(kind, change)
    text = f"{interval_text(change)} points from {claim.axis} {ends}, {change.cells} cells{remark}"
    known = [c.controls.get("length") for c in cells]
    controls = [(c, of) for c, of in zip(cells, known, strict=True) if of is not None and of.seeds >= SEEDS]
    over, _ = _change(claim, controls, len(cells))
    lacking = lacking_control(known) * bool(claim.rival)  # what has no rival has nothing to control for
    few = in_cells(len(controls), len(cells))
    if kind != "open":
        text += _control(claim, over, few) if over else f", with {lacking}" * bool(lacking)
    small = kind == "confirmed" and bool(remark)
    figure = interval_text(over) + few if over else lacking
    return Verdict(kind, text, interval_text(change), small=small, over_control=figure)


def _control(claim: Claim, over: Estimate, few: str) -> str:
    """How the trend compares with that of the control."""
    name, figure = control_name(claim), interval_text(over)
    if over.within(MARGIN):
        return f", {name} has the same trend: {figure}{few}"
    if over.low > 0 or over.high < 0:
        return f", it differs from the trend of {name} by {figure}{few}"
    return f", no difference shown from the trend of {name}: {figure}{few}"


def _change(
    claim: Claim, differences: Sequence[tuple[Comparison, Difference | None]], total: int
) -> tuple[Estimate | None, str]:
    """The change of differences along the claim's axis, from its smallest value to its largest, with a level of its own
    for every combination of the other axes, and these two values. Where one value is ten times another, the logarithm
    counts. Where the axis is the rivals' own, the one they are measured by is on it too, with 0. There is none along a
    single value; nor, while some of the `total` are missing, where there are no more cells than are fitted: nothing
    then says how cells differ."""
    known: list[tuple[float, str, Difference]] = []
    for c, difference in differences:
        assert difference is not None
        place, at = str({name: value for name, value in c.where.items() if name != claim.axis}), position(claim, c)
        known += [] if at is None else [(at, place, difference)]
        base = _number(claim, c.against) if claim.axis == c.compare else None
        if base is not None and (base, place) not in {(number, of) for number, of, _ in known}:
            known.append((base, place, Difference(dict.fromkeys(difference.by_seed, 0.0))))
    places = [place for _, place, _ in known]
    if all(len({number for number, place, _ in known if place == one}) < 2 for one in places):
        return None, ""
    if len(differences) < total and len(known) == len({*places}) + 1:
        return None, ""
    along = np.array([number for number, _, _ in known])
    low, high = along.min(), along.max()
    if low > 0 and high >= 10 * low:
        along = np.log(along)
    along = (along - along.min()) / (along.max() - along.min())
    change = estimate(matrix([d for _, _, d in known]), along=list(along), places=places)
    ends = (claim.order[int(end)] if claim.order else f"{end:g}" for end in (low, high))
    return change, " to ".join(ends)


def position(claim: Claim, cell: Comparison) -> float | None:
    """Where a cell stands on the claim's axis; None if nowhere."""
    return _number(claim, cell.rival if claim.axis == cell.compare else cell.where[claim.axis])


def _number(claim: Claim, value: str) -> float | None:
    """Of a value of the axis: its place in the claim's order, or the number in its name."""
    if claim.order:
        return claim.order.index(value) if value in claim.order else None
    return number_in(value)


def number_in(value: str) -> float | None:
    """The number in a value's name: 0.1 of `corrective alpha=0.1`."""
    numbers = re.findall(r"(?:(?<!\w)-)?\d+(?:\.\d+)?(?:e[+-]?\d+)?", value)
    return float(numbers[-1]) if numbers else None
