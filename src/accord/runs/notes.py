"""Sentences beside an evaluation's figures: predictions that are NaN, figures that some groups do not have, and figures
that are not computed from samples."""

from collections.abc import Iterator

import numpy as np

from accord.core.metrics import TITLES
from accord.core.names import listed
from accord.engines.contract import Table


def notes_on(table: Table) -> tuple[str, ...]:
    """What a reader of the table's figures must know."""
    return (*_nan_predictions(table), *_without_a_figure(table), *_pooled(table))


def _nan_predictions(table: Table) -> Iterator[str]:
    if table.nan is None or not table.nan.any():  # as a rule; there may be thousands of groups
        return
    counts = table.nan.astype(int).tolist()
    most_first = sorted((g for g, count in enumerate(counts) if count), key=lambda g: -counts[g])
    whose = listed([f"{counts[g]} of {table.samples[g]} {_whose(table, g)}" for g in most_first])
    yield f"NaN predictions, which count as wrong: {whose}"


def _without_a_figure(table: Table) -> Iterator[str]:
    for name, values in table.of_group.items():
        for split, title in TITLES.items():
            there = [g for g, (of, _) in enumerate(table.groups) if of == split and table.samples[g]]
            missing = [g for g in there if np.isnan(values.each[g])]
            if missing and split == "test":
                yield f"{name} has no figure on the test set: {values.needs}"
            elif missing:
                clients = f"{len(missing)} of {len(there)} {title} clients"
                named = listed([table.groups[g][1] for g in missing])
                yield f"{name} has no figure for {clients} ({named}): {values.needs}"


def _pooled(table: Table) -> Iterator[str]:
    for name, values in table.of_group.items():
        if values.about is not None:
            yield f"{name} {values.about}"


def _whose(table: Table, group: int) -> str:
    split, client = table.groups[group]
    if split in ("test", "other"):
        return "test samples" if split == "test" else f"test samples, {client}"
    return f"{TITLES[split]} samples of {client}"
