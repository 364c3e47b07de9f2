"""Which round of a run counts: selection rules, by name and printed with the figures they choose."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from accord.core.errors import AccordError
from accord.core.metrics import TITLES
from accord.runs.evaluation import History, SplitRow


@dataclass(frozen=True)
class Selected:
    """A figure and how it was chosen: the rule's name, the rounds it rests on, and per split the metric averaged over
    samples; so too per further test set."""

    rule: str
    rounds: list[int]
    values: dict[str, float]
    tests: dict[str, float] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, float]:
        """All figures, by split and test set; a test set that is called as a split is gives way to it."""
        return {**self.tests, **self.values}


def _last10(history: History) -> History:
    return [(number, evaluation) for number, evaluation in history if number > history[-1][0] - 10]


def _best(name: str, *splits: str) -> Callable[[History], History]:
    def choose(history: History) -> History:
        split = next((s for s in splits if any(s in evaluation.splits for _, evaluation in history)), None)
        if split is None:
            raise AccordError(f"there is no {' or '.join(TITLES[s] for s in splits)} data to choose a round by")
        if split != "test" and history[0][1].privacy is not None:  # a test set is no client's
            raise AccordError(
                f"select: {name} chooses a round by clients' {TITLES[split]} data, which epsilon does not count: choose"
                " last10 or window(a,b) with privacy"
            )
        metric = history[0][1].metric
        there = [(number, evaluation) for number, evaluation in history if split in evaluation.splits]
        return [there[metric.best([e.splits[split].metrics[metric.name].by_sample for _, e in there])]]

    return choose


_RULES: dict[str, Callable[[History], History]] = {
    "last10": _last10,
    "held-out": _best("held-out", "heldout"),
    "oracle": _best("oracle", "test", "unseen"),
}
RULE_NAMES = ("held-out", "last10", "oracle", "window(a,b)")


def select(history: History, rule: str = "held-out") -> Selected:
    """The run's figures by a named rule: `held-out` (the round best on participating clients' held-out data), `last10`
    (mean over the last ten rounds), `window(a,b)` (mean over rounds a to b) or `oracle` (best on the test set, which is
    what the papers report)."""
    if not history:
        raise AccordError("nothing was evaluated yet")
    window = re.fullmatch(r"window\(\s*(\d+)\s*,\s*(\d+)\s*\)", rule)
    if window:
        first, last = int(window[1]), int(window[2])
        chosen: History = [entry for entry in history if first <= entry[0] <= last]
    elif rule in _RULES:
        chosen = _RULES[rule](history)
    else:
        raise AccordError(f"there is no selection rule {rule!r}: choose one of {', '.join(RULE_NAMES)}")
    if not chosen:
        raise AccordError(f"{rule} holds no evaluated round: rounds {history[0][0]} to {history[-1][0]} were evaluated")
    metric = chosen[0][1].metric.name  # all have the same
    means, tests = _means([e.splits for _, e in chosen], metric), _means([e.tests for _, e in chosen], metric)
    values = {split: means[split] for split in TITLES if split in means}
    # best of those that were looked at: a round that was not may have been better
    some = rule == "oracle" and len(history) < history[-1][0]
    return Selected(f"{rule} of evaluated rounds" if some else rule, [number for number, _ in chosen], values, tests)


def _means(rounds: Sequence[Mapping[str, SplitRow]], metric: str) -> dict[str, float]:
    """The mean of each split over the rounds that have it; NaN if any value is missing because the model had
    diverged."""
    values: dict[str, list[float]] = {}
    for rows in rounds:
        for name, row in rows.items():
            value = row.metrics[metric].by_sample
            values.setdefault(name, []).append(math.nan if value is None else value)
    return {name: float(np.mean(of)) for name, of in values.items()}


def by_rules(history: History, *rules: str) -> list[Selected]:
    """The run's figures by each of the rules that its data allow, named once."""
    selected = []
    for rule in dict.fromkeys(rules):
        with suppress(AccordError):
            selected.append(select(history, rule))
    return selected


def rule_for(histories: Sequence[History], rule: str | None) -> str:
    """The rule asked for, once some run is seen to have a figure by it; else the first that every run has figures
    by."""
    evaluated = [history for history in histories if history]
    if rule is None:
        heldout = all(by_rules(history, "held-out") for history in evaluated)
        return "held-out" if heldout else "last10"
    if evaluated and not any(by_rules(history, rule) for history in evaluated):
        select(evaluated[0], rule)  # which says why there is none
    return rule
