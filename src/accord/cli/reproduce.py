"""`accord reproduce`: the papers' tables, and other studies, as one command each."""

import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from accord.cli.shared import finite, print_table, this_command, train_all
from accord.cli.study_arguments import check_name, chosen_cells, seed_numbers, table_rule
from accord.cli.study_output import print_study, warn, write_results
from accord.cli.study_plan import print_analysis_plan, print_study_plan
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accord.experiments.sweep import PlannedRun
    from accord.studies import Analysis
    from accord.studies.carry_out import CarriedOut
    from accord.studies.study import Study


def reproduce(
    study: Annotated[str | None, typer.Argument(help="A study of --list, or a file of yours.")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings: `section.key=value`.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List studies.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CELLS", help="Some cells: `dataset=mnist+fmnist`, `dataset=mnist,clients=500`."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(metavar="N", min=1, help="Rounds of every run.")] = None,
    patience: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="End runs that N rounds have not improved; --rounds is the most."),
    ] = None,
    seeds: Annotated[list[str] | None, typer.Option(metavar="SEEDS", help="Seeds, such as `0,1`.")] = None,
    grid: Annotated[bool, typer.Option(help="Tune over the study's grid, or take its settings.")] = True,
    grow: Annotated[
        int, typer.Option(metavar="N", min=0, help="Widen a grid with its best at an edge, at most N times.")
    ] = 0,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where runs and results go.")] = Path("runs/reproduce"),
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0,
            callback=finite,
            help="Stop at the end of the round after N minutes; what settles most goes first.",
        ),
    ] = None,
    more_seeds: Annotated[
        bool | None,
        typer.Option(
            "--more-seeds/--no-more-seeds",
            show_default="on with --minutes",
            help="At the end, add seeds (up to eight) where results are undecided.",
        ),
    ] = None,
    export_to: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Pack finished runs into a small file.")
    ] = None,
    import_from: Annotated[
        list[Path] | None, typer.Option("--import", metavar="FILE", help="Take up runs that --export packed.")
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Keep the cells of earlier commands, and train none again that they finished.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", "--dry-run", help="Estimate runs and time; train nothing.")] = False,
    select: Annotated[
        str | None, typer.Option(metavar="RULE", help="The table's rule: held-out, last10, oracle, a study's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results, or the plan, as JSON.")] = False,
) -> None:
    """Rerun a table or figure of the papers, cell by cell, and print ours beside theirs.

    Every method is tuned over the same grid with the same seeds. Finished runs are not repeated, and stopped ones are
    continued. On a GPU, runs that can share a batch train in lockstep.

    Examples:

    * `accord reproduce --list`

    * `accord reproduce tmlr-table2 --only dataset=fmnist,clients=500 --rounds 50`

    * `accord reproduce tmlr-table2 --plan`

    * `accord reproduce tmlr-table9 --rounds 1000 --patience 50`

    * `accord reproduce tmlr-table2 --minutes 25 --import before.xz --export after.xz`

    * `accord reproduce tmlr-table2 --minutes 25 --no-more-seeds`
    """
    from accord.studies import Analysis, find
    from accord.studies.export import check_place, export_runs
    from accord.studies.finished import Finished, finished, grown_before
    from accord.studies.outcome import plain
    from accord.studies.results import added
    from accord.studies.study import POOL

    if listing or study is None:
        _list_studies()
        return
    more = {"train.rounds": rounds, "train.patience": patience}
    changes = [*(overrides or []), *(f"{key}={value}" for key, value in more.items() if value)]
    chosen = find(study)
    check_name(study, chosen.name)
    if isinstance(chosen, Analysis):
        if only or select or minutes is not None or more_seeds is not None or export_to or add:
            raise AccordError(
                f"{chosen.name} is an analysis, which has no cells to choose from: leave out --only, --select,"
                " --minutes, --more-seeds, --export and --add"
            )
        chosen = chosen.changed([*changes, *([f"run.seeds={','.join(seeds)}"] if seeds else [])])
        _take_up(import_from, folder / POOL)
        if plan:
            print_analysis_plan(chosen, folder / POOL, as_json)
        else:
            _analyse(chosen, folder, as_json)
        return
    chosen, rule, asked = chosen_cells(chosen, only), table_rule(chosen, select), seed_numbers(seeds)
    chosen = chosen.changed(changes, asked, grid)
    _take_up(import_from, folder / POOL)
    path, earlier = folder / f"{chosen.name}.json", Finished()
    changed = sorted(change for change in changes if not change.startswith("run.")) + ["no grid"] * (not grid)
    if add:
        added({**plain(chosen, [], this_command()), "changed": changed}, path)  # refuses before anything is trained
        chosen = grown_before(chosen, path)
        together = bool(grow or more_seeds or minutes is not None)
        earlier = finished(chosen, folder / POOL, path, asked, together=together)
    if plan:
        print_study_plan(chosen.without(earlier.cells), folder / POOL, as_json)
        return
    to_train = chosen.without(result.cell for result in earlier.kept)
    if earlier.kept:
        warn(f"{len(earlier.kept)} cell{'s' * (len(earlier.kept) > 1)} left out: {path} has the results.")
    if export_to is not None and not to_train.cells:
        raise AccordError(
            f"there is nothing to export to {export_to}: the runs behind {path} are not on this machine (--import takes"
            " them up)"
        )
    if export_to is not None:
        check_place(export_to)  # not after hours of training
    done, late = _train(to_train, folder / POOL, rule, grow, minutes, more_seeds)
    written = {**plain(chosen, done.results, this_command(), done.runs), "changed": changed}
    whole = added(written, path) if add else written
    if done.results:
        write_results(path, whole)
    if export_to is not None:
        count = export_runs([run.folder for run in done.runs], export_to)
        warn(f"{export_to}: {count} runs, {export_to.stat().st_size / 1e6:.1f} MB")
    _print_results(whole, chosen, rule, as_json)
    _print_end(done, late, path)
    if done.cut_short and not late:
        raise typer.Exit(130)


