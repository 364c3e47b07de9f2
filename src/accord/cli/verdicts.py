"""`accord verdicts`: the replication report, from results that were committed."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accord.cli.shared import tell
from accord.core.errors import AccordError


def verdicts(
    folder: Annotated[Path, typer.Argument(help="Where `accord reproduce` wrote its results.")] = Path(
        "runs/reproduce"
    ),
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("replication/README.md"),
) -> None:
    """Write the replication report: ours beside theirs for every study in a folder, and a verdict on every claim of the
    papers. The same as a page, with curves, is written beside it: index.html."""
    from accord.core.files import write_text
    from accord.studies.html import html
    from accord.studies.page import page
    from accord.studies.results import read_all

    files = sorted(folder.glob("*.json"))
    if not files:
        raise AccordError(f"there are no results in {folder}: accord reproduce STUDY writes them")
    results = read_all(files, partial(tell, Console(stderr=True)))
    text = page(results)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, text)
    write_text(output.with_name("index.html"), html(text, results))
    print(text.partition("\n")[0])
    print(f"{output}: {len(results)} stud{'y' if len(results) == 1 else 'ies'}")
