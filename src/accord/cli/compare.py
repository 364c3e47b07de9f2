"""`accord compare`: one kind of run against another, paired by seed."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.shared import print_table
from accord.cli.study_output import warn
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from accord.core.metrics import Metric
    from accord.runs.reader import Recorded
    from accord.studies.differences import Difference

_SPLITS = {
    "test": "on the test set",
    "unseen": "on unseen clients",
    "heldout": "on held-out data",
    "train": "on training data",
}
_Figures = dict[int, dict[str, float]]  # seed -> split or test set -> figure


def compare(
    one: Annotated[
        Path,
        typer.Argument(
            help="A run folder, or a folder that holds runs of one kind (its seeds, and whom they leave out)."
        ),
    ],
    other: Annotated[
        Path | None,
        typer.Argument(
            help="What it is compared with: the same data, other settings. Left out, methods in the first folder, which"
            " leave out one client after another, are compared with fedavg, or else with the first of them.",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="test, unseen, heldout, train or the name of a further test set; left out, unseen clients where there"
            " are any."
        ),
    ] = None,
    select: Annotated[
        str, typer.Option(help="Which round counts: held-out, last10, oracle or window(a,b).")
    ] = "held-out",
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two kinds of runs, seed by seed: the mean difference, a 95 % interval, and what it means.

    Leave off the `-s0` of a folder's name to take all its seeds: `accord compare runs/mnist-fedavg-1f0c2d3e4b
    runs/mnist-fedavg-gma-aa00bb11cc`.

    Of runs that leave out one client after another (`data.unseen = "each"`), a seed's figure is the mean over these
    clients, and `accord compare runs/mine` prints their table and compares every method with
    fedavg, or with the first where there is none.
    """
    if other is None:
        _compare_methods(one, on, select, as_json)
        return
    sides = [_runs(path) for path in (one, other)]
    kinds = {run.kind for side in sides for run in side}
    if len(kinds) > 1:
        raise AccordError(f"runs of different kinds cannot be compared: {' and '.join(sorted(kinds))}")
    _note_other_data(sides[0][0], sides[1][0])
    comparison, difference = _compared(sides[0], sides[1], on, select)
    print(json.dumps(comparison, indent=2) if as_json else _sentence(comparison, difference, _metric(sides[0])))


def _note_other_data(one: "Recorded", other: "Recorded") -> None:
    """Says in which settings of the data the two differ: the difference may then be the data's."""
    from accord.core.files import flat

    sides = [flat(run.settings.data) for run in (one, other)]
    # whom the unseen are is compared elsewhere; what one of them does not say may be a default
    apart = [key for key, value in sides[0].items() if key != "unseen" and sides[1].get(key, value) != value]
    if apart:
        told = ", ".join(f"data.{key} ({sides[0][key]} and {sides[1][key]})" for key in apart)
        warn(f"The two differ in {told}: their difference may be the data's.")


def _compare_methods(path: Path, on: str | None, rule: str, as_json: bool) -> None:
    """The table of runs that leave out one client after another, and every method against one of them."""
    from accord.runs.left_out import by_method, left_out, split_off
    from accord.runs.reader import load_all

    runs, _ = split_off([run for run in load_all([path]) if run.history])
    if not runs:
        raise AccordError(
            f"{path} holds no runs that leave out one client after another: give a second folder to compare it with"
        )
    methods = by_method(runs)
    base = "fedavg" if "fedavg" in methods else next(iter(methods))
    against = []
    for name, members in methods.items():
        if name != base:
            comparison, difference = _compared(members, methods[base], on, rule)
            against.append(({**comparison, "one": name, "other": base}, difference))
    table = left_out(runs, rule)
    if as_json:
        differences = [comparison for comparison, _ in against]
        print(json.dumps({"methods": table.to_json(), "differences": differences}, indent=2))
        return
    print_table(table.cells())
    for comparison, difference in against:
        print(_sentence(comparison, difference, table.metric))


