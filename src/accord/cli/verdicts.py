"""`accord verdicts`: the replication report, from results that were committed."""

import re
from pathlib import Path
from typing import Annotated

import typer

from accord.core.errors import AccordError

_PAGE = "index.html"


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
    from accord.studies import everything
    from accord.studies.bundled import changes
    from accord.studies.html import html
    from accord.studies.page import page
    from accord.studies.plan import files_in, read_plan
    from accord.studies.results import read_all

    if output is None:
        place = folder if folder.name else folder.resolve()  # `.` has no name
        output = place.parent if place.name == "results" else folder
    if output.is_dir():
        output /= "README.md"
    files, plans = files_in(folder)
    if not files:
        raise AccordError(f"there are no results in {folder}: accord reproduce STUDY writes them")
    _check_replaceable(output)
    results = read_all(files)
    text = _with_links_that_lead(page(results, [read_plan(file) for file in plans]), output.parent)
    # both are made before either is written; on a disk that is nearly full the larger one fails, so it goes first
    written = {output.with_name(_PAGE): html(text, results), output: text}
    output.parent.mkdir(parents=True, exist_ok=True)
    for path, content in written.items():
        write_text(path, content)
    print(text.partition("\n")[0])
    known = everything()
    if changed := sum(bool(changes(one, known)) or one.name not in known for one in results):
        print(
            f"{changed} of {len(results)} files are of studies of yours or of changed settings: they answer no number"
        )
    print(f"{output}: {len(results)} stud{'y' if len(results) == 1 else 'ies'}")


def _check_replaceable(output: Path) -> None:
    """Refuses, before any work, to write over what is no report of an earlier time."""
    from accord.core.files import check_plain
    from accord.studies.html import MARK as MARK_OF_PAGE
    from accord.studies.page import FIRST_LINE

    if output.suffix == ".html":
        raise AccordError(f"-o names the report in Markdown, such as README.md, got {output}: {_PAGE} comes beside it")
    is_report = {
        output: lambda text: FIRST_LINE.match(text),
        output.with_name(_PAGE): lambda text: MARK_OF_PAGE in text[:1000],
    }
    for path, matches in is_report.items():
        check_plain(path)
        if path.exists() and not (path.is_file() and matches(path.read_text(encoding="utf-8", errors="replace"))):
            raise AccordError(f"{path} is there and no report of accord verdicts: name another place with -o")


def _with_links_that_lead(text: str, folder: Path) -> str:
    """Links to accord's documentation where a report lies beside it, as in accord's repository; else names alone."""

    def link(match: re.Match[str]) -> str:
        return match[0] if (folder / match[2]).exists() else f"{match[1]} (accord, {match[2].removeprefix('../')})"

    return re.sub(r"\[([^]]+)\]\((\.\./docs/[^)]+)\)", link, text)
