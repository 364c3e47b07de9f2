"""`accord settings`: every key of an experiment file."""

import json
from typing import Annotated

import typer

from accord.cli.shared import print_table
from accord.core.errors import AccordError, did_you_mean


def settings(
    section: Annotated[
        str | None, typer.Argument(metavar="SECTION", help="One section only.", show_default=False)
    ] = None,
) -> None:
    """Explain every key of an experiment file: its default and what it is for.

    A dash means that there is none, or that it depends on the algorithm, the split or the model; `accord run FILE
    --dry-run` shows which.

    Examples:

    * `accord settings`

    * `accord settings algorithm`
    """
    from accord.experiments.reference import keys
    from accord.experiments.settings import SECTIONS

    if section is not None and section not in SECTIONS:
        raise AccordError(f"there is no section {section!r}: {did_you_mean(section, SECTIONS)}")
    rows = [[key, "-" if default is None else json.dumps(default), about] for key, default, about in keys()]
    print_table(
        [["key", "default", "what it is"], *(row for row in rows if section in (None, row[0].partition(".")[0]))]
    )
