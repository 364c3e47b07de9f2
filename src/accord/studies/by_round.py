"""How far rivals are ahead early and late in their runs, from the curves that results hold.

The papers do not say how long they trained, and a rule may be ahead for a while and not at the end. Curves are means
over seeds at the rates that held-out data chose for the whole run, in rounds that were evaluated. They have no
interval, so no claim is judged by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from accord.runs.text import Cells
from accord.studies.outcome import MAIN_RULE, Figures, Result
from accord.studies.study import Study

SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)  # of a run's rounds
TITLES = [f"after {100 * share:g} %" for share in SHARES]
TARGET_MARGIN = 0.01  # below where the other ends: the target whose rounds are counted
_NEAR = 0.2  # how far the round that is looked at may lie from the one that is wanted, as a share of it

Curve = Mapping[int, float]


@dataclass(frozen=True)
class ByRound:
    """One rival in one place of a table."""

    where: dict[str, str]
    rival: str
    same_rates: bool  # as the one that it is measured by
    ahead: list[float | None]  # after each of SHARES; None where no round near it was evaluated, or one had ended
    target: float
    rounds: tuple[int | None, int | None]  # to the target: of the rival, and of the one it is measured by


def by_round(study: Study, results: Sequence[Result]) -> list[ByRound]:
    """Every rival beside `study.against`, wherever both have a curve of the same seeds."""
    bases = {
        study.place(result.cell.values): result.figures.get(MAIN_RULE)
        for result in results
        if result.cell.values[study.compare] == study.against
    }
    rows = []
    for result in results:
        values = result.cell.values
        ours, theirs = result.figures.get(MAIN_RULE), bases.get(study.place(values))
        if values[study.compare] == study.against or not ours or not theirs or not _comparable(ours, theirs):
            continue
        where = {axis: value for axis, value in values.items() if axis != study.compare}
        target = theirs.curve[max(theirs.curve)] - TARGET_MARGIN
        reached = rounds_to(target, ours.curve), rounds_to(target, theirs.curve)
        same_rates, ahead = ours.point == theirs.point, _ahead(ours.curve, theirs.curve)
        rows.append(ByRound(where, values[study.compare], same_rates, ahead, target, reached))
    return rows


def _comparable(ours: Figures, theirs: Figures) -> bool:
    return bool(ours.curve and theirs.curve) and ours.by_seed.keys() == theirs.by_seed.keys()


def _ahead(ours: Curve, theirs: Curve) -> list[float | None]:
    """After each of SHARES of the longer run: runs that end by themselves may end at different rounds."""
    rounds, last, common = sorted({*ours} & {*theirs}), max(*ours, *theirs), min(max(ours), max(theirs))
    gaps: list[float | None] = []
    for wanted in (share * last for share in SHARES):
        at = min(rounds, key=lambda number: abs(number - wanted), default=0)
        near = at and wanted <= common and abs(at - wanted) <= max(1.0, _NEAR * wanted)
        gaps.append(ours[at] - theirs[at] if near else None)
    return gaps


def rounds_to(target: float, curve: Curve) -> int | None:
    """The first evaluated round with this accuracy or more; None if there is none.

    >>> rounds_to(0.5, {1: 0.2, 5: 0.6, 10: 0.4}), rounds_to(0.7, {1: 0.2})
    (5, None)
    """
    return next((at for at, value in sorted(curve.items()) if value >= target), None)


def by_round_cells(rows: Sequence[ByRound], against: str) -> Cells:
    """A row per rival and place."""
    cells = [[*rows[0].where, "rival", *TITLES, "target, %", "rounds to it", f"{against}'s"]]
    for row in rows:
        reached = ["never" if at is None else str(at) for at in row.rounds]
        cells.append([*row.where.values(), row.rival, *map(_points, row.ahead), f"{100 * row.target:.1f}", *reached])
    return cells


def medians_by_round(rows: Sequence[ByRound], rivals: Sequence[str]) -> Cells:
    """For each of these rivals, over the places that have all of them: how many there are, its median after each share,
    and in how many it is ahead; then the same for the places where it chose the same rates as the one that it is
    measured by."""
    shared = set.intersection(*({str(row.where) for row in rows if row.rival == rival} for rival in rivals))
    cells = []
    for rival in rivals:
        all_rates = [row for row in rows if row.rival == rival and str(row.where) in shared]
        same_rates = [row for row in all_rates if row.same_rates]
        for label, some in ((rival, all_rates), (f"{rival}, at the same rates", same_rates)):
            if len(some) > 1 and (some is all_rates or len(some) < len(all_rates)):
                cells.append([label, str(len(some)), *map(_median, zip(*(row.ahead for row in some), strict=True))])
    return cells


def _median(gaps: Sequence[float | None]) -> str:
    known = [gap for gap in gaps if gap is not None]
    return f"{_points(median(known))} ({sum(gap > 0 for gap in known)})" if known else ""


def _points(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f}"
