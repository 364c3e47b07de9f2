"""`accord show`: results read back from run folders."""

from pathlib import Path
from typing import Annotated

import typer

from accord.cli.shared import AsJson, Rule


def show(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that hold some.", show_default=False)
    ],
    select: Rule = None,
    as_json: AsJson = False,
) -> None:
    """Read results back: one row per setting, averaged over seeds; a single run in detail.

    Examples:

    * `accord show runs`

    * `accord show runs/mnist-fedadam-gma-1f0c2d3e4b-s0`

    * `accord show runs --select last10 --json`
    """
    from accord.console.tables import show_results
    from accord.runs.reader import load_all

    show_results(load_all(runs), select, as_json)
