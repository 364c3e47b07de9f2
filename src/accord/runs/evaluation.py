"""Three-way evaluation: training data, held-out data of the same clients, and clients that never took part
(docs/explanation/mathematics.md).

An evaluation is plain data, ready for JSON: per split and metric the mean over samples and over clients, the worst
client and the 10/50/90 % quantiles; and the two gaps, out-of-sample (train minus held-out) and participation (held-out
minus unseen). Parts of a split, such as the unseen clients of one population, and further test sets get a row each of
their own.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

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
                metric: {by: a[metric][by] - b[metric][by] for by in ("by_sample", "by_client")}
                for metric in table.sums
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
            parts[f"{TITLES[split]}, {population}"] = {
                (s, c) for s, c in groups if s == split and populations.get(c) == population
            }
    return parts


def by_turn(took_part: Collection[str], groups: Collection[tuple[str, str]]) -> Parts:
    """Held-out data of the clients that took part in the round just done, and of those that did not, where there are
    both."""
    heldout = {group for group in groups if group[0] == "heldout"}
    in_it = {(split, client) for split, client in heldout if client in took_part}
    return (
        {"held-out, in this round": in_it, "held-out, not in it": heldout - in_it} if in_it and in_it != heldout else {}
    )


def merge_alone(own: Sequence[Table], shared: Sequence[Table]) -> Table:
    """One table for clients that each have a model of their own: their own data under their own model, all other data
    under the mean of several clients' models."""
    groups = [group for table in own for group in table.groups] + shared[0].groups
    samples = np.concatenate([table.samples for table in own] + [shared[0].samples])
    sums = {
        metric: np.concatenate(
            [table.sums[metric] for table in own] + [np.mean([table.sums[metric] for table in shared], axis=0)]
        )
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
