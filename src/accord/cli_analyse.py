"""The commands `accord analyse ...`: a table, every point and a figure each. Like all commands they import what they need when they run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.cli_shared import Overrides, print_table, tell, this_command, train_all
from accord.errors import AccordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accord.analyse.output import Result
    from accord.analyse.study import Arm

analyse_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""Analyses: each prints a table, and writes it with every point (CSV) and a figure.

Those that train have small settings of their own, which options and `section.key=value` replace; their runs are ordinary run folders, so a
command that was stopped goes on when it is given again. docs/analyses.md shows what comes out.
""",
)

Out = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where tables and figure go.")]
Kind = Annotated[str, typer.Option("--figure", metavar="KIND", help="png, svg, or none for the tables alone.")]
Data = Annotated[str | None, typer.Option("--data", metavar="NAME", show_default=False, help="The data set, as data.name.")]
Clients = Annotated[int | None, typer.Option("--clients", min=1, show_default=False, help="Participating clients, as data.clients.")]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, show_default=False, help="Rounds, as train.rounds.")]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="N,N", show_default=False, help="One run per seed, as run.seeds.")]
Tau = Annotated[float, typer.Option("--tau", help="Net agreement that a coordinate needs to pass whole.")]
Select = Annotated[str, typer.Option("--select", metavar="RULE", help="Which rounds count: last10, held-out, window(a,b) or oracle.")]
_OUT = Path("analyses")


@analyse_app.command()
def heterogeneity(
    overrides: Overrides = None,
    alphas: Annotated[str, typer.Option("--alphas", metavar="A,A", help="Dirichlet alphas to compare.")] = "0.1,0.3,1,10,100",
    tau: Tau = 0.4,
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = _OUT,
    figure: Kind = "png",
) -> None:
    """Agreement under tau against the heterogeneity of clients' labels.

    Examples:

    * `accord analyse heterogeneity`

    * `accord analyse heterogeneity --alphas 0.1,100 --seeds 0,1,2,3 --rounds 50`
    """
    from accord.analyse import heterogeneity as work
    from accord.analyse.study import numbers

    _ready(out, figure)
    arms = work.plan(_given(overrides, data, clients, rounds, seeds), numbers(alphas, "--alphas", 1e-6, 1e6), tau)
    _train(arms)
    _tell(work.read(arms, tau), out, figure)


@analyse_app.command()
def softness(
    overrides: Overrides = None,
    tau: Tau = 0.4,
    target: Annotated[
        float | None,
        typer.Option("--target", show_default=False, help="Accuracy (%) to wait for; left out, 95 % of what averaging reaches."),
    ] = None,
    select: Select = "last10",
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = _OUT,
    figure: Kind = "png",
) -> None:
    """The soft mask against the binary one, plain averaging and the soft mask's control.

    Examples:

    * `accord analyse softness`

    * `accord analyse softness algorithm.name=fedadam algorithm.lr=0.02 --tau 0.6`
    """
    from accord.analyse import softness as work

    _ready(out, figure)
    arms = work.plan(_given(overrides, data, clients, rounds, seeds), tau)
    _rehearse(arms, select)
    _train(arms)
    _tell(work.read(arms, select, target), out, figure)


@analyse_app.command()
def tau(
    overrides: Overrides = None,
    taus: Annotated[str, typer.Option("--taus", metavar="T,T", help="Values of tau to compare.")] = "0,0.2,0.4,0.6,0.8,1",
    mask: Annotated[str, typer.Option("--mask", help="The mask: gma, and, sand or magnitude.")] = "gma",
    select: Select = "last10",
    split: Annotated[str, typer.Option("--split", help="What the model is judged on: test, heldout, unseen or train.")] = "test",
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = _OUT,
    figure: Kind = "png",
) -> None:
    """What tau does to accuracy and loss.

    Examples:

    * `accord analyse tau`

    * `accord analyse tau --data cifar10 --rounds 200 --seeds 0,1,2,3 --taus 0.1,0.3,0.5,0.7,0.9`
    """
    from accord.analyse import tau as work
    from accord.analyse.study import numbers
    from accord.evaluate import SPLITS

    _ready(out, figure)
    if split not in SPLITS:
        raise AccordError(f"--split must be one of {', '.join(SPLITS)}, got {split!r}")
    arms = work.plan(_given(overrides, data, clients, rounds, seeds), numbers(taus, "--taus", 0.0, 1.0), mask)
    _rehearse(arms, select)
    _train(arms)
    _tell(work.read(arms, select, split), out, figure)


