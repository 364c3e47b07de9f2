"""What the files of the command share."""

from typing import Annotated

import typer
from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print results as JSON, for machines.")]


def tell(console: Console, text: str) -> None:
    """A sentence that a person should not miss."""
    console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


def print_table(cells: list[list[str]]) -> None:
    """A table on standard output."""
    from accord.display import print_cells

    print_cells(Console(), cells)
