"""Results as rows of text, for `print(run)` and for the terminal."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from accord.privacy.accounting import spent_text
from accord.runs.evaluation import TITLES
from accord.runs.selection import History, applicable, primary_metric, select

Cells = list[list[str]]  # the first row is the header
_GAP_TITLES = {
    "out_of_sample": "out-of-sample gap (train - held-out)",
    "participation": "participation gap (held-out - unseen)",
}
_COLUMNS = {
    "by_sample": "by sample",
    "by_client": "by client",
    "worst": "worst",
    "q10": "10 %",
    "q50": "median",
    "q90": "90 %",
}


def figure(value: float | None, metric: str) -> str:
    """A metric for people: shares in percent, anything else as it is; a dash for what is not a number."""
    if value is None or math.isnan(value):
        return "-"
    return f"{100 * value:.2f}" if metric == "accuracy" else f"{value:.4g}"


def in_short(evaluation: dict[str, Any]) -> list[str]:
    """`train 92.10`, `held-out 91.20`, `unseen 90.10`."""
    metric = primary_metric(evaluation)
    return [
        f"{TITLES[name]} {figure(split[metric]['by_sample'], metric)}" for name, split in evaluation["splits"].items()
    ]


def evaluation_cells(evaluation: dict[str, Any]) -> Cells:
    """One evaluation: a row per split with means and spread over clients."""
    metric = primary_metric(evaluation)
    unit = f"{metric} (%)" if metric == "accuracy" else metric
    cells = [[unit, "clients", "samples", *_COLUMNS.values()]]
    for split, row in evaluation["splits"].items():
        one_group = split == "test"  # the test set is nobody's: it has a mean and no spread
        figures = [figure(row[metric][c], metric) if c == "by_sample" or not one_group else "" for c in _COLUMNS]
        cells.append([TITLES[split], "" if one_group else str(row["clients"]), f"{row['samples']:,}", *figures])
    for part, row in evaluation.get("parts", {}).items():
        cells.append(
            [part, str(row["clients"]), f"{row['samples']:,}", *(figure(row[metric][c], metric) for c in _COLUMNS)]
        )
    for gap in evaluation["gaps"]:
        means = evaluation["gaps"][gap][metric]
        cells.append([_GAP_TITLES[gap], "", "", *(figure(means[c], metric) if c in means else "" for c in _COLUMNS)])
    return cells


def run_text(title: str, history: History, stopped: str | None = None) -> str:
    """A run in plain text: its last evaluation, and its figures by each selection rule."""
    if not history:
        return f"{title}: nothing was evaluated yet"
    lines = [
        f"{title} · round {history[-1][0]}" + (f" ({stopped})" if stopped else ""),
        *align(evaluation_cells(history[-1][1])),
    ]
    return "\n".join(
        [*lines, *(selection_line(history, rule) for rule in applicable(history[0][1])), *privacy_lines(history)]
    )


def privacy_lines(history: History) -> list[str]:
    """`privacy: epsilon 5.379 at delta 1e-05 after 100 rounds`, of a run that has any."""
    number, evaluation = history[-1]
    return [f"privacy: {spent_text(evaluation['privacy'])} after {number} rounds"] if "privacy" in evaluation else []


def selection_line(history: History, rule: str) -> str:
    """`by held-out (round 40): train 91.20, held-out 90.10, unseen 89.00`."""
    chosen, metric = select(history, rule), primary_metric(history[0][1])
    where = (
        f"round {chosen.rounds[0]}" if len(chosen.rounds) == 1 else f"rounds {chosen.rounds[0]} to {chosen.rounds[-1]}"
    )
    return f"by {rule} ({where}): " + ", ".join(f"{TITLES[s]} {figure(v, metric)}" for s, v in chosen.values.items())


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


def spread(values: Sequence[float], metric: str) -> str:
    """The mean over seeds, with the standard deviation where there is more than one."""
    mean = figure(statistics.fmean(values), metric)
    return mean if len(values) == 1 else f"{mean} ± {figure(statistics.stdev(values), metric)}"


def in_words(since: int) -> str:
    """Why a flat run ended."""
    return f"flat since round {since}"
