"""`accord run`: train what an experiment file describes."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.cli.shared import AsJson, Overrides, Rule, train_experiments
from accord.cli.sweep import sweep
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from accord.experiments.experiment import Experiment


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment file in TOML.", show_default=False)],
    overrides: Overrides = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped, or extend a finished one.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the run's folder and start over.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "--plan", help="Print the settings and what they cost; train nothing.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", show_default=False, help="Train on the Ray cluster at HOST:PORT, or auto."
        ),
    ] = None,
    select: Rule = None,
    as_json: AsJson = False,
) -> None:
    """Train what an experiment file describes, once per seed.

    Settings on the command line replace the file's: `section.key=value`, with commas for lists; `accord settings`
    explains every key. If one picks another algorithm, split or model, the file's options for the old one are dropped.

    Each run has a folder below `run.folder`, named after its settings. A run that was stopped, even by kill -9, is
    continued with `--resume`; the result is the same as without the stop. With a larger `train.rounds`, `--resume`
    extends a finished run.

    With `data.unseen = "each"` it trains once for each client, each time without that client, and prints one table;
    runs that are done are not repeated, and stopped ones are continued, as by `accord sweep`.

    Examples:

    * `accord run my.toml`

    * `accord run my.toml algorithm.mask.tau=0.6 run.seeds=0,1,2,3`

    * `accord run my.toml train.rounds=400 --resume`

    * `accord run my.toml data.unseen=each`

    * `accord run my.toml --dry-run`

    * `accord run my.toml --ray 10.0.0.1:6379`
    """
    if resume and fresh:
        raise AccordError("--resume continues a run and --fresh deletes it: give one of them")
    from accord.data.unseen import EACH
    from accord.experiments.experiment import read
    from accord.experiments.selection_check import rehearse

    changes = [*(overrides or []), *(["run.engine=ray"] if ray is not None else [])]
    experiment = read(file, changes)
    if experiment.settings.data.unseen == EACH:
        if ray is not None and not dry_run:
            _connect(ray)
        sweep(file, changes, fresh=fresh, dry_run=dry_run, select=select, as_json=as_json)
        return
    if select is not None:
        rehearse(select, experiment)
    if dry_run:
        _print_preview(experiment, as_json)
        return
    if ray is not None:
        _connect(ray)
    options = [
        *(["--ray", ray] if ray is not None else []),
        *(["--select", select] if select else []),
        *(["--json"] if as_json else []),
    ]
    again = shlex.join(["accord", "run", str(file), *(overrides or []), "--resume", *options])
    train_experiments([experiment], resume=resume, fresh=fresh, rule=select, as_json=as_json, hint=f"To go on: {again}")


def _connect(cluster: str) -> None:
    from accord.engines.ray import connect  # here, because Ray may not be installed

    connect(cluster)


def _print_preview(experiment: "Experiment", as_json: bool) -> None:
    from accord.console.progress import watcher_for
    from accord.experiments.cost import as_text, preview

    with watcher_for(Console(stderr=True)) as watcher:
        ahead = preview(experiment, watcher)
    print(json.dumps(ahead, indent=2) if as_json else as_text(ahead))