def _compared(
    ours: "Sequence[Recorded]", theirs: "Sequence[Recorded]", on: str | None, rule: str
) -> "tuple[dict[str, Any], Difference]":
    """The difference of two kinds of runs, and what is told of it."""
    from accord.studies.differences import paired

    sides = [_figures(runs, rule) for runs in (ours, theirs)]
    names = set.intersection(*(set(values) for side in sides for values in side.values()))
    where = on or next(name for name in ("unseen", "test", "heldout", "train") if name in names)
    if where not in names:
        raise AccordError(
            f"there are no figures of {where!r} in all of these runs: choose one of {', '.join(sorted(names))}"
        )
    clients = [sorted({client for run in runs for client in run.named_unseen}) for runs in (ours, theirs)]
    if where == "unseen" and clients[0] != clients[1]:
        both = " and ".join(", ".join(some) or "some that are not named" for some in clients)
        raise AccordError(f"the two have different unseen clients, {both}: that is no comparison")
    one, other = ({seed: values[where] for seed, values in side.items()} for side in sides)
    for label, values in ((ours[0].label, one), (theirs[0].label, other)):
        missing = [seed for seed, value in values.items() if math.isnan(value)]
        if missing:
            raise AccordError(f"{label} has no figure {_place(where)} of seed {missing[0]}: `accord show` says why")
    difference = paired(one, other)
    if difference is None:
        raise AccordError(f"the two have no seed in common: {sorted(one)} and {sorted(other)}")
    numbers = {"difference": difference.mean, "low": difference.interval.low, "high": difference.interval.high}
    comparison = {
        "one": ours[0].label,
        "other": theirs[0].label,
        "metric": _metric(ours).name,
        "on": where,
        "unseen": clients[0],
        "select": rule,
        "seeds": difference.seeds,
        **{name: value if abs(value) < float("inf") else None for name, value in numbers.items()},
    }
    return comparison, difference


def _metric(runs: "Sequence[Recorded]") -> "Metric":
    return runs[0].history[0][1].metric


def _place(on: str) -> str:
    return _SPLITS.get(on, f"on test set {on}")


def _sentence(comparison: dict[str, Any], difference: "Difference", metric: "Metric") -> str:
    from accord.core.names import listed
    from accord.studies.text import points

    where = _place(comparison["on"])
    if comparison["on"] == "unseen" and comparison["unseen"]:
        where += f" ({listed(comparison['unseen'])})"
    both = f"{comparison['one']} against {comparison['other']} {where}"
    seeds = f"{difference.seeds} seed{'s' * (difference.seeds > 1)}"
    unit = "points of " if metric.percent else ""
    said = f"{points(difference, metric)} {unit}{metric.name}, {seeds}, by {comparison['select']}"
    if difference.seeds == 1:
        return f"{both}: {said}: one seed decides nothing."
    if not difference.clear:
        return f"{both}: {said}: no clear difference."
    ahead = metric.score(difference.mean) > 0
    return f"{comparison['one']} is {'ahead of' if ahead else 'behind'} {comparison['other']} {where}: {said}."


def _figures(runs: "Sequence[Recorded]", rule: str) -> _Figures:
    """Every seed's figures; of runs that leave out one client after another their mean, where the seed has them all."""
    from accord.runs.selection import select

    by_seed: dict[int, dict[tuple[str, ...], dict[str, float]]] = {}
    for run in runs:
        by_seed.setdefault(int(run.seed), {})[tuple(run.named_unseen)] = select(run.history, rule).by_name
    everyone = {client for of in by_seed.values() for client in of}
    # a mean over some of the clients is another figure, also where each seed lacks as many
    whole = {seed: list(of.values()) for seed, of in by_seed.items() if of.keys() == everyone}
    if not whole:
        raise AccordError(f"no seed of {runs[0].label} has a figure on every client that was left out: train the rest")
    return {
        seed: {name: statistics.fmean(of[name] for of in some) for name in some[0] if all(name in of for of in some)}
        for seed, some in whole.items()
    }


def _runs(path: Path) -> "list[Recorded]":
    """The runs that a path stands for: of one kind, one for each seed, or one for each seed and client left out."""
    from accord.runs.left_out import by_method, split_off
    from accord.runs.reader import find, load

    folders = find([path]) if path.exists() else sorted(path.parent.glob(f"{path.name}-s*"))
    runs = [run for run in map(load, folders) if run.history]
    if not runs:
        raise AccordError(f"there is no evaluated run at {path}")
    several, others = split_off(runs)
    groups = sorted({run.group for run in others} | {members[0].group for members in by_method(several).values()})
    if len(groups) > 1:
        raise AccordError(
            f"{path} holds runs of {len(groups)} kinds, such as {groups[0]} and {groups[1]}: give one of them"
        )
    return runs
