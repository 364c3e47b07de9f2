"""Where an analysis goes: the options of `accord analyse` that say so, and what is printed of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.shared import finite, print_table

if TYPE_CHECKING:
    from accord.analyses.output import Result

Out = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where tables and figure go.")]
Kind = Annotated[str, typer.Option("--figure", metavar="KIND", help="png, svg, or none for the tables alone.")]
Tau = Annotated[
    float, typer.Option("--tau", callback=finite, help="Net agreement that a coordinate needs to pass whole.")
]
OUT = Path("analyses")


def ready(out: Path, kind: str) -> None:
    """Refuses what could not be written, before anything is trained."""
    from accord.analyses.output import check_folder
    from accord.analyses.style import check_kind

    check_kind(kind)
    check_folder(out)


def show_analysis(result: "Result", out: Path, kind: str) -> None:
    """Writes table, points and figure, prints the table, and says where they lie."""
    from accord.analyses.output import write

    print_analysis(result, write(result, out, kind))


def print_analysis(result: "Result", written: list[Path]) -> None:
    """The table, what is to be said of it, and where its files lie."""
    from accord.analyses.output import cells

    print_table(cells(result.table))
    print("\n".join([*result.notes, *map(str, written)]))
