"""The replication report as a page that needs nothing but itself: the text of `page`, and a curve for every place that
has been run with results that hold one."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from markdown_it import MarkdownIt

from accord.studies.map import is_map
from accord.studies.outcome import MAIN_RULE
from accord.studies.results import Results, StudyResults, naming

_WIDE, _HIGH = 320, 200  # of a plot, and its margins: left, right, top, bottom
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 24, 26
_COLOURS = ("#3b6fb6", "#d1603d", "#3a8f5f", "#8a5fb0", "#a08a2e")

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 13px; }
td, th { border-bottom: 1px solid #8885; padding: .3em .6em; text-align: left; vertical-align: top; }
code { font-size: 90%; overflow-wrap: anywhere; }
.curves { display: flex; flex-wrap: wrap; gap: 1em; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
"""


MARK = "<title>Replication</title>"  # among the first lines of every page


def html(text: str, results: Sequence[Results]) -> str:
    """The page for a report's text."""
    # a map has too many places to be looked at one by one
    studies = [one for one in results if isinstance(one, StudyResults) and not is_map(one.study)]
    curves = ""
    for one in studies:
        with naming(one):
            curves += _study(one)
    # what results files hold is text: a title with a script in it is shown, not run
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    about = f"<p>Accuracy on the test set (%), mean over seeds, at the point that {MAIN_RULE} chose.</p>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{MARK}\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}"
        + (f"<h2>Curves</h2>\n{about}\n{curves}" if curves else "")
        + "</body>\n</html>\n"
    )


def _study(one: StudyResults) -> str:
    """A plot for every place of a study, with a line for each rival."""
    places: dict[str, dict[str, Mapping[int, float]]] = {}
    for result in one.results:
        figures = result.figures.get(MAIN_RULE)
        if figures is not None and len(figures.curve) > 1:
            values = result.cell.values
            place = ", ".join(value for axis, value in values.items() if axis != one.study.compare)
            places.setdefault(place, {})[values[one.study.compare]] = figures.curve
    plots = "".join(_plot(place, curves) for place, curves in places.items())
    return f'<h3>{escape(one.study.title)}</h3>\n<div class="curves">\n{plots}</div>\n' if plots else ""


def _from(low: float, points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The points that the plot shows, and those by which a line comes into it or leaves it."""
    above = [value >= low for _, value in points]
    return [point for at, point in enumerate(points) if any(above[max(at - 1, 0) : at + 2])]


def _plot(title: str, curves: Mapping[str, Mapping[int, float]]) -> str:
    """Curves over rounds, on a logarithmic axis, from the lowest accuracy after the first tenth of the rounds."""
    last = max(max(curve) for curve in curves.values())
    late = [value for curve in curves.values() for at, value in curve.items() if 10 * at >= last]
    low, high = math.floor(100 * min(late)) / 100, math.ceil(100 * max(late)) / 100

    def place(at: int, value: float) -> str:
        across = _LEFT + (_WIDE - _LEFT - _RIGHT) * math.log(at) / max(math.log(last), 1e-9)
        share = (max(value, low) - low) / max(high - low, 1e-9)
        return f"{across:.1f},{_HIGH - _BOTTOM - (_HIGH - _TOP - _BOTTOM) * share:.1f}"

    floor = _HIGH - _BOTTOM
    parts = [
        f'<svg width="{_WIDE}" height="{_HIGH}" viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="14">{escape(title)}</text>',
        f'<path d="M{_LEFT} {_TOP}V{floor}H{_WIDE - _RIGHT}" fill="none" stroke="currentColor" stroke-opacity=".4"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 4}" text-anchor="end">{100 * high:.0f}</text>',
        f'<text x="{_LEFT - 6}" y="{floor + 4}" text-anchor="end">{100 * low:.0f}</text>',
        f'<text x="{_LEFT}" y="{_HIGH - 8}">1</text>',
        f'<text x="{_WIDE - _RIGHT}" y="{_HIGH - 8}" text-anchor="end">{last} rounds</text>',
    ]
    for number, (rival, curve) in enumerate(curves.items()):
        colour, below = _COLOURS[number % len(_COLOURS)], floor - 6 - 13 * (len(curves) - 1 - number)
        points = " ".join(place(at, value) for at, value in _from(low, sorted(curve.items())))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts.append(
            f'<text x="{_WIDE - _RIGHT}" y="{below}" text-anchor="end" style="fill:{colour}">{escape(rival)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])
