"""What to train first when time is short (`accord reproduce --minutes`): what settles most.

Cells that share data and model go in lockstep and are one batch. Batches that a claim is about come first: those that
lack seeds for a verdict, in the order of the file, then the rest by their widest interval. When all is done, a seed is
added wherever the interval of a rival still holds both 0 and the gain that the paper printed.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from accord.studies.claim import claims
from accord.studies.differences import Comparison, compare
from accord.studies.outcome import Result
from accord.studies.study import Named, Study
from accord.studies.verdict import SEEDS

MOST_SEEDS = 8


def batches(study: Study, named: Sequence[Named], results: Sequence[Result], rule: str) -> list[list[Named]]:
    """The study's cells in the order in which to train them."""
    judged = [claim for claim in claims() if claim.study == study.name]
    need: dict[tuple[str, ...], float] = {}  # by place
    for comparison in compare(study, results, "test", rule):
        place = tuple(comparison.where.values())
        wanted = not judged or any(claim.about(comparison) for claim in judged)
        need[place] = max(need.get(place, -1.0), _unsettled(comparison) if wanted else -1.0)
    alike: dict[tuple[tuple[str, object], ...], list[Named]] = {}
    for one in named:
        shared = [item for item in one.cell.settings.items() if item[0].startswith(("data.", "model."))]
        alike.setdefault(tuple((key, str(value)) for key, value in shared), []).append(one)
    return sorted(alike.values(), key=lambda batch: -max(need.get(study.place(one.cell.values), -1.0) for one in batch))


def _unsettled(comparison: Comparison) -> float:
    """How much is open about a rival: half its interval's width; without seeds enough for a verdict, everything."""
    if comparison.difference is None or comparison.difference.seeds < SEEDS:
        return math.inf
    interval = comparison.difference.interval
    return (interval.high - interval.low) / 2


def with_more_seeds(study: Study, results: Sequence[Result], rule: str) -> Study:
    """The study with one more seed, for all rivals of a place, where an interval holds both 0 and the printed gain; the
    study itself where none does."""
    seeds = dict(study.more_seeds)
    for comparison in compare(study, results, "test", rule):
        if comparison.difference is None or comparison.printed is None or comparison.difference.seeds < 2:
            continue
        place, interval = tuple(comparison.where.values()), comparison.difference.interval
        gain = comparison.printed / 100
        used = (*study.seeds, *study.more_seeds.get(place, ()))
        both = interval.low <= min(0.0, gain) and max(0.0, gain) <= interval.high
        if both and len(used) < MOST_SEEDS:
            seeds[place] = (*study.more_seeds.get(place, ()), max(used) + 1)
    return study if seeds == study.more_seeds else replace(study, more_seeds=seeds)
