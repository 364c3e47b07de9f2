"""The command `accord`. Commands import what they need when they run, so that help is quick."""

import atexit
import io
import signal
import sys
import threading
import warnings
from types import FrameType
from typing import Annotated, Any

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
from accord.core.errors import AccordError, OldSpelling

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


_UsageError: Any = typer.BadParameter.__base__  # click's, wherever this typer keeps it


def _note_old_spelling_once() -> None:
    """Settings of an earlier release are a sentence, however many experiments of a sweep or a study have them."""
    show, noted = warnings.showwarning, list[str]()

    def note(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, OldSpelling):
            show(message, category, *where, **more)
        elif not noted:
            noted.append(str(message))
            print(f"accord: {message}", file=sys.stderr)

    warnings.showwarning = note


def _of_memory(error: Exception) -> bool:
    """Whether memory ran out; torch says so in words."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error)


def _remember_ctrl_c() -> list[int]:
    """The signals that have been turned into a KeyboardInterrupt."""
    pressed = list[int]()

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a script may have it ignored
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, press)
    return pressed


def _end_if(pressed: list[int]) -> None:
    """Ctrl-C within an import of numpy or torch comes out as an error of theirs."""
    if pressed:
        sys.exit(130)


def main() -> None:
    """The command's entry point: what a user can put right becomes one sentence and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a client's name may hold letters that a terminal does not know
        sys.stdout.reconfigure(errors="backslashreplace")
    _note_old_spelling_once()
    pressed = _remember_ctrl_c()
    try:
        sys.exit(app(args=sys.argv[1:] or ["--help"], prog_name="accord", standalone_mode=False))
    except AccordError as error:
        sentence = str(error)
    except _UsageError as error:
        sentence = (
            f"{error.format_message().rstrip('.')}: see {error.ctx.command_path if error.ctx else 'accord'} --help"
        )
    except (MemoryError, RuntimeError) as error:
        if not _of_memory(error):
            _end_if(pressed)
            raise
        sentence = f"there is not enough memory for this: {' '.join(str(error).split()) or 'it was all taken'}"
    except OSError as error:
        sentence = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except Exception:
        _end_if(pressed)
        raise
    finally:  # registered last, it runs first: one more Ctrl-C while Python ends would be a traceback about nothing
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    print(f"accord: {sentence}", file=sys.stderr)
    sys.exit(2)
