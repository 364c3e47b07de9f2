"""`accord choose`: which rule for your data and model."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from accord.cli.shared import AsJson, Overrides, finite, print_table, print_time, this_command, train_all
from accord.cli.study_output import warn, write_results
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from accord.experiments.sweep import PlannedRun
    from accord.studies.choose import Question, Reached


def choose(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="An experiment file with your data and model.", show_default=False),
    ],
    overrides: Overrides = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            show_default=False,
            help="Stop after so many minutes, and answer by what is complete; left out: all stages.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where runs and choice.json go; left out, choose-NAME of the file in run.folder.", show_default=False
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Make a page of it too.", show_default=False)
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            "--plan",
            help="List the stages and estimate their time; nothing is kept of the rounds that are tried for it.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find out whether a mask or a server rule is better than plain averaging on your data.

    Tries plain averaging, masks with their controls and server rules, each with the same number of rates around the
    file's, and judges them on clients that took no part in training: up to twelve named clients are left out in turn,
    of more some are unseen. Rates and rule are chosen by held-out data of the clients that trained, never by the client
    that judges. The answer is a paragraph; `choice.json` has its figures.

    What settles most is trained first. Finished runs are not repeated: the same command goes on after Ctrl-C, or with
    more `--minutes`.

    Examples:

    * `accord choose my.toml --minutes 10`

    * `accord choose my.toml --dry-run`

    * `accord choose my.toml train.rounds=50 --report page.html`
    """
    from accord.console.progress import watcher_for
    from accord.experiments.execute import Interrupt
    from accord.studies.choice import decide, paragraph, plain, table
    from accord.studies.choose import carry_out, read
    from accord.studies.statistics import scipy_stats

    scipy_stats()  # no judge without it
    _check_page(report)
    noted: set[str] = set()  # by all that is read and trained, part by part
    with watcher_for(Console(stderr=True), noted) as watcher:
        question = read(file, overrides or [], watcher.data)
    for note in question.notes:
        warn(note)
    place = folder or question.folder
    if dry_run:
        _print_stages(question, place)
        return
    interrupt = Interrupt() if minutes is None else Interrupt(60 * minutes)

    def train(runs: "list[PlannedRun]") -> tuple[int, bool]:
        return train_all(runs, f"To go on: {this_command()}", interrupt=interrupt, noted=noted)

    reached = carry_out(question, place, train, warn)
    if reached.stage is None:
        _say_too_little(question, reached, late=interrupt.late)
    choice = decide(question, reached)
    written = plain(choice, this_command(), [run.folder.name for run in reached.runs_done])
    write_results(place / "choice.json", written)
    if as_json:
        print(json.dumps(written, indent=2))
    else:
        print_table(table(choice))
        print(f"\n{paragraph(choice)}")
    _make_page(report, place)
    if reached.stopped and not interrupt.late:
        raise typer.Exit(130)


def _print_stages(question: "Question", folder: Path) -> None:
    from accord.studies.carry_out import all_runs

    # the last stage holds all others, and to name a run takes a while
    named = {_place(run.values, run.seed): run for run in all_runs(question.stages[-1].study.named(folder), warn)}
    runs: dict[Path, PlannedRun] = {}
    for number, stage in enumerate(question.stages, 1):
        places = [
            _place({**cell.values, **point}, seed)
            for cell in stage.study.cells
            for point in cell.points
            for seed in cell.seeds
        ]
        of_stage = [named[place] for place in places if place in named]
        more = {run.folder: run for run in of_stage if run.folder not in runs}
        print(f"{number}. {stage.adds}: {len(more)} runs, {sum(run.done for run in more.values())} of them done")
        runs |= more
    judges = f"each left out in turn: {', '.join(question.clients)}" if question.clients else "unseen clients"
    print(f"{len(runs)} runs in {folder}, judged by {question.metric.name} on {judges}")
    print_time(list(runs.values()))


def _place(values: "Mapping[str, object]", seed: int) -> str:
    """A run by the values that set it apart."""
    return repr((sorted(values.items()), seed))


def _say_too_little(question: "Question", reached: "Reached", *, late: bool) -> NoReturn:
    """Not even the first comparison is complete: that is no answer."""
    rules, seeds = question.stages[0].study.axes["rule"], question.stages[0].study.seeds
    text = (
        f"{reached.done} of the {reached.runs} runs of the first comparison ({', '.join(rules)}; {len(seeds)} seeds)"
        " are done, too few to decide anything: the same command goes on"
    )
    if late or not reached.stopped:
        raise AccordError(f"{text}, with more --minutes" if late else text)
    warn(f"Stopped early: {text}.")
    raise typer.Exit(130)


def _check_page(output: Path | None) -> None:
    """Before anything is trained."""
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise AccordError(f"--report must be a file in a folder that is there, got {output}")


def _make_page(output: Path | None, folder: Path) -> None:
    from accord.core.files import write_text
    from accord.report import gather, look, page

    if output is None:
        shown = f"A page of it: {shlex.join(['accord', 'report', str(folder)])}"
    else:
        write_text(output, page(gather(look([folder]))))
        shown = f"A page of it: {output}"
    Console(stderr=True).print(shown, style="dim", highlight=False, markup=False, soft_wrap=True)
