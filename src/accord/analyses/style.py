"""How figures of accord look. matplotlib is an extra, and is imported when something is drawn."""

import importlib.util
import io
from collections.abc import Callable, Sequence
from typing import Any

from accord.core.errors import AccordError

KINDS = ("png", "svg", "none")

# Okabe and Ito's colours, which people who do not tell red from green can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C564B")
GREY = "#777777"
_LOOK: Any = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "svg.hashsalt": "accord",  # equal figures are equal files
}


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def check_kind(kind: str) -> None:
    """Refuses a figure that cannot be drawn, before anything is trained for it."""
    if kind not in KINDS:
        raise AccordError(f"--figure must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind != "none" and not can_draw():
        raise AccordError(
            "figures need matplotlib: pip install 'accord-fl[plot]', or write the table alone with --figure none"
        )


def rendered(draw: Callable[[], Any], kind: str, dpi: int = 110) -> bytes:
    """The figure that `draw` makes, as a file's content."""
    import matplotlib

    held = io.BytesIO()
    with matplotlib.rc_context(_LOOK):
        draw().savefig(held, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
    return _fewer_colours(held) if kind == "png" else held.getvalue()


def _fewer_colours(picture: io.BytesIO) -> bytes:
    """The PNG with 256 colours, which is all a figure needs and a third of the size. Pillow comes with matplotlib."""
    from PIL import Image

    held = io.BytesIO()
    Image.open(picture).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(held, format="png", optimize=True)
    return held.getvalue()


def panels(columns: int = 1, rows: int = 1, size: tuple[float, float] = (4.6, 3.4)) -> tuple[Any, list[Any]]:
    """A figure of panels of `size` inches each, and its axes in reading order."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [one for row in axes for one in row]


def band(
    axes: Any,
    x: Sequence[float],
    seeds: Sequence[Sequence[float]],
    label: str,
    colour: Any,
    line: str = "-",
    marker: str = "",
) -> None:
    """The mean over seeds, and a band from the lowest to the highest of them. `seeds` has a curve over `x` each."""
    points = list(zip(*seeds, strict=True))
    axes.plot(x, [sum(values) / len(values) for values in points], line, marker=marker, color=colour, label=label)
    if len(seeds) > 1:
        axes.fill_between(
            x,
            [min(values) for values in points],
            [max(values) for values in points],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )


def seeds_text(count: int) -> str:
    """What a band stands for: `mean of 3 seeds, band from lowest to highest`."""
    return "one seed" if count == 1 else f"mean of {count} seeds, band from lowest to highest"
