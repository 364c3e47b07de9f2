"""Results as rows of text, for `print(run)` and for the terminal."""

import statistics
from collections.abc import Sequence

from accord.core.metrics import GAPS, TITLES, Metric
from accord.privacy.accounting import spent_text
from accord.runs.evaluation import Evaluation, Figures, History
from accord.runs.selection import Selected, applicable, select

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
    means = {name: split.metrics[metric.name].by_sample for name, split in evaluation.splits.items()}
    return [f"{TITLES[name]} {metric.figure(mean)}" for name, mean in means.items()]


def evaluation_cells(evaluation: Evaluation) -> Cells:
    """One evaluation: a row per split with means and spread over clients."""
    metric = evaluation.metric
    cells = [[metric.title, "clients", "samples", *_COLUMNS.values()]]
    for split, row in evaluation.splits.items():
        figures = _figures(row.metrics[metric.name], metric)
        if split == "test":  # it is nobody's: it has a mean and no spread
            cells.append([TITLES[split], "", f"{row.samples:,}", figures[0], *("" for _ in figures[1:])])
        else:
            cells.append([TITLES[split], str(row.clients), f"{row.samples:,}", *figures])
    for part, row in evaluation.parts.items():
        cells.append([part, str(row.clients), f"{row.samples:,}", *_figures(row.metrics[metric.name], metric)])
    for name, by_metric in evaluation.gaps().items():
        means = _figures(by_metric[metric.name], metric)[:2]
        title = f"{GAPS[name].title} ({GAPS[name].difference})"
        cells.append([title, "", "", *means, *("" for _ in range(len(_COLUMNS) - len(means)))])
    return cells


def _figures(figures: Figures, metric: Metric) -> list[str]:
    return [metric.figure(getattr(figures, column)) for column in _COLUMNS]


def run_text(title: str, history: History, stopped: str | None = None) -> str:
    """A run in plain text: its last evaluation, and its figures by each selection rule."""
    if not history:
        return f"{title}: nothing was evaluated yet"
    number, evaluation = history[-1]
    chosen = [select(history, rule) for rule in applicable(history[0][1])]
    lines = [
        f"{title} · round {number}" + (f" ({stopped})" if stopped else ""),
        *align(evaluation_cells(evaluation)),
        *(selection_line(one, evaluation.metric) for one in chosen),
        *privacy_lines(history),
    ]
    return "\n".join(lines)


def privacy_lines(history: History) -> list[str]:
    """`privacy: epsilon 5.379 at delta 1e-05 after 100 rounds`, of a run that has any."""
    number, evaluation = history[-1]
    return [] if evaluation.privacy is None else [f"privacy: {spent_text(evaluation.privacy)} after {number} rounds"]


def selection_line(chosen: Selected, metric: Metric) -> str:
    """`by held-out (round 40): train 91.20, held-out 90.10, unseen 89.00`."""
    first, last = chosen.rounds[0], chosen.rounds[-1]
    where = f"round {first}" if len(chosen.rounds) == 1 else f"rounds {first} to {last}"
    figures = ", ".join(f"{TITLES[split]} {metric.figure(value)}" for split, value in chosen.values.items())
    return f"by {chosen.rule} ({where}): {figures}"


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
    mean = metric.figure(statistics.fmean(values))
    return mean if len(values) == 1 else f"{mean} ± {metric.figure(statistics.stdev(values))}"


def in_words(since: int) -> str:
    """Why a flat run ended."""
    return f"flat since round {since}"
