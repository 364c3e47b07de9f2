"""`accord sweep`: a grid of runs from one file."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.cli.shared import AsJson, Overrides, Rule, name_the_page, print_time, tell, train_all

if TYPE_CHECKING:
    from accord.experiments.sweep import PlannedRun


def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An experiment file with a [sweep] table.", show_default=False)
    ],
    overrides: Overrides = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the runs' folders and start over.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "--plan", help="List the runs, their groups and folders; train nothing.")
    ] = False,
    select: Rule = None,
    as_json: AsJson = False,
) -> None:
    """Train a grid of settings, many runs at once.

    The file's `[sweep]` table gives a key several values: `"train.lr" = [0.01, 0.02, 0.05]`. Every combination is
    trained with every seed of `run.seeds`. On a GPU, runs with the same model, data and batch size train in lockstep,
    as lanes of one batch; others, and runs on a CPU unless `run.engine` is vectorised, train one after another.

    With `data.unseen = "each"` every combination is trained once per client, which is left out, and results are one
    table: a row per method, a column per client.

    Each run has the folder that `accord run` with its values would give it. Finished runs are not repeated, and stopped
    ones are continued, without `--resume`.

    Examples:

    * `accord sweep experiments/sweep.toml`

    * `accord sweep experiments/sweep.toml --dry-run`

    * `accord sweep experiments/sweep.toml train.rounds=50 run.seeds=0,1`
    """
    from accord.experiments.selection_check import rehearse
    from accord.experiments.sweep import read

    runs = read(file, overrides or [])
    for experiment in {id(run.experiment): run.experiment for run in runs}.values():
        if select is not None:
            rehearse(select, experiment)
        experiment.check_here()
    if dry_run:
        _print_plan(runs, as_json)
        return
    options = [*(["--select", select] if select else []), *(["--json"] if as_json else [])]
    again = shlex.join(["accord", "sweep", str(file), *(overrides or []), *options])
    _train(runs, fresh, select, as_json, f"To go on: {again}")


def _train(runs: "list[PlannedRun]", fresh: bool, rule: str | None, as_json: bool, hint: str) -> None:
    from accord.console.tables import show_results
    from accord.runs.reader import load

    console = Console(stderr=True)
    left, asked = train_all(runs, hint, fresh=fresh, note_common_class=True)
    begun = [run.folder for run in runs if (run.folder / "experiment.json").exists()]
    show_results([load(folder) for folder in begun], rule, as_json)
    name_the_page(begun, console)
    if left:
        tell(console, f"Stopped early. {hint}")
        raise typer.Exit(130 if asked else 0)


def _print_plan(runs: "list[PlannedRun]", as_json: bool) -> None:
    from accord.console.progress import watcher_for
    from accord.experiments.sweep import preview

    with watcher_for(Console(stderr=True)) as watcher:
        ahead = preview(runs, watcher.data)
    if as_json:
        print(json.dumps(ahead, indent=2))
        return
    print(f"{ahead['runs']} runs in {len(ahead['groups'])} group{'' if len(ahead['groups']) == 1 else 's'}")
    for number, group in enumerate(ahead["groups"], 1):
        print(f"\ngroup {number}: {group['about']}")
        for run in group["folders"]:
            print(f"  {run['title']}  {run['folder']}")
    print()
    print_time(runs)
