"""Train and test curves of recorded runs, seeds of one setting together (figures 2 and 3a of the TMLR paper, 4.1 of the
thesis)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accord.analyses import style
from accord.analyses.arms import figure_of, unit
from accord.analyses.output import Result, deviation, mean
from accord.core.errors import AccordError
from accord.core.metrics import TITLES
from accord.runs.comparison import by_setting, labels
from accord.runs.evaluation import splits_of
from accord.runs.reader import Recorded, find, load

_LINES: dict[str, Any] = {"train": "--", "heldout": ":", "unseen": "-.", "test": "-"}


def read(folders: Sequence[Path], splits: Sequence[str] | None, metric: str | None) -> Result:
    """Curves of every run at or below the folders. Left out, the splits are train and test, or whatever else there is
    to judge by, and the metric is the one that the runs are judged by."""
    runs = [run for run in map(load, find(folders)) if run.history]
    if not runs:
        raise AccordError("none of these runs was evaluated yet, so there is no curve to draw")
    kinds = sorted({run.kind for run in runs})
    if len(kinds) > 1:
        raise AccordError(f"these runs are of different data or metrics ({'; '.join(kinds)}): draw one kind at a time")
    there = [split for split in TITLES if all(split in splits_of(run.history) for run in runs)]
    splits = splits or (["train", "test"] if "test" in there else there)
    for split in splits:
        if split not in there:
            raise AccordError(f"--splits must be among {', '.join(there)}, which all these runs have, got {split!r}")
    first = runs[0].history[0][1]
    metric = metric or first.metric.name
    if metric not in first.metrics:
        raise AccordError(f"--metric must be one of {', '.join(first.metrics)}, got {metric!r}")
    groups = by_setting(runs)
    names = labels([members[0] for members in groups])
    return _result(dict(zip(names, groups, strict=True)), splits, metric)


def _result(settings: dict[str, list[Recorded]], splits: Sequence[str], metric: str) -> Result:
    table, points = [], []
    curves: dict[tuple[str, str], tuple[list[int], list[list[float]]]] = {}
    for name, members in settings.items():
        for split in splits:
            rounds = ({number for number, e in run.history if split in e.splits} for run in members)
            common = sorted(set.intersection(*rounds))
            if not common:
                raise AccordError(
                    f"the seeds of {name} were evaluated in different rounds: there is no curve of their mean"
                )
            values = [[figure_of(e, split, metric) for number, e in run.history if number in common] for run in members]
            curves[name, split] = common, values
            ends = [run[-1] for run in values]
            columns = {"rule": name, "split": TITLES[split], "seeds": len(members), "round": common[-1]}
            table.append(columns | {unit(metric): mean(ends), "sd": deviation(ends)})
            for run, curve in zip(members, values, strict=True):
                for number, value in zip(common, curve, strict=True):
                    points.append(
                        {"rule": name, "split": TITLES[split], "seed": run.seed, "round": number, unit(metric): value}
                    )
    return Result("curves", table, points, lambda: _draw(curves, metric))


def _draw(curves: dict[tuple[str, str], tuple[list[int], list[list[float]]]], metric: str) -> Any:
    from matplotlib.lines import Line2D

    figure, (axes,) = style.panels(size=(7.2, 4.2))
    names = list(dict.fromkeys(name for name, _ in curves))
    colours = {name: style.COLOURS[number % len(style.COLOURS)] for number, name in enumerate(names)}
    for (name, split), (rounds, seeds) in curves.items():
        style.band(axes, rounds, seeds, name, colours[name], _LINES[split], marker="o" if len(rounds) == 1 else "")
    handles = [Line2D([], [], color=colours[name], label=name) for name in names]
    handles += [
        Line2D([], [], color=style.GREY, linestyle=_LINES[split], label=TITLES[split])
        for split in dict.fromkeys(s for _, s in curves)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(handles)))
    axes.set(
        xlabel="round",
        ylabel=f"{unit(metric)}, by sample",
        title=_seeds({len(seeds) for _, seeds in curves.values()}),
    )
    return figure


def _seeds(counts: set[int]) -> str:
    return style.seeds_text(counts.pop()) if len(counts) == 1 else "means over seeds, bands from lowest to highest"
