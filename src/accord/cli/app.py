"""All commands. They import what they need when they run, so that help is quick."""

from typing import Annotated

import typer

from accord.cli.analyse import analyse_app
from accord.cli.choose import choose
from accord.cli.compare import compare
from accord.cli.data import data_app
from accord.cli.demo import demo
from accord.cli.deploy import deploy_app
from accord.cli.membership import membership
from accord.cli.predict import predict
from accord.cli.report import report
from accord.cli.reproduce import reproduce
from accord.cli.run import run
from accord.cli.settings import settings
from accord.cli.show import show
from accord.cli.sweep import sweep
from accord.cli.verdicts import verdicts

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Federated learning whose models hold up on data owners they have never met.

Start here:

* `accord demo` trains four algorithms on MNIST and prints one table

* `accord run experiments/quickstart.toml` trains what a file describes

* `accord run experiments/quickstart.toml --dry-run` prints its settings and what they cost

* `accord sweep experiments/sweep.toml` trains a grid of settings

* `accord choose my.toml` finds out whether a mask or a server rule helps on your data

* `accord show runs` prints the results of all runs in a folder

* `accord predict runs/RUN new.csv` predicts for the rows of a table

* `accord report runs` makes an HTML page of them

* `accord analyse --help` lists analyses: a table and a figure each

* `accord settings` explains every key of an experiment file
""",
)
app.add_typer(data_app, name="data")
app.add_typer(analyse_app, name="analyse")
app.add_typer(deploy_app, name="deploy")


def _print_version(asked: bool) -> None:
    if asked:
        from accord.core.version import __version__

        print(f"accord {__version__}")
        raise typer.Exit


@app.callback()
def _accord(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    from accord.core.version import check_torch

    check_torch()


for command in (run, sweep, choose, reproduce, verdicts, compare, membership, predict, report, demo, show, settings):
    app.command()(command)
