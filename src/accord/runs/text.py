"""Results as rows of text, for `print(run)` and for the terminal."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accord.core.metrics import GAPS, TITLES, Metric
from accord.core.names import listed
from accord.privacy.accounting import spent_text
from accord.runs.evaluation import Evaluation, Figures, History
from accord.runs.selection import Selected, by_rules

Cells = list[list[str]]  # the first row is the header
_COLUMNS = {
    "by_sample": "by sample",
    "by_client": "by client",
    "worst": "worst",
    "q10": "10 %",
    "q50": "median",
    "q90": "90 %",
}


def in_short(evaluation: Evaluation) -> list[str]:
    """`train 92.10`, `held-out 91.20`, `unseen 90.10`."""
    metric = evaluation.metric
    (figures,) = metric.figures([[split.metrics[metric.name].by_sample for split in evaluation.splits.values()]])
    return [f"{TITLES[name]} {figure}" for name, figure in zip(evaluation.splits, figures, strict=True)]


def evaluation_cells(evaluation: Evaluation) -> Cells:
    """One evaluation: a row per split with means and spread over clients."""
    metric, rows = evaluation.metric, {**evaluation.splits, **evaluation.parts}
    gaps = {f"{GAPS[name].title} ({GAPS[name].difference})": of[metric.name] for name, of in evaluation.gaps().items()}
    numbers = [_numbers(row.metrics[metric.name]) for row in rows.values()] + [_numbers(gap) for gap in gaps.values()]
    figures = metric.figures(numbers)
    cells = [[metric.title, "clients", "samples", *_COLUMNS.values()]]
    for (name, row), line in zip(rows.items(), figures, strict=False):
        nobodys = name == "test"  # the test set has a mean and no spread
        shown = [line[0], *[""] * (len(line) - 1)] if nobodys else line
        cells.append([TITLES.get(name, name), "" if nobodys else str(row.clients), f"{row.samples:,}", *shown])
    for title, line in zip(gaps, figures[len(rows) :], strict=True):
        cells.append([title, "", "", *line[:2], *[""] * (len(line) - 2)])  # of the means alone
    return cells


def _numbers(figures: Figures) -> list[float | None]:
    return [getattr(figures, column) for column in _COLUMNS]


def run_text(title: str, history: History, stopped: str | None = None, unseen: Sequence[str] = ()) -> str:
    """A run in plain text: its last evaluation, and its figures by each selection rule."""
    if not history:
        return f"{title}: nothing was evaluated yet"
    number, evaluation = history[-1]
    lines = [
        f"{title} · round {number}" + (f" ({stopped})" if stopped else ""),
        *align(evaluation_cells(evaluation)),
        *lines_below(history, unseen),
    ]
    return "\n".join(lines)


def lines_below(history: History, unseen: Sequence[str], *rules: str) -> list[str]:
    """What is told of a run below its last evaluation: its figures by each selection rule, first by those asked for,
    its unseen clients, its privacy and notes."""
    number, evaluation = history[-1]
    chosen = by_rules(history, *rules, "held-out", "last10", "oracle")
    spent = evaluation.privacy
    return [
        *_selection_lines(chosen, evaluation.metric),
        *unseen_lines(unseen),
        *([] if spent is None else [f"privacy: {spent_text(spent)} after {number} rounds"]),
        *evaluation.notes,
    ]


def unseen_of(clients: Iterable[Mapping[str, Any]]) -> list[str]:
    """The unseen ones of the clients that a run evaluated, by name."""
    return [row["client"] for row in clients if row["split"] == "unseen"]


def unseen_lines(names: Sequence[str]) -> list[str]:
    """`unseen clients: north, south`."""
    return [f"unseen client{'s' * (len(names) > 1)}: {listed(names)}"] if names else []


def _selection_lines(chosen: Sequence[Selected], metric: Metric) -> list[str]:
    """`by held-out (round 40): train 91.20, held-out 90.10, unseen 89.00`, for each."""
    lines = []
    for one, figures in zip(chosen, metric.figures([one.values.values() for one in chosen]), strict=True):
        first, last = one.rounds[0], one.rounds[-1]
        where = f"round {first}" if len(one.rounds) == 1 else f"rounds {first} to {last}"
        shown = [f"{TITLES[split]} {figure}" for split, figure in zip(one.values, figures, strict=True)]
        lines.append(f"by {one.rule} ({where}): {', '.join(shown)}")
    return lines


def align(cells: Cells) -> list[str]:
    """Cells as lines with columns aligned."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    places = [str.rjust if right else str.ljust for right in numeric(cells)]
    return [
        "  ".join(place(cell, width) for cell, width, place in zip(row, widths, places, strict=True)).rstrip()
        for row in cells
    ]


def numeric(cells: Cells) -> list[bool]:
    """Which columns hold numbers, and so are aligned to the right: every cell below the header is empty, a dash or
    begins like a number."""
    return [all(cell[:1] in ("", *"-0123456789") for cell in column[1:]) for column in zip(*cells, strict=True)]


def spread(values: Sequence[float], metric: Metric) -> str:
    """The mean over seeds, with the standard deviation where there is more than one."""
    mean = statistics.fmean(values)
    # of seeds without a figure (an AUC of one class) there is no mean, and `stdev` fails on them
    if len(values) == 1 or math.isnan(mean):
        return metric.figure(mean)
    return f"{metric.figure(mean)} ± {metric.figure(statistics.stdev(values))}"


def skipped_in_words(skipped: int, rounds: int) -> list[str]:
    """`3 of 40 rounds skipped`, if any were."""
    return [f"{skipped} of {rounds} rounds skipped"] if skipped else []


def in_words(since: int) -> str:
    """Why a flat run ended."""
    return f"flat since round {since}"