def _list_studies() -> None:
    from accord.data import available
    from accord.studies import Analysis, everything

    for name, each in everything().items():
        what = f"analysis: {each.analysis}" if isinstance(each, Analysis) else f"{len(each.cells)} cells"
        lacking = [data for data in each.data if not available(data)]
        print(f"{name:28s} {each.title} ({what}{'; not here: ' + ', '.join(lacking) if lacking else ''})")


def _print_results(whole: dict[str, Any], chosen: "Study", rule: str, as_json: bool) -> None:
    """What the results file has of the cells that were asked for, in the study's order."""
    from accord.core.files import json_bytes
    from accord.studies.results import result_of

    known = {result_of(cell).cell.key: cell for cell in whole["cells"]}
    cells = [known[cell.key] for cell in chosen.cells if cell.key in known]
    if as_json:
        print(json_bytes({**whole, "cells": cells}).decode(), end="")
    else:
        print_study(chosen, [result_of(cell) for cell in cells], rule)


def _print_end(done: "CarriedOut", late: bool, path: Path) -> None:
    """How a command ended that was cut short, and where to look."""
    if done.cut_short:
        open_cells = "1 cell is not complete" if done.missing == 1 else f"{done.missing} cells are not complete"
        what = open_cells if done.missing else "all cells are complete, but seeds or points were still to be added"
        warn(f"{'Time is up' if late else 'Stopped early'}: {what}. The same command goes on.")
    if not (done.cut_short and done.missing):
        page = shlex.join(["accord", "report", str(path)])
        Console(stderr=True).print(f"A page of it: {page}", style="dim", highlight=False, markup=False, soft_wrap=True)


def _take_up(files: "Sequence[Path] | None", pool: Path) -> None:
    from accord.studies.export import import_runs

    for path in files or []:
        new, known = import_runs(path, pool)
        warn(f"{path}: {new} runs taken up, {known} were here.")


def _train(
    study: "Study", pool: Path, rule: str, grow: int, minutes: float | None, more_seeds: bool | None
) -> "tuple[CarriedOut, bool]":
    """The study as far as it came, and whether its time is up."""
    from accord.experiments.execute import Interrupt
    from accord.studies.carry_out import CarriedOut, carry_out
    from accord.studies.statistics import scipy_stats

    if more_seeds:
        scipy_stats()  # asked for by name, it is an error without
    if not study.cells:
        return CarriedOut(study, [], []), False
    by_need = minutes is not None and find_spec("scipy") is not None
    if minutes is not None and not by_need:
        warn("Without scipy (accord-fl[studies]) cells go in their order, and no seeds are added.")
    interrupt = Interrupt() if minutes is None else Interrupt(60 * minutes)

    noted: set[str] = set()  # by all that is trained, part by part

    def train(runs: "list[PlannedRun]") -> tuple[int, bool]:
        return train_all(runs, f"To go on: {this_command()}", interrupt=interrupt, noted=noted)

    adds = by_need if more_seeds is None else more_seeds
    done = carry_out(study, pool, rule, train, warn, grow=grow, by_need=by_need, more_seeds=adds)
    return done, interrupt.late


def _analyse(analysis: "Analysis", folder: Path, as_json: bool) -> None:
    """An analysis: its files in a folder of its own, and beside it what came of it."""
    from accord.analyses.output import write
    from accord.analyses.style import can_draw
    from accord.cli.analyse import train_arms
    from accord.cli.analysis_output import print_analysis, ready
    from accord.studies.analysis import written
    from accord.studies.study import POOL
    from accord.studies.text import printed_cells

    kind = "png" if can_draw() else "none"
    if kind == "none":
        warn("There will be no figure, which needs matplotlib: pip install 'accord-fl[plot]'")
    ready(folder / analysis.name, kind)
    result = analysis.carry_out(folder / POOL, train_arms)
    files = write(result, folder / analysis.name, kind)
    results = written(analysis, result, files, this_command())
    write_results(folder / f"{analysis.name}.json", results)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    print(analysis.title)
    print_analysis(result, files)
    if analysis.printed:
        print("\nas printed")
        print_table(printed_cells(results["printed"]))
