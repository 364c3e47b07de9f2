"""`accord verdicts`: the replication report, from results that were committed."""

from pathlib import Path
from typing import Annotated

import typer

from accord.core.errors import AccordError

_REPORT = "numbers answered"  # in the first line of every report


def verdicts(
    folder: Annotated[Path, typer.Argument(help="Where `accord reproduce` wrote its results.")] = Path(
        "runs/reproduce"
    ),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The page to write.",
            show_default="README.md beside a folder called results, and in any other",
        ),
    ] = None,
) -> None:
    """Write the replication report: ours beside theirs for every study in a folder, a verdict on every claim of the
    papers, and what is left to run. The same as a page, with curves, is written beside it: index.html.

    Where the folder has STUDY.plan.json, what `accord reproduce STUDY --plan --add --json` printed, the report has the
    hours that are left."""
    from accord.core.files import write_text
    from accord.studies.html import html
    from accord.studies.page import page
    from accord.studies.plan import files_in, read_plan
    from accord.studies.results import read_all

    output = output or (folder.parent if folder.name == "results" else folder) / "README.md"
    files, plans = files_in(folder)
    if not files:
        raise AccordError(f"there are no results in {folder}: accord reproduce STUDY writes them")
    results = read_all(files)
    text = page(results, [read_plan(file) for file in plans])
    if output.exists() and _REPORT not in output.read_text(encoding="utf-8", errors="replace").partition("\n")[0]:
        raise AccordError(f"{output} is there and no report of accord verdicts: name another page with -o")
    written = {output: text, output.with_name("index.html"): html(text, results)}  # both, before either is written
    output.parent.mkdir(parents=True, exist_ok=True)
    for path, content in written.items():
        write_text(path, content)
    print(text.partition("\n")[0])
    print(f"{output}: {len(results)} stud{'y' if len(results) == 1 else 'ies'}")
