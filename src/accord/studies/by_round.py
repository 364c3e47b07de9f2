"""How far rivals are ahead early and late in their runs, from the curves that results hold.

The papers do not say how long they trained, and a rule may be ahead for a while and not at the end. Curves are means
over seeds at the rates that held-out data chose for the whole run, in rounds that were evaluated. They have no
interval, so no claim is judged by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from accord.runs.text import Cells
from accord.studies.outcome import MAIN_RULE, Result
from accord.studies.study import Study

SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)  # of a run's rounds
TITLES = [f"after {100 * share:g} %" for share in SHARES]
SHORT_OF = 0.01  # below where the other ends: the target whose rounds are counted

Curve = Mapping[int, float]


@dataclass(frozen=True)
class ByRound:
    """One rival in one place of a table."""

    where: dict[str, str]
    rival: str
    ahead: list[float]  # after each of SHARES
    target: float
    rounds: tuple[int | None, int | None]  # to the target: of the rival, and of the one it is measured by


def by_round(study: Study, results: Sequence[Result]) -> list[ByRound]:
    """Every rival beside `study.against`, wherever both have a curve."""
    bases = (result for result in results if result.cell.values[study.compare] == study.against)
    curves = {study.place(base.cell.values): _curve(base) for base in bases}
    found = []
    for result in results:
        values = result.cell.values
        ours, theirs = _curve(result), curves.get(study.place(values), {})
        rounds = sorted({*ours} & {*theirs})  # runs that end by themselves may end at different rounds
        if values[study.compare] == study.against or not rounds:
            continue
        where = {axis: value for axis, value in values.items() if axis != study.compare}
        ahead = [ours[at] - theirs[at] for at in (_nearest(rounds, share * rounds[-1]) for share in SHARES)]
        target = theirs[max(theirs)] - SHORT_OF
        reached = rounds_to(target, ours), rounds_to(target, theirs)
        found.append(ByRound(where, values[study.compare], ahead, target, reached))
    return found


def _curve(result: Result) -> Curve:
    return result.figures[MAIN_RULE].curve if MAIN_RULE in result.figures else {}


def _nearest(rounds: Sequence[int], wanted: float) -> int:
    return min(rounds, key=lambda at: abs(at - wanted))


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


def means_by_round(rows: Sequence[ByRound]) -> dict[str, list[str]]:
    """For every rival its mean over places after each share, and in how many of them it is ahead."""
    means = {}
    for rival in dict.fromkeys(row.rival for row in rows):
        columns = zip(*(row.ahead for row in rows if row.rival == rival), strict=True)
        means[rival] = [f"{_points(fmean(column))} ({sum(value > 0 for value in column)})" for column in columns]
    return means


def _points(value: float) -> str:
    return f"{100 * value:+.2f}"
