"""`accord compare`: one kind of run against another, paired by seed."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.core.errors import AccordError

if TYPE_CHECKING:
    from accord.runs.reader import Recorded

_SPLITS = {
    "test": "on the test set",
    "unseen": "on unseen clients",
    "heldout": "on held-out data",
    "train": "on training data",
}


def compare(
    one: Annotated[Path, typer.Argument(help="A run folder, or a folder that holds runs of one kind (its seeds).")],
    other: Annotated[Path, typer.Argument(help="What it is compared with: the same data, other settings.")],
    on: Annotated[
        str | None, typer.Option(help="test, unseen, heldout or train; left out, unseen clients where there are any.")
    ] = None,
    select: Annotated[
        str, typer.Option(help="Which round counts: held-out, last10, oracle or window(a,b).")
    ] = "held-out",
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two kinds of runs, seed by seed: the mean difference, a 95 % interval, and what it means.

    A folder may be given for all its seeds: `accord compare runs/mnist-fedavg-1f0c2d3e4b
    runs/mnist-fedavg-gma-aa00bb11cc` takes every folder whose name begins so.
    """
    from accord.runs.selection import select as by_rule
    from accord.studies.outcome import paired
    from accord.studies.text import points

    sides = [_runs(path) for path in (one, other)]
    kinds = {run.kind for side in sides for run in side}
    if len(kinds) > 1:
        raise AccordError(f"runs of different kinds cannot be compared: {' and '.join(sorted(kinds))}")
    figures = [{run.seed: by_rule(run.history, select).values for run in side} for side in sides]
    splits = set.intersection(*(set(values) for side in figures for values in side.values()))
    split = on or next(name for name in ("unseen", "test", "heldout", "train") if name in splits)
    if split not in splits:
        raise AccordError(
            f"there are no figures of {split!r} in all of these runs: choose one of {', '.join(sorted(splits))}"
        )
    ours, theirs = ({int(seed): values[split] for seed, values in side.items()} for side in figures)
    for label, values in ((side[0].label, values) for side, values in zip(sides, (ours, theirs), strict=True)):
        missing = [seed for seed, value in values.items() if math.isnan(value)]
        if missing:
            raise AccordError(f"{label} has no figure {_SPLITS[split]} of seed {missing[0]}: `accord show` says why")
    difference = paired(ours, theirs)
    if difference is None:
        raise AccordError(f"the two have no seed in common: {sorted(ours)} and {sorted(theirs)}")
    labels = [side[0].label for side in sides]
    metric = sides[0][0].history[0][1].metric
    where = _SPLITS[split]
    if as_json:
        told = {
            "one": labels[0],
            "other": labels[1],
            "metric": metric.name,
            "on": split,
            "select": select,
            "seeds": difference.seeds,
        }
        numbers = {"difference": difference.mean, "low": difference.interval.low, "high": difference.interval.high}
        print(json.dumps({**told, **{k: v if abs(v) < float("inf") else None for k, v in numbers.items()}}, indent=2))
        return
    seeds = f"{difference.seeds} seed{'s' * (difference.seeds > 1)}"
    unit = "points of " if metric.percent else ""
    said = f"{points(difference, metric)} {unit}{metric.name}, {seeds}, by {select}"
    if difference.seeds == 1:
        print(f"{labels[0]} against {labels[1]} {where}: {said}: one seed decides nothing.")
    elif not difference.clear:
        print(f"{labels[0]} against {labels[1]} {where}: {said}: no clear difference.")
    else:
        ahead = metric.score(difference.mean) > 0
        print(f"{labels[0]} is {'ahead of' if ahead else 'behind'} {labels[1]} {where}: {said}.")


def _runs(path: Path) -> "list[Recorded]":
    """The runs that a path stands for: of one kind, one for each seed."""
    from accord.runs.reader import find, load

    folders = find([path]) if path.exists() else sorted(path.parent.glob(f"{path.name}-s*"))
    runs = [run for run in map(load, folders) if run.history]
    if not runs:
        raise AccordError(f"there is no evaluated run at {path}")
    groups = sorted({run.group for run in runs})
    if len(groups) > 1:
        raise AccordError(
            f"{path} holds runs of {len(groups)} kinds, such as {groups[0]} and {groups[1]}: give one of them"
        )
    return runs
