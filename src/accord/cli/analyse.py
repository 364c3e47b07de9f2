"""The commands `accord analyse ...`: a table, every point and a figure each. Like all commands they import what they
need when they run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from accord.cli.analysis_output import OUT, Kind, Out, Tau, ready, show_analysis
from accord.cli.shared import Overrides, finite, tell, this_command, train_all
from accord.cli.theory import convergence, stability, surfaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accord.analyses.arms import Arm

analyse_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""Analyses: each prints a table, and writes it with every point (CSV) and a figure.

Those that train have small default settings, which options and `section.key=value` replace. Their runs are ordinary
run folders: a command that was stopped is continued by giving it again. docs/results/analyses.md has results.
""",
)

Data = Annotated[
    str | None, typer.Option("--data", metavar="NAME", show_default=False, help="The data set, as data.name.")
]
Clients = Annotated[
    int | None, typer.Option("--clients", min=1, show_default=False, help="Participating clients, as data.clients.")
]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, show_default=False, help="Rounds, as train.rounds.")]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="N,N", show_default=False, help="One run per seed, as run.seeds.")
]
Select = Annotated[
    str, typer.Option("--select", metavar="RULE", help="Which rounds count: last10, held-out, window(a,b) or oracle.")
]


@analyse_app.command()
def heterogeneity(
    overrides: Overrides = None,
    alphas: Annotated[
        str, typer.Option("--alphas", metavar="A,A", help="Dirichlet alphas to compare.")
    ] = "0.1,0.3,1,10,100",
    tau: Tau = 0.4,
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """Agreement under tau against the heterogeneity of clients' labels.

    Examples:

    * `accord analyse heterogeneity`

    * `accord analyse heterogeneity --alphas 0.1,100 --seeds 0,1,2,3 --rounds 50`
    """
    from accord.analyses import heterogeneity as work
    from accord.analyses.arms import numbers

    ready(out, figure)
    changes = _overrides(overrides, data, clients, rounds, seeds)
    show_analysis(
        work.carry_out(changes, train_arms, alphas=numbers(alphas, "--alphas", 1e-6, 1e6), tau=tau), out, figure
    )


@analyse_app.command()
def softness(
    overrides: Overrides = None,
    tau: Tau = 0.4,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            callback=finite,
            show_default=False,
            help="Accuracy (%) to wait for; left out, 95 % of what averaging reaches.",
        ),
    ] = None,
    select: Select = "last10",
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """The soft mask against the binary one, plain averaging and the soft mask's control.

    Examples:

    * `accord analyse softness`

    * `accord analyse softness algorithm.name=fedadam algorithm.server.lr=0.02 --tau 0.6`
    """
    from accord.analyses import softness as work

    ready(out, figure)
    changes = _overrides(overrides, data, clients, rounds, seeds)
    show_analysis(work.carry_out(changes, train_arms, tau=tau, target=target, select=select), out, figure)


@analyse_app.command()
def tau(
    overrides: Overrides = None,
    taus: Annotated[
        str, typer.Option("--taus", metavar="T,T", help="Values of tau to compare.")
    ] = "0,0.2,0.4,0.6,0.8,1",
    mask: Annotated[str, typer.Option("--mask", help="The mask: gma, and, sand or magnitude.")] = "gma",
    select: Select = "last10",
    split: Annotated[
        str, typer.Option("--split", help="What the model is judged on: test, heldout, unseen or train.")
    ] = "test",
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """What tau does to accuracy and loss.

    Examples:

    * `accord analyse tau`

    * `accord analyse tau --data cifar10 --rounds 200 --seeds 0,1,2,3 --taus 0.1,0.3,0.5,0.7,0.9`
    """
    from accord.analyses import tau as work
    from accord.analyses.arms import numbers

    ready(out, figure)
    changes, values = _overrides(overrides, data, clients, rounds, seeds), numbers(taus, "--taus", 0.0, 1.0)
    show_analysis(work.carry_out(changes, train_arms, taus=values, mask=mask, select=select, split=split), out, figure)


@analyse_app.command()
def participation(
    overrides: Overrides = None,
    participants: Annotated[
        str, typer.Option("--participants", metavar="N,N", help="How many clients take part in the round.")
    ] = "5,2",
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Local epochs of the one round.")] = 3,
    tau: Tau = 0.4,
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """One round from a trained model: clients that took part against the others, on held-out data. A trial per seed.

    Examples:

    * `accord analyse participation`

    * `accord analyse participation --participants 2 --rounds 50 train.steps=1000`
    """
    from accord.analyses import participation as work
    from accord.analyses.arms import counts

    ready(out, figure)
    changes, sizes = _overrides(overrides, data, clients, rounds, seeds), counts(participants, "--participants")
    show_analysis(work.carry_out(changes, train_arms, participants=sizes, epochs=epochs, tau=tau), out, figure)


@analyse_app.command()
def membership(
    overrides: Overrides = None,
    tau: Tau = 0.4,
    against: Annotated[
        str, typer.Option("--against", metavar="WHO", help="Non-members: test, heldout or unseen.")
    ] = "test",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of the attacker's logistic regression.")] = 5000,
    data: Data = None,
    clients: Clients = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """Membership inference against models trained with and without the mask.

    Examples:

    * `accord analyse membership`

    * `accord analyse membership --data cifar10 model.name=resnet18 --rounds 100`
    """
    from accord.analyses import membership as work

    ready(out, figure)
    changes = _overrides(overrides, data, clients, rounds, seeds)
    show_analysis(work.carry_out(changes, train_arms, tau=tau, against=against, steps=steps), out, figure)


@analyse_app.command()
def curves(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or folders that hold some.", show_default=False)
    ],
    splits: Annotated[
        str | None,
        typer.Option(
            "--splits",
            metavar="S,S",
            show_default=False,
            help="Of train, heldout, unseen and test; left out, train and test.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", show_default=False, help="Such as loss; left out, what runs are judged by."),
    ] = None,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """Train and test curves of recorded runs, the seeds of a setting together.

    Examples:

    * `accord analyse curves runs/demo`

    * `accord analyse curves runs --splits heldout,unseen --metric loss`
    """
    from accord.analyses import curves as work

    ready(out, figure)
    show_analysis(work.read(runs, splits.split(",") if splits else None, metric), out, figure)


@analyse_app.command()
def layers(
    run: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="A run with a mask.", show_default=False)],
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """Agreement by layer, round by round, of a recorded run.

    Example:

    * `accord analyse layers runs/mnist-fedadam-gma-1f0c2d3e4b-s0`
    """
    from accord.analyses import layers as work

    ready(out, figure)
    show_analysis(work.read(run), out, figure)


for command in (surfaces, stability, convergence):
    analyse_app.command()(command)


# ---------------------------------------------------------------------------------------------------- helpers


def _overrides(
    overrides: list[str] | None, data: str | None, clients: int | None, rounds: int | None, seeds: str | None
) -> list[str]:
    """The options that stand for settings, as settings, and the settings."""
    options = {"data.name": data, "data.clients": clients, "train.rounds": rounds, "run.seeds": seeds}
    return [*(f"{key}={value}" for key, value in options.items() if value is not None), *(overrides or [])]


def train_arms(arms: "Sequence[Arm]") -> None:
    """Trains what is left of the arms; a study that was stopped ends the command here, and says how to go on."""
    hint = f"To go on: {this_command()}"
    left, asked = train_all([run for one in arms for run in one.runs], hint)
    if left:
        tell(Console(stderr=True), f"Stopped early, with rounds before it, so there is no table yet. {hint}")
        raise typer.Exit(130 if asked else 1)
