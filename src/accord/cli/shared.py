"""What the files of the command share."""

import errno
import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.core.errors import AccordError

if TYPE_CHECKING:
    from accord.experiments.execute import Interrupt
    from accord.experiments.experiment import Experiment
    from accord.experiments.sweep import PlannedRun
    from accord.runs.run import Run

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, the user's share of it, or what a file may hold
AsJson = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]

Rule = Annotated[
    str | None,
    typer.Option(
        "--select",
        metavar="RULE",
        show_default=False,
        help=(
            "Which round is reported: `held-out` (the best on held-out data, the default), `last10` (mean of what was"
            " evaluated in the last ten rounds), `window(a,b)` (mean of rounds a to b) or `oracle` (the best on the"
            " test set)."
        ),
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        show_default=False,
        help="Settings that replace the file's, such as algorithm.mask.tau=0.6.",
    ),
]

Which = Annotated[
    str, typer.Option("--which", metavar="last|held-out", help="The last round's model, or the best on held-out data.")
]
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:OBJECT",
        show_default=False,
        help=(
            "The run's model, if neither accord nor an installed package registers it: an nn.Module, or a callable"
            " without arguments that returns one. accord imports it, and nothing that the run folder names."
        ),
    ),
]


def finite(value: float | None) -> float | None:
    """Refuses NaN and infinities, which an option's bounds let pass."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def tell(console: Console, text: str) -> None:
    """A sentence that a person should not miss."""
    console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


def print_table(cells: list[list[str]]) -> None:
    """A table on standard output."""
    from accord.console.tables import print_cells

    print_cells(Console(), cells)


def print_time(runs: "list[PlannedRun]") -> None:
    """What is left of the runs, and a guess at its time from a short try on this device, made once for each kind."""
    from accord.experiments.pace import ahead, in_hours, may_end_early

    shares = ahead(runs, lambda text: tell(Console(stderr=True), text))
    for share in shares:
        how = "one by one" if share.at_once == 1 else f"{share.at_once} in lockstep"
        print(f"  {share.kind}: {share.runs} runs, {share.rounds:,} rounds, {how}, {in_hours(share.seconds)}")
    if shares:
        total = in_hours(sum(share.seconds for share in shares))
        print(f"{'at most' if may_end_early(runs) else 'about'} {total} on this device")


def train_experiments(
    experiments: "list[Experiment]", *, resume: bool, fresh: bool, rule: str | None, as_json: bool, hint: str
) -> None:
    """Trains every experiment, prints one table, and gives the hint if not all was done."""
    from accord.console.progress import watcher_for
    from accord.console.tables import show_results
    from accord.experiments.execute import Interrupt, execute
    from accord.runs.reader import load

    console, interrupt = Console(stderr=True), Interrupt()
    runs: list[Run] = []
    left = 0  # runs that have rounds before them
    with _going_on(console, hint):
        with watcher_for(console) as watcher:
            for experiment in experiments:
                new = (
                    [] if interrupt.asked else list(execute(experiment, watcher, interrupt, resume=resume, fresh=fresh))
                )
                wanted = experiment.settings
                left += len(wanted.run.seeds) - sum(
                    run.flat is not None or run.rounds >= wanted.train.rounds for run in new
                )
                runs += new
        show_results([load(run.folder) for run in runs if run.folder], rule, as_json)
        make_the_page([run.folder for run in runs if run.folder], console)
    if left:
        tell(console, f"Stopped early. {hint}")
        raise typer.Exit(130 if interrupt.asked else 0)


@contextmanager
def _going_on(console: Console, hint: str) -> Iterator[None]:
    """Within it training that is cut short, by Ctrl-C twice or a full disk, says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        tell(console, f"Stopped at once; what was written is whole. {hint}")
        raise typer.Exit(130) from None
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise AccordError(f"{error.filename}: {error.strerror}. What was written is whole: make room. {hint}") from None


def train_all(
    runs: "list[PlannedRun]",
    hint: str,
    *,
    fresh: bool = False,
    interrupt: "Interrupt | None" = None,
    noted: set[str] | None = None,
    note_common_class: bool = False,
) -> tuple[int, bool]:
    """Trains what is left of the runs: how many have rounds before them still, and whether that was asked for, by
    Ctrl-C or because time is up. A second Ctrl-C ends the command here; `hint` says how to go on. Notes that were
    `noted` before are not repeated; `note_common_class` is the sweep's."""
    from accord.console.progress import watcher_for
    from accord.experiments.execute import Interrupt
    from accord.experiments.sweep import sweep

    console, interrupt = Console(stderr=True), interrupt or Interrupt()
    with _going_on(console, hint), watcher_for(console, noted) as watcher:
        left = sweep(runs, watcher, interrupt, partial(tell, console), fresh=fresh, note_common_class=note_common_class)
    return left, interrupt.asked


def this_command() -> str:
    """What was typed, to be typed again."""
    return shlex.join(["accord", *sys.argv[1:]])


def make_the_page(folders: list[Path], console: Console) -> None:
    """A page of runs that lie in one folder, beside them, and its path."""
    if folders:
        from accord.core.files import write_text
        from accord.report import gather, look, page

        path = folders[0].parent / "page.html"
        try:
            write_text(path, page(gather(look(folders))))
            message = f"A page of it: {path}"
        except (OSError, AccordError) as error:  # the runs are done: their page is not worth an error
            message = f"There is no page of it: {error}"
        console.print(message, highlight=False, markup=False, soft_wrap=True)


def name_the_page(folders: list[Path], console: Console) -> None:
    """The command that makes a page of runs: of the one, or of the folders that hold them."""
    if folders:
        where = folders if len(folders) == 1 else dict.fromkeys(folder.parent for folder in folders)
        command = shlex.join(["accord", "report", *map(str, where)])
        console.print(f"A page of it: {command}", style="dim", highlight=False, markup=False, soft_wrap=True)
