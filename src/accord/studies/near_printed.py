"""How near averaging comes to what the papers print for it, and which data sets no number was answered on: what a
reader should know before verdicts on differences."""

from collections.abc import Sequence
from statistics import fmean

from accord.studies.published import find, numbers
from accord.studies.results import StudyResults
from accord.studies.verdict import SEEDS

_NEAR, _FAR = 1.0, 5.0  # points of accuracy


def gaps(studies: Sequence[StudyResults]) -> list[float]:
    """Ours less what is printed, in points, for every number of a study's `against`, by the rule that it was printed
    with. A number that has its place in several studies counts once."""
    found: dict[int, float] = {}
    for one in studies:
        study = one.study
        for result in one.complete:
            if result.cell.values[study.compare] != study.against:
                continue
            for number in find(study.paper, study.table, result.cell.values):
                figures = result.figures.get(number.rule or study.rules[0])
                values = figures.of(number.split) if figures else []
                if len(values) >= SEEDS:
                    found[id(number)] = 100 * fmean(values) - number.value
    return list(found.values())


def near_printed(studies: Sequence[StudyResults], answered: set[int]) -> list[str]:
    known, lines = gaps(studies), list[str]()
    if known:
        near = sum(abs(gap) <= _NEAR for gap in known)
        above, below = sum(gap > _FAR for gap in known), sum(gap < -_FAR for gap in known)
        lines += [
            "",
            f"A number that is answered need not be reproduced: of {len(known)} answered ones that are averaging's,"
            f" {near} are within a point of ours by the table's own rule; ours is more than {_FAR:g} points above in"
            f" {above}, below in {below}. Claims are on differences between rules that were tuned and trained alike.",
        ]
    with_some = {number.columns["dataset"] for number in numbers() if id(number) in answered}
    without = sorted({number.columns["dataset"] for number in numbers()} - with_some)
    if answered and without:
        lines += ["", f"No number on {', '.join(without)} is answered."]
    return lines
