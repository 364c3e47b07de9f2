"""A run as a notebook shows it: its table, and its curves as a drawing that needs no library."""

from collections.abc import Sequence
from html import escape

from accord.core.metrics import TITLES
from accord.runs.evaluation import History
from accord.runs.text import Cells, evaluation_cells

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 180, 46, 24
_COLOURS = {"train": "#7f7f7f", "heldout": "#1f77b4", "unseen": "#d62728", "test": "#2ca02c"}


def run_html(title: str, history: History) -> str:
    """The last evaluation as a table, and the metric it is judged by over rounds."""
    if not history:
        return f"<p>{escape(title)}: nothing was evaluated yet</p>"
    number, evaluation = history[-1]
    heading = f"<p><b>{escape(title)}</b> · round {number}</p>"
    return f"<div>{heading}{_table(evaluation_cells(evaluation))}{_curves(history)}</div>"


def _table(cells: Cells) -> str:
    rows = []
    for place, row in enumerate(cells):
        tag = "th" if place == 0 else "td"
        rows.append("<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def _curves(history: History) -> str:
    """A line for each split."""
    metric = history[-1][1].metric
    lines: dict[str, list[tuple[int, float]]] = {}
    for number, evaluation in history:
        for split, row in evaluation.splits.items():
            value = row.metrics[metric.name].by_sample
            if value is not None and value == value and abs(value) != float("inf"):
                lines.setdefault(split, []).append((number, value * metric.scale))
    values = [value for line in lines.values() for _, value in line]
    if len(history) < 2 or not values:
        return ""
    rounds, low, high = [number for number, _ in history], min(values), max(values)
    across, up = _WIDTH - _LEFT - 90, _HEIGHT - _BOTTOM - 10

    def place(number: int, value: float) -> tuple[float, float]:
        x = _LEFT + across * (number - rounds[0]) / (rounds[-1] - rounds[0])
        return x, 10 + up * (1 - ((value - low) / (high - low) if high > low else 0.5))

    drawn = [
        _line(split, [place(*point) for point in line], number) for number, (split, line) in enumerate(lines.items())
    ]
    axis = f'<path d="M{_LEFT} 10V{10 + up}H{_LEFT + across}" fill="none" stroke="currentColor"/>'
    words = [
        (2, 18, f"{high:.4g}"),
        (2, 10 + up, f"{low:.4g}"),
        (_LEFT, _HEIGHT - 6, f"round {rounds[0]}"),
        (_LEFT + across - 20, _HEIGHT - 6, str(rounds[-1])),
    ]
    texts = "".join(f'<text x="{x}" y="{y}">{escape(text)}</text>' for x, y, text in words)
    return (
        f'<svg role="img" aria-label="{escape(metric.title)} by round" width="{_WIDTH}" height="{_HEIGHT}"'
        f' font-size="11" fill="currentColor">{axis}{texts}{"".join(drawn)}</svg>'
    )


def _line(split: str, points: Sequence[tuple[float, float]], number: int) -> str:
    colour, path = _COLOURS.get(split, "#9467bd"), " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    key = f'<text x="{_WIDTH - 84}" y="{22 + 15 * number}" fill="{colour}">{escape(TITLES.get(split, split))}</text>'
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>{key}'
