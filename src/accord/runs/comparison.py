"""Runs side by side: which go together, under which names, and one table of what they reached."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from accord.core import files
from accord.core.files import plain
from accord.core.metrics import GAPS, TITLES, Gap, Metric
from accord.runs.evaluation import metric_of, splits_of, tests_of
from accord.runs.reader import Recorded
from accord.runs.selection import rule_for
from accord.runs.text import Cells, skipped_in_words, spread

# settings that runs of one kind may differ in
_NOT_TOLD_APART_BY = ("seed", "schema", "label", "rounds", "train.rounds", "run")


def by_kind(runs: Sequence[Recorded]) -> dict[str, list[Recorded]]:
    """Runs by what their figures can be compared with: figures of different data or of different metrics are no
    comparison. One without figures stands with the first."""
    first = next((run.kind for run in runs if run.kind), "")
    return _grouped(runs, lambda run: run.kind or first)


def by_setting(runs: Sequence[Recorded]) -> list[list[Recorded]]:
    """Runs that differ by seed alone, together."""
    return list(_grouped(runs, lambda run: run.group).values())


def _grouped(runs: Sequence[Recorded], key: Callable[[Recorded], str]) -> dict[str, list[Recorded]]:
    groups: dict[str, list[Recorded]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def results(runs: Sequence[Recorded], rule: str | None) -> list[dict[str, Any]]:
    """What each run reached, as plain data for machines."""
    rule = rule_for([run.history for run in runs], rule)
    return [
        {
            "folder": str(run.folder),
            "status": run.status,
            "rounds": run.rounds,
            "flat_since": run.flat,
            "settings": run.settings.to_json(),
            "selected": (chosen := run.chosen(rule)) and plain(asdict(chosen)),
            "evaluation": run.history[-1][1].to_json() if run.history else None,
        }
        for run in runs
    ]


def comparison(runs: Sequence[Recorded], rule: str) -> Cells:
    """One row per setting: figures by the selection rule, mean and standard deviation over seeds, and both gaps."""
    groups = by_setting(runs)
    evaluated = [run for run in runs if run.history]
    splits = [split for split in TITLES if any(split in splits_of(run.history) for run in evaluated)]
    tests = list(dict.fromkeys(name for run in evaluated for name in tests_of(run.history)))
    gaps = [gap for gap in GAPS.values() if {gap.first, gap.second} <= set(splits)]
    metric = metric_of(run.history for run in evaluated)
    unit = f"{metric.title}, by {rule}"
    seeds = "seed" if all(len(members) == 1 for members in groups) else "seeds"  # `seeds 0` would read as none
    titles = [*(TITLES[s] for s in splits), *tests, *(gap.difference for gap in gaps)]
    cells: Cells = [[unit, seeds, "rounds", *titles, "status"]]
    for label, members in zip(labels([members[0] for members in groups]), groups, strict=True):
        cells.append([label, *_row(members, rule, splits, tests, gaps, metric)])
    all_done = all(run.status == "done" and not run.skipped for run in runs)
    return [row[:-1] for row in cells] if all_done else cells


def notes(runs: Sequence[Recorded]) -> list[str]:
    """Sentences beside the runs' last figures, each once, with the runs that it is true of."""
    by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in run.history[-1][1].notes if run.history else ():
            by_note.setdefault(note, []).append(f"{run.label}, seed {run.seed}")
    return [f"{of[0]}{f' and {len(of) - 1} more runs' if len(of) > 1 else ''}: {note}" for note, of in by_note.items()]


def _row(
    members: Sequence[Recorded],
    rule: str,
    splits: Sequence[str],
    tests: Sequence[str],
    gaps: Sequence[Gap],
    metric: Metric,
) -> list[str]:
    selected = [one for run in members if (one := run.chosen(rule))]
    chosen = [one.values for one in selected]

    def cell(values: list[float]) -> str:
        return spread(values, metric) if values else "-"

    figures = [cell([values[s] for values in chosen if s in values]) for s in splits]
    figures += [cell([one.tests[test] for one in selected if test in one.tests]) for test in tests]
    figures += [cell([value for values in chosen if (value := gap.of(values)) is not None]) for gap in gaps]
    rounds = sorted({run.rounds for run in members})
    span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"
    status = sorted({", ".join([run.status, *skipped_in_words(run.skipped, run.rounds)]) for run in members})
    return [",".join(run.seed for run in members), span, *figures, "; ".join(status)]


def same_unseen(runs: Sequence[Recorded]) -> list[str]:
    """The unseen clients by name, where all runs have the same."""
    evaluated = [run for run in runs if "unseen" in splits_of(run.history)]
    return evaluated[0].unseen if evaluated and all(run.unseen == evaluated[0].unseen for run in evaluated) else []


def labels(runs: Sequence[Recorded]) -> list[str]:
    """The runs' labels; where several share one, with the settings that tell those apart: `fedavg, train.lr=0.1`."""
    return told_apart([run.label for run in runs], [flat(run.settings) for run in runs])


def told_apart(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names, each with those of its flat settings that not all of its namesakes share."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for name, values in zip(names, settings, strict=True):
        alike.setdefault(name, []).append(values)
    apart = {
        name: {key for values in of for key in {**of[0], **values} if values.get(key) != of[0].get(key)}
        for name, of in alike.items()
    }
    return [
        ", ".join([name, *(f"{key}={values[key]}" for key in values if key in apart[name])])
        for name, values in zip(names, settings, strict=True)
    ]


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings by their full names, without what says nothing about the kind of run."""
    return files.flat(settings, without=_NOT_TOLD_APART_BY)
