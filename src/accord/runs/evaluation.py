"""Three-way evaluation: training data, held-out data of the same clients, and clients that never took part (docs/mathematics.md).

An evaluation is plain data, ready for JSON: per split and metric the mean over samples and over clients, the worst client and the
10/50/90 % quantiles; and the two gaps, out-of-sample (train minus held-out) and participation (held-out minus unseen). Parts of a split,
such as the unseen clients of one population, and further test sets get a row each of their own.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accord.core.errors import AccordError
from accord.engines.contract import Table

Evaluation = dict[str, Any]
SPLITS = ("train", "heldout", "unseen", "test")
TITLES = {"train": "train", "heldout": "held-out", "unseen": "unseen", "test": "test"}
GAPS = {"out_of_sample": ("train", "heldout"), "participation": ("heldout", "unseen")}

Parts = dict[str, set[tuple[str, str]]]  # what a part is called -> its (split, client)


def summarise(table: Table, parts: Parts | None = None) -> Evaluation:
    """The evaluation of one model. Clients without samples in a split do not count in it."""
    of_split = np.array([split for split, _ in table.groups])
    evaluation: Evaluation = {"splits": {}, "gaps": {}, "smaller_is_better": sorted(table.smaller)}
    for split in SPLITS:
        here = (of_split == split) & (table.samples > 0)
        if here.any():
            evaluation["splits"][split] = _split(table, here)
    others: Parts = {f"test, {name}": {(split, name)} for split, name in table.groups if split == "other"}
    for name, members in {**(parts or {}), **others}.items():
        here = np.array([group in members for group in table.groups]) & (table.samples > 0)
        if here.any():
            evaluation.setdefault("parts", {})[name] = _split(table, here)
    for gap, (first, second) in GAPS.items():
        if first in evaluation["splits"] and second in evaluation["splits"]:
            a, b = evaluation["splits"][first], evaluation["splits"][second]
            evaluation["gaps"][gap] = {
                metric: {by: a[metric][by] - b[metric][by] for by in ("by_sample", "by_client")} for metric in table.sums
            }
    return evaluation


def _split(table: Table, here: np.ndarray) -> dict[str, Any]:
    samples = table.samples[here]
    row: dict[str, Any] = {"clients": int(here.sum()), "samples": int(samples.sum())}
    for metric, sums in table.sums.items():
        per_client = sums[here] / samples
        with np.errstate(invalid="ignore"):  # infinities of a model that diverged
            q10, q50, q90 = np.quantile(per_client, [0.1, 0.5, 0.9])
        row[metric] = {
            "by_sample": float(sums[here].sum() / samples.sum()),
            "by_client": float(per_client.mean()),
            "worst": float(per_client.max() if metric in table.smaller else per_client.min()),
            "q10": float(q10),
            "q50": float(q50),
            "q90": float(q90),
        }
    return row


def by_population(populations: Mapping[str, str], groups: Collection[tuple[str, str]]) -> Parts:
    """Held-out and unseen clients by the population they come from, where there are several."""
    parts: Parts = {}
    for split in ("heldout", "unseen"):
        for population in sorted(set(populations.values())) if len(set(populations.values())) > 1 else []:
            parts[f"{TITLES[split]}, {population}"] = {(s, c) for s, c in groups if s == split and populations.get(c) == population}
    return parts


def by_turn(took_part: Collection[str], groups: Collection[tuple[str, str]]) -> Parts:
    """Held-out data of the clients that took part in the round just done, and of those that did not, where there are both."""
    heldout = {group for group in groups if group[0] == "heldout"}
    in_it = {(split, client) for split, client in heldout if client in took_part}
    return {"held-out, in this round": in_it, "held-out, not in it": heldout - in_it} if in_it and in_it != heldout else {}


def merge_alone(own: Sequence[Table], shared: Sequence[Table]) -> Table:
    """One table for clients that each have a model of their own: their own data under their own model, all other data under the mean of
    several clients' models."""
    groups = [group for table in own for group in table.groups] + shared[0].groups
    samples = np.concatenate([table.samples for table in own] + [shared[0].samples])
    sums = {
        metric: np.concatenate([table.sums[metric] for table in own] + [np.mean([table.sums[metric] for table in shared], axis=0)])
        for metric in shared[0].sums
    }
    return Table(groups, samples, sums, shared[0].smaller)


