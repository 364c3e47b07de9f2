"""`accord report`: runs as a page that opens offline, or served on this machine while they go on."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from accord.cli.shared import tell
from accord.core.errors import AccordError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run folders, folders that hold some, or results of `accord reproduce` (JSON).",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; left out, report.html.", show_default=False),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the page on this machine, while runs go on; it updates by itself.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="With --live: the port; 0 takes any that is free. Left out, 8737.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a page of runs: results, learning curves, gaps, clients, agreement, grids, and the papers' numbers beside
    ours.

    The page is one file. It needs no network, no server and no installation: mail it, keep it, print it.

    Examples:

    * `accord report runs -o report.html`

    * `accord report runs/reproduce`

    * `accord report --live runs`
    """
    if live and output is not None:
        raise AccordError("--live serves the page and --output writes it to a file: give one of them")
    if port is not None and not live:
        raise AccordError("--port is where --live serves the page: a file needs none")
    console = Console(stderr=True)
    if live:
        from accord.report.live import serve

        serve(runs, 8737 if port is None else port, lambda text: tell(console, text))
        return
    _write(runs, output or Path("report.html"), console)


def _write(runs: list[Path], output: Path, console: Console) -> None:
    from accord.core.files import write_text
    from accord.report import gather, look, page

    sources = look(runs)
    if not output.parent.is_dir():
        raise AccordError(f"there is no folder {output.parent} to write {output.name} to")
    if output.is_dir():
        raise AccordError(f"{output} is a folder: give the name of a file, such as {output / 'report.html'}")
    data = gather(sources)
    if not data["settings"] and not data["papers"]:
        raise AccordError(data["notices"][0])  # why there is nothing to show
    write_text(output, page(data))
    for notice in data["notices"]:
        tell(console, notice)
    print(
        f"{output}: {_count(len(sources.runs), 'run')}, {_count(len(data['settings']), 'setting')},"
        f" {output.stat().st_size / 1e6:.1f} MB"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
