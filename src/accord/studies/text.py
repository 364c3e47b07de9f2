"""A study's results as rows of text."""

from collections.abc import Mapping, Sequence
from typing import Any

from accord.core.metrics import Metric
from accord.runs.text import Cells, spread
from accord.studies.differences import Comparison, Difference
from accord.studies.outcome import Result
from accord.studies.published import Printed, elsewhere, find
from accord.studies.statistics import Estimate, holm
from accord.studies.study import CONTROLS, Study, edges

ACCURACY = Metric("accuracy")


def result_cells(study: Study, results: Sequence[Result], rule: str) -> Cells:
    """A row per cell. Accuracy in percent on the test set, by each rule; unseen clients by the main one; then what was
    printed."""
    others = [other for other in study.rules if other != rule]
    titles = {"oracle": "oracle" if study.evaluates_all else "oracle of evaluated rounds"}
    head = [
        *study.axes,
        *(f"test, {titles.get(by, by)}" for by in (rule, *others)),
        f"unseen, {rule}",
        "rounds",
        f"chosen by {rule}",
        "printed",
    ]
    rows = [head]
    for result in results:
        figures = [_figure(result, "test", by) for by in (rule, *others)]
        point = result.figures[rule].point if rule in result.figures else {}
        beyond = edges(result.cell.grid, point)
        chosen = ", ".join(f"{key}={value}" + " (edge)" * (key in beyond) for key, value in point.items())
        remark = "" if result.done == result.runs else f" ({result.done} of {result.runs} runs)"
        remark += " (superseded)" * (result.superseded is not None)
        unseen = _figure(result, "unseen", rule)
        printed = _printed(find(study.paper, study.table, result.cell.values))
        rows.append([*result.cell.values.values(), *figures, unseen, _rounds(result), chosen + remark, printed])
    return rows


def _figure(result: Result, split: str, rule: str) -> str:
    values = result.figures[rule].of(split) if rule in result.figures else []
    return spread(values, ACCURACY) if values else "-"


def _rounds(result: Result) -> str:
    """`150`, or `80-120, 3 flat` where runs ended by themselves."""
    if result.rounds is None:
        return "-"
    low, high = result.rounds
    return (str(low) if low == high else f"{low}-{high}") + f", {result.flat} flat" * bool(result.flat)


def _printed(numbers: Sequence[Printed]) -> str:
    """What the paper has: several numbers where it prints several for one cell, and what another document has in the
    same place."""
    words = []
    for number in numbers:
        words.append(_number(number))
        words += [f"in {other.document}: {_number(other)}" for other in elsewhere(number)]
    return ", ".join(words)


def _number(printed: Printed) -> str:
    """`96.24 ± 0.03 (oracle)`."""
    words = [*(["train"] if printed.split == "train" else []), *filter(None, [printed.columns["window"]])]
    return f"{printed.value:g}" + f" ± {printed.std}" * bool(printed.std) + f" ({', '.join(words)})" * bool(words)


def printed_cells(printed: Sequence[Mapping[str, Any]]) -> Cells:
    """A paper's numbers of one table: a column for everything that is not the same in all of them, the number, and
    ours."""
    keys = list(dict.fromkeys(key for row in printed for key in row if key not in ("value", "ours")))
    apart = [key for key in keys if len({row.get(key) for row in printed}) > 1]
    ours = ["ours"] if any(row.get("ours") is not None for row in printed) else []
    rows = [[*apart, "value", *ours]]
    for row in printed:
        shown = [f"{row['ours']:.2f}" if row.get("ours") is not None else "-"] if ours else []
        rows.append([*(str(row.get(key, "")) for key in apart), f"{row['value']:g}", *shown])
    return rows


def comparison_cells(comparisons: Sequence[Comparison]) -> Cells:
    """A row per rival and place. `called` is ahead or behind where the difference is clear after Holm's correction over
    all rows."""
    where = list(comparisons[0].where)
    controls = [kind for kind in CONTROLS if any(kind in c.controls for c in comparisons)]
    rows = [[*where, "rival", "ahead by", "called", *(f"of its {kind} control by" for kind in controls), "printed"]]
    for c, called in zip(comparisons, after_holm(comparisons), strict=True):
        printed = "" if c.printed is None else f"{c.printed:+.2f}"
        over = (points(c.controls.get(kind)) for kind in controls)
        ahead = points(c.difference) + f", {c.diverged} diverged" * bool(c.diverged)
        rows.append([*c.where.values(), c.rival, ahead, called, *over, printed])
    return rows


def after_holm(comparisons: Sequence[Comparison]) -> list[str]:
    """Of each: `ahead`, `behind`, or nothing where it is neither at 5 % after Holm's correction over all that have
    seeds enough."""
    tested = [c.difference for c in comparisons if c.difference is not None and c.difference.seeds > 1]
    corrected = iter(holm([difference.interval.p for difference in tested]))
    called = []
    for c in comparisons:
        called.append("")
        if c.difference is not None and c.difference.seeds > 1 and next(corrected) < 0.05:
            called[-1] = "ahead" if c.difference.mean > 0 else "behind"
    return called


def points(difference: Difference | None, metric: Metric = ACCURACY) -> str:
    """`+0.80 (0.30 to 1.30)`, in percentage points or whatever the metric is told in."""
    if difference is None:
        return "-"
    if difference.seeds == 1:
        return f"{_signed(difference.mean, metric)} (one seed)"
    return interval_text(difference.interval, metric)


def interval_text(interval: Estimate, metric: Metric = ACCURACY) -> str:
    return f"{_signed(interval.value, metric)} ({metric.figure(interval.low)} to {metric.figure(interval.high)})"


def _signed(value: float, metric: Metric) -> str:
    figure = metric.figure(value)
    return figure if figure.startswith("-") else f"+{figure}"


def markdown(cells: Sequence[Sequence[str]]) -> list[str]:
    """Cells as a Markdown table."""
    head, *rows = cells
    return [_line(head), "|" + "---|" * len(head), *map(_line, rows)]


def _line(row: Sequence[str]) -> str:
    safe = [cell.replace("|", "\\|") for cell in row]
    return f"| {' | '.join(safe)} |"