def per_client(table: Table) -> list[dict[str, Any]]:
    """A row for every client with samples: split, client, samples and the mean of each metric."""
    return [
        {
            "split": split,
            "client": client,
            "samples": int(n),
            **{metric: float(sums[g] / n) for metric, sums in table.sums.items()},
        }
        for g, ((split, client), n) in enumerate(zip(table.groups, table.samples, strict=True))
        if n
    ]


# ----------------------------------------------------------------------------------------------------- which round counts

History = list[tuple[int, Evaluation]]  # (round, evaluation), in order


@dataclass(frozen=True)
class Selected:
    """A figure and how it was chosen: the rule's name, the rounds it rests on, and per split the metric averaged over samples."""

    rule: str
    rounds: list[int]
    values: dict[str, float]


def primary_metric(evaluation: Evaluation) -> str:
    """The metric a run is judged by: the first that is not the loss, or else the loss."""
    names = [name for name in next(iter(evaluation["splits"].values())) if name not in ("clients", "samples", "loss")]
    return names[0] if names else "loss"


def score(evaluation: Evaluation, split: str) -> float:
    """How good an evaluation is on a split; larger is better."""
    metric = primary_metric(evaluation)
    value = evaluation["splits"][split][metric]["by_sample"]
    if value is None or not math.isfinite(value):  # a model that diverged
        return -math.inf
    return -value if metric in evaluation["smaller_is_better"] else value


def applicable(evaluation: Evaluation) -> list[str]:
    """The rules that the data allow: one needs held-out data, another a test set or unseen clients."""
    splits = evaluation["splits"]
    return ["held-out"] * ("heldout" in splits) + ["last10"] + ["oracle"] * ("test" in splits or "unseen" in splits)


def _last10(history: History) -> History:
    return [(number, evaluation) for number, evaluation in history if number > history[-1][0] - 10]


def _best(*splits: str) -> Callable[[History], History]:
    def choose(history: History) -> History:
        split = next((s for s in splits if s in history[0][1]["splits"]), None)
        if split is None:
            raise AccordError(f"there is no {' or '.join(TITLES[s] for s in splits)} data to choose a round by")
        return [max(history, key=lambda entry: score(entry[1], split))]  # the earliest of equals

    return choose


_RULES: dict[str, Callable[[History], History]] = {
    "last10": _last10,
    "held-out": _best("heldout"),
    "oracle": _best("test", "unseen"),
}
RULE_NAMES = ("held-out", "last10", "oracle", "window(a,b)")


def select(history: History, rule: str = "held-out") -> Selected:
    """The run's figures by a named rule: `held-out` (the round best on participating clients' held-out data), `last10` (mean over the
    last ten rounds), `window(a,b)` (mean over rounds a to b) or `oracle` (best on the test set, which is what the papers report)."""
    if not history:
        raise AccordError("nothing was evaluated yet")
    window = re.fullmatch(r"window\(\s*(\d+)\s*,\s*(\d+)\s*\)", rule)
    if window:
        first, last = int(window[1]), int(window[2])
        chosen = [entry for entry in history if first <= entry[0] <= last]
    elif rule in _RULES:
        chosen = _RULES[rule](history)
    else:
        raise AccordError(f"there is no selection rule {rule!r}: choose one of {', '.join(RULE_NAMES)}")
    if not chosen:
        raise AccordError(f"{rule} holds no evaluated round: rounds {history[0][0]} to {history[-1][0]} were evaluated")
    metric = primary_metric(chosen[0][1])
    splits = [split for split in SPLITS if split in chosen[0][1]["splits"]]
    values = {split: _mean([e["splits"][split][metric]["by_sample"] for _, e in chosen]) for split in splits}
    return Selected(rule, [number for number, _ in chosen], values)


def _mean(values: Sequence[float | None]) -> float:
    """The mean; NaN if any value is missing because the model had diverged."""
    return float(np.mean([math.nan if value is None else value for value in values]))
