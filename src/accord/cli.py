"""The command `accord`. Commands import what they need when they run, so that help is quick."""

import io
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from accord.cli_analyse import analyse_app
from accord.cli_compare import compare
from accord.cli_data import data_app
from accord.cli_privacy import membership
from accord.cli_report import report
from accord.cli_reproduce import reproduce, verdicts
from accord.cli_shared import AsJson, Overrides, Rule, make_the_page, print_table, show_results, tell
from accord.cli_sweep import sweep
from accord.errors import AccordError

if TYPE_CHECKING:
    from accord.experiment import Experiment
    from accord.run import Run

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Federated learning whose models hold up on data owners they have never met.

Start here:

* `accord demo` trains four algorithms on MNIST and prints one table

* `accord run experiments/quickstart.toml` trains what a file describes

* `accord run experiments/quickstart.toml --dry-run` prints its settings and what they cost

* `accord sweep experiments/sweep.toml` trains a grid of settings, many runs at once

* `accord show runs` reads the results back

* `accord report runs` makes a page of them

* `accord analyse --help` lists figures and tables to make of them

* `accord settings` explains every key of an experiment file
""",
)
app.add_typer(data_app, name="data")
app.add_typer(analyse_app, name="analyse")


def _print_version(asked: bool) -> None:
    if asked:
        try:
            print(f"accord {version('accord-fl')}")
        except PackageNotFoundError:
            print("accord, from a source tree that was not installed")
        raise typer.Exit


@app.callback()
def _accord(
    show_version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment file in TOML.", show_default=False)],
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped, or extend a finished one.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away what is there and start over.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the settings and what they cost; train nothing.")] = False,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", show_default=False, help="Train on the Ray cluster at HOST:PORT, or auto.")
    ] = None,
    select: Rule = None,
    as_json: AsJson = False,
) -> None:
    """Train what an experiment file describes, once per seed.

    Settings on the command line are written as in the file, as section.key=value; commas make lists; `accord settings` explains them. A
    setting that makes another choice, such as another algorithm, drops the options that the file gave the old one.

    Each run goes to a folder of its own below `run.folder`, named after the settings. One that was stopped, by Ctrl-C or even kill -9, goes
    on with `--resume` as if nothing had happened; on another kind of machine it says what differs. With a larger `train.rounds`, `--resume`
    extends a finished one.

    Examples:

    * `accord run my.toml`

    * `accord run my.toml algorithm.tau=0.6 run.seeds=0,1,2,3`

    * `accord run my.toml train.rounds=400 --resume`

    * `accord run my.toml --dry-run`

    * `accord run my.toml --ray 10.0.0.1:6379`
    """
    if resume and fresh:
        raise AccordError("--resume goes on with a run and --fresh throws it away: give one of them")
    from accord.experiment import read
    from accord.show import rehearse

    experiment = read(file, [*(overrides or []), *(["run.engine=ray"] if ray is not None else [])])
    rehearse(select, experiment)
    if dry_run:
        _print_preview(experiment, as_json)
        return
    if ray is not None:
        from accord.engines.ray import connect

        connect(ray)
    options = [*(["--ray", ray] if ray is not None else []), *(["--select", select] if select else []), *(["--json"] if as_json else [])]
    again = shlex.join(["accord", "run", str(file), *(overrides or []), "--resume", *options])
    _train([experiment], resume=resume, fresh=fresh, rule=select, as_json=as_json, hint=f"To go on: {again}")


app.command()(sweep)
app.command()(reproduce)
app.command()(verdicts)
app.command()(compare)
app.command()(membership)
app.command()(report)


@app.command()
def demo(overrides: Overrides = None) -> None:
    """Train FedAvg and FedAdam, with and without gradient masking, on 100 label-skewed MNIST clients plus 20 unseen ones.

    Gets MNIST if it is not there yet. Takes about two minutes on two cores. Results go to `runs/demo`, and so does a page of them.

    Examples:

    * `accord demo`

    * `accord demo train.rounds=10 run.seeds=0,1`
    """
    from accord.demo import with_data
    from accord.display import watcher_for

    console = Console(stderr=True)
    with watcher_for(console) as watcher:
        experiments, told = with_data(overrides or [], watcher.data)
    if told:
        tell(console, told)
    again = shlex.join(["accord", "demo", *(overrides or [])])
    _train(experiments, resume=False, fresh=True, rule=None, as_json=False, hint=f"To start over: {again}")


@app.command()
def show(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that hold some.", show_default=False)],
    select: Rule = None,
    as_json: AsJson = False,
) -> None:
    """Read results back: one row per setting, averaged over seeds; a single run in detail.

    Examples:

    * `accord show runs`

    * `accord show runs/mnist-fedadam-gma-1f0c2d3e4b-s0`

    * `accord show runs --select last10 --json`
    """
    from accord.show import find, load

    show_results([load(folder) for folder in find(runs)], select, as_json)


@app.command()
def settings(
    section: Annotated[str | None, typer.Argument(metavar="SECTION", help="One section only.", show_default=False)] = None,
) -> None:
    """Explain every key of an experiment file: its default and what it is for.

    A dash means that there is none, or that it depends on the algorithm, the split or the model; `accord run FILE --dry-run` shows which.

    Examples:

    * `accord settings`

    * `accord settings algorithm`
    """
    from accord.settings import SECTIONS, did_you_mean, keys

    if section is not None and section not in SECTIONS:
        raise AccordError(f"there is no section {section!r}: {did_you_mean(section, SECTIONS)}")
    rows = [[key, "-" if default is None else json.dumps(default), about] for key, default, about in keys()]
    print_table([["key", "default", "what it is"], *(row for row in rows if section in (None, row[0].partition(".")[0]))])


# ----------------------------------------------------------------------------------------------------------------- helpers


def _train(experiments: "list[Experiment]", *, resume: bool, fresh: bool, rule: str | None, as_json: bool, hint: str) -> None:
    """Trains every experiment, prints one table, and gives the hint if not all was done."""
    from accord.display import watcher_for
    from accord.execute import Interrupt, execute
    from accord.show import load

    console, interrupt = Console(stderr=True), Interrupt()
    runs: list[Run] = []
    left = 0  # runs that have rounds before them
    try:
        with watcher_for(console) as watcher:
            for experiment in experiments:
                new = [] if interrupt.asked else list(execute(experiment, watcher, interrupt, resume=resume, fresh=fresh))
                wanted = experiment.settings
                left += len(wanted.run.seeds) - sum(run.flat is not None or run.rounds >= wanted.train.rounds for run in new)
                runs += new
    except KeyboardInterrupt:
        tell(console, f"Stopped at once; what was written is whole. {hint}")
        raise typer.Exit(130) from None
    show_results([load(run.folder) for run in runs if run.folder], rule, as_json)
    make_the_page([run.folder for run in runs if run.folder], console)
    if left:
        tell(console, f"Stopped early. {hint}")
        raise typer.Exit(130 if interrupt.asked else 0)


def _print_preview(experiment: "Experiment", as_json: bool) -> None:
    from accord.display import watcher_for
    from accord.execute import as_text, preview

    with watcher_for(Console(stderr=True)) as watcher:
        ahead = preview(experiment, watcher)
    print(json.dumps(ahead, indent=2) if as_json else as_text(ahead))


_UsageError: Any = typer.BadParameter.__base__  # click's, wherever this typer keeps it


def main() -> None:
    """The command's entry point: what a user can put right becomes one sentence and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a client's name may hold letters that a terminal does not know
    try:
        sys.exit(app(args=sys.argv[1:] or ["--help"], prog_name="accord", standalone_mode=False))
    except AccordError as error:
        sentence = str(error)
    except _UsageError as error:
        sentence = f"{error.format_message().rstrip('.')}: see {error.ctx.command_path if error.ctx else 'accord'} --help"
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    print(f"accord: {sentence}", file=sys.stderr)
    sys.exit(2)
