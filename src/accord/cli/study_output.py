"""What `accord reproduce` prints of a study, and the file that keeps it."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from accord.cli.shared import tell
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from accord.studies.outcome import Result
    from accord.studies.study import Study


def warn(text: str) -> None:
    """A sentence that a person should not miss, apart from what is printed."""
    tell(Console(stderr=True), text)


def write_results(path: Path, content: object) -> None:
    from accord.core.files import write_json

    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


def print_study(study: "Study", results: "list[Result]", rule: str) -> None:
    """A row per cell: ours by the rule and by the others, the settings chosen, and theirs; then the rivals'
    differences."""
    from accord.console.tables import print_cells
    from accord.core.names import listed
    from accord.studies.differences import compare
    from accord.studies.text import comparison_cells, result_cells

    console = Console()
    console.print(f"[bold]{study.title}[/bold]")
    print_cells(console, result_cells(study, results, rule))
    comparisons = compare(study, results, "test", rule)
    if not comparisons:
        return
    try:
        cells = comparison_cells(comparisons)
    except AccordError as error:  # no scipy: what was trained is kept, and its table printed
        warn(f"There are no differences in the table: {error}")
        return
    console.print(
        f"\nahead of {study.against} on the test set, paired by seed, by {rule} (95 % interval; called after Holm's"
        " correction)"
    )
    print_cells(console, cells)
    if alone := study.without_control:
        warn(
            f"No control beside {listed(alone)}: what a mask gains may be its shorter step's, which a rival NAME-length"
            " would show (a plain step of the mask's length)."
        )