@analyse_app.command()
def participation(
    overrides: Overrides = None,
    participants: Annotated[str, typer.Option("--participants", metavar="N,N", help="How many clients take part in the round.")] = "5,2",
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Local epochs of the one round.")] = 3,
    tau: Tau = 0.4,
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = _OUT,
    figure: Kind = "png",
) -> None:
    """One round from a trained model: clients that took part against the others, on held-out data. A trial per seed.

    Examples:

    * `accord analyse participation`

    * `accord analyse participation --participants 2 --rounds 50 train.steps=1000`
    """
    from accord.analyse import participation as work
    from accord.analyse.study import counts

    _ready(out, figure)
    given = _given(overrides, data, clients, rounds, seeds)
    sizes, start = counts(participants, "--participants"), work.base(given)
    work.check(start, sizes)
    _train([start])
    arms = work.plan(given, start, sizes, epochs, tau)
    _train(arms)
    _tell(work.read(arms), out, figure)


@analyse_app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that hold some.", show_default=False)],
    splits: Annotated[
        str | None,
        typer.Option("--splits", metavar="S,S", show_default=False, help="Of train, heldout, unseen and test; left out, train and test."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", show_default=False, help="Such as loss; left out, what runs are judged by.")
    ] = None,
    out: Out = _OUT,
    figure: Kind = "png",
) -> None:
    """Train and test curves of recorded runs, the seeds of a setting together.

    Examples:

    * `accord analyse curves runs/demo`

    * `accord analyse curves runs --splits heldout,unseen --metric loss`
    """
    from accord.analyse import curves as work

    _ready(out, figure)
    _tell(work.read(runs, splits.split(",") if splits else None, metric), out, figure)


@analyse_app.command()
def layers(
    run: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="A run with a mask.", show_default=False)],
    out: Out = _OUT,
    figure: Kind = "png",
) -> None:
    """Agreement by layer, round by round, of a recorded run.

    Example:

    * `accord analyse layers runs/mnist-fedadam-gma-1f0c2d3e4b-s0`
    """
    from accord.analyse import layers as work

    _ready(out, figure)
    _tell(work.read(run), out, figure)


@analyse_app.command()
def surfaces(
    tau: Tau = 0.4,
    p: Annotated[float, typer.Option("--p", help="Net agreement of the first FedGMA.")] = 0.8,
    eta_s: Annotated[float, typer.Option("--eta-s", help="Rate of the first FedGMA's masked step.")] = 0.1,
    clients: Annotated[str, typer.Option("--clients", metavar="A,B", help="How many clients see A's and how many B's surface.")] = "1,1",
    starts: Annotated[int, typer.Option("--starts", min=2, max=101, help="Starts along each side of the square.")] = 21,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of every rule.")] = 400,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Local steps in a round.")] = 5,
    lr: Annotated[float, typer.Option("--lr", min=0.0, help="The clients' learning rate.")] = 0.02,
    out: Out = _OUT,
    figure: Kind = "png",
) -> None:
    """Two clients' loss surfaces, and where each rule ends up on them.

    Examples:

    * `accord analyse surfaces`

    * `accord analyse surfaces --clients 6,4`
    """
    from accord.analyse import surfaces as work
    from accord.analyse.study import counts

    _ready(out, figure)
    many = counts(clients, "--clients")
    if len(many) != 2:
        raise AccordError(f"--clients must be two numbers, A's and B's, such as 6,4, got {clients!r}")
    _tell(work.read(tau, p, eta_s, (many[0], many[1]), starts, rounds, steps, lr), out, figure)


# ----------------------------------------------------------------------------------------------------------------- helpers


def _ready(out: Path, kind: str) -> None:
    """Refuses what could not be written, before anything is trained."""
    from accord.analyse.output import check_folder
    from accord.analyse.style import check_kind

    check_kind(kind)
    check_folder(out)


def _given(overrides: list[str] | None, data: str | None, clients: int | None, rounds: int | None, seeds: str | None) -> list[str]:
    """The options that stand for settings, as settings, and the settings."""
    options = {"data.name": data, "data.clients": clients, "train.rounds": rounds, "run.seeds": seeds}
    return [*(f"{key}={value}" for key, value in options.items() if value is not None), *(overrides or [])]


def _rehearse(arms: "Sequence[Arm]", rule: str) -> None:
    from accord.show import rehearse

    rehearse(rule, arms[0].runs[0].experiment)


def _train(arms: "Sequence[Arm]") -> None:
    """Trains what is left of the arms; a study that was stopped ends the command here, and says how to go on."""
    hint = f"To go on: {this_command()}"
    left, asked = train_all([run for one in arms for run in one.runs], hint)
    if left:
        tell(Console(stderr=True), f"Stopped early, with rounds before it, so there is no table yet. {hint}")
        raise typer.Exit(130 if asked else 1)


def _tell(result: "Result", out: Path, kind: str) -> None:
    from accord.analyse.output import cells, write

    written = write(result, out, kind)
    print_table(cells(result.table))
    print("\n".join([*result.notes, *map(str, written)]))
