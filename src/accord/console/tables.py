"""Tables on a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accord.runs.text import Cells, align, numeric


def print_cells(console: Console, cells: Cells, title: str | None = None) -> None:
    """A table: drawn on a terminal that it fits into; plain aligned columns anywhere else."""
    widths = _widths(cells, console.width) if console.is_terminal else None
    if widths is None:
        console.print(
            "\n".join([*([title] if title else []), *align(cells)]), highlight=False, markup=False, soft_wrap=True
        )
        return
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for heading, width, right in zip(cells[0], widths, numeric(cells), strict=True):
        table.add_column(Text(heading), justify="right" if right else "left", width=width)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    console.print(table)


def _widths(cells: Cells, room: int) -> list[int] | None:
    """Widths that fit into so many characters, cells wrapped between words where need be; None if there is no such
    thing."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    while sum(widths) > room - 2 * len(widths):
        wide = [c for c, width in enumerate(widths) if width > least[c]]
        if not wide:
            return None
        widths[max(wide, key=lambda c: widths[c])] -= 1
    return widths
