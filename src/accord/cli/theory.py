"""The analyses of `accord analyse` that need no data: loss surfaces, and the papers' propositions by simulation."""

from typing import Annotated

import typer

from accord.cli.analysis_output import OUT, Kind, Out, Tau, ready, show_analysis
from accord.cli.shared import finite
from accord.core.errors import AccordError


def surfaces(
    tau: Tau = 0.4,
    p: Annotated[float, typer.Option("--p", callback=finite, help="Net agreement of the first FedGMA.")] = 0.8,
    eta_s: Annotated[
        float, typer.Option("--eta-s", callback=finite, help="Rate of the first FedGMA's masked step.")
    ] = 0.1,
    clients: Annotated[
        str, typer.Option("--clients", metavar="A,B", help="How many clients see A's and how many B's surface.")
    ] = "1,1",
    starts: Annotated[int, typer.Option("--starts", min=2, max=101, help="Starts along each side of the square.")] = 21,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of every rule.")] = 400,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Local steps in a round.")] = 5,
    lr: Annotated[float, typer.Option("--lr", min=0.0, callback=finite, help="The clients' learning rate.")] = 0.02,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """Two clients' loss surfaces, and where each rule ends up on them.

    Examples:

    * `accord analyse surfaces`

    * `accord analyse surfaces --clients 6,4`
    """
    from accord.analyses import surfaces as work
    from accord.analyses.arms import counts

    ready(out, figure)
    many = counts(clients, "--clients")
    if len(many) != 2:
        raise AccordError(f"--clients must be two numbers, A's and B's, such as 6,4, got {clients!r}")
    show_analysis(work.read(tau, p, eta_s, (many[0], many[1]), starts, rounds, steps, lr), out, figure)


def stability(
    clients: Annotated[int, typer.Option("--clients", min=2, max=1000, help="Clients that vote.")] = 10,
    tau: Tau = 0.4,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Coordinates per setting.")] = 100_000,
    noises: Annotated[
        str, typer.Option("--noises", metavar="N,N", help="Of gaussian and uniform.")
    ] = "gaussian,uniform",
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """How surely the mask lets a coordinate pass: the mask-stability proposition, by simulation.

    Examples:

    * `accord analyse stability`

    * `accord analyse stability --clients 20 --tau 0.8`
    """
    from accord.analyses import stability as work

    ready(out, figure)
    show_analysis(work.read(clients, tau, trials, noises.split(",")), out, figure)


def convergence(
    alphas: Annotated[
        str, typer.Option("--alphas", metavar="A,A", help="Shares of coordinates that a mask keeps.")
    ] = "0.1,0.2,0.4,0.7,1",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of a trial.")] = 1000,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials, each from a start of its own.")] = 64,
    sigma: Annotated[
        float,
        typer.Option(
            "--sigma", min=0.0, callback=finite, help="Noise of the averaged gradient, all coordinates together."
        ),
    ] = 0.5,
    local: Annotated[int, typer.Option("--local", min=1, help="Local steps; the sharper bound is for one.")] = 1,
    out: Out = OUT,
    figure: Kind = "png",
) -> None:
    """How a random mask slows training down: the convergence propositions, by simulation.

    Examples:

    * `accord analyse convergence`

    * `accord analyse convergence --alphas 0.5,1 --rounds 200`
    """
    from accord.analyses import convergence as work
    from accord.analyses.arms import numbers

    ready(out, figure)
    show_analysis(work.read(numbers(alphas, "--alphas", 0.01, 1.0), rounds, trials, sigma, local), out, figure)
