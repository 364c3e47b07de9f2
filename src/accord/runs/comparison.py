"""Runs side by side: by which rule, under which names, and one table of what they reached."""

from collections.abc import Mapping, Sequence
from typing import Any

from accord.core import files
from accord.core.files import plain
from accord.core.metrics import GAPS, TITLES, Gap, Metric
from accord.runs.reader import Recorded
from accord.runs.selection import rule_for
from accord.runs.text import Cells, spread

# settings that runs of one kind may differ in
_NOT_TOLD_APART_BY = ("seed", "schema", "label", "rounds", "train.rounds", "run")


def results(runs: Sequence[Recorded], rule: str | None) -> list[dict[str, Any]]:
    """What each run reached, as plain data for machines."""
    rule = rule_for([run.history for run in runs], rule)
    told = []
    for run in runs:
        chosen = run.chosen(rule)
        told.append(
            {
                "folder": str(run.folder),
                "status": run.status,
                "rounds": run.rounds,
                "flat_since": run.flat,
                "settings": run.settings.to_json(),
                "selected": chosen and {"rule": chosen.rule, "rounds": chosen.rounds, "values": chosen.values},
                "evaluation": run.history[-1][1].to_json() if run.history else None,
            }
        )
    return plain(told)


def comparison(runs: Sequence[Recorded], rule: str) -> Cells:
    """One row per setting: figures by the selection rule, mean and standard deviation over seeds, and both gaps."""
    groups: dict[str, list[Recorded]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    evaluated = [run for run in runs if run.history]
    splits = [split for split in TITLES if any(split in run.history[0][1].splits for run in evaluated)]
    gaps = [gap for gap in GAPS.values() if {gap.first, gap.second} <= set(splits)]
    metric = evaluated[0].history[0][1].metric if evaluated else Metric("accuracy")
    unit = f"{metric.title}, by {rule}"
    seeds = "seed" if all(len(members) == 1 for members in groups.values()) else "seeds"  # `seeds 0` would read as none
    cells: Cells = [[unit, seeds, "rounds", *(TITLES[s] for s in splits), *(gap.difference for gap in gaps), "status"]]
    for label, members in zip(labels([members[0] for members in groups.values()]), groups.values(), strict=True):
        cells.append([label, *_row(members, rule, splits, gaps)])
    all_done = all(run.status == "done" for run in runs)
    return [row[:-1] for row in cells] if all_done else cells


def _row(members: Sequence[Recorded], rule: str, splits: Sequence[str], gaps: Sequence[Gap]) -> list[str]:
    chosen = [selected.values for run in members if (selected := run.chosen(rule))]
    metric = next((run.history[0][1].metric for run in members if run.history), Metric("accuracy"))

    def cell(values: list[float]) -> str:
        return spread(values, metric) if values else "-"

    figures = [cell([values[s] for values in chosen if s in values]) for s in splits]
    pairs = [(gap.first, gap.second) for gap in gaps]
    figures += [cell([values[a] - values[b] for values in chosen if a in values and b in values]) for a, b in pairs]
    rounds = sorted({run.rounds for run in members})
    span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"
    status = sorted({run.status for run in members})
    return [",".join(run.seed for run in members), span, *figures, "; ".join(status)]


def labels(runs: Sequence[Recorded]) -> list[str]:
    """The runs' labels; where several share one, with the settings that tell those apart: `fedavg, train.lr=0.1`."""
    return told_apart([run.label for run in runs], [flat(run.settings) for run in runs])


def told_apart(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names, each with those of its flat settings that not all of its namesakes share."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for name, own in zip(names, settings, strict=True):
        alike.setdefault(name, []).append(own)
    apart = {
        name: {key for own in of for key in {**of[0], **own} if own.get(key) != of[0].get(key)}
        for name, of in alike.items()
    }
    return [
        ", ".join([name, *(f"{key}={own[key]}" for key in own if key in apart[name])])
        for name, own in zip(names, settings, strict=True)
    ]


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings by their full names, without what says nothing about the kind of run."""
    return files.flat(settings, without=_NOT_TOLD_APART_BY)
