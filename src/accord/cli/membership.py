"""The command `accord membership`. Like all commands it imports what it needs when it runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from accord.cli.shared import AsJson, OwnModel, Which, print_table, tell
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from torch import nn

    from accord.audit.membership import Train
    from accord.data import Federation
    from accord.experiments.experiment import Experiment


def membership(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="A finished run.", show_default=False)],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="WHO",
            show_default=False,
            help="Non-members: heldout, unseen or test; left out, the first there is.",
        ),
    ] = None,
    which: Which = "last",
    model: OwnModel = None,
    shadows: Annotated[
        int, typer.Option("--shadows", metavar="N", min=0, help="Models to train for the likelihood-ratio attack.")
    ] = 0,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of the attacker's logistic regression.")] = 5000,
    as_json: AsJson = False,
) -> None:
    """Membership inference: attack a trained model to find out which samples it was trained on.

    Prints a table and writes `membership.json` into the run's folder. The attackers are logistic regression on logits,
    a threshold on the loss and, with `--shadows N`, the likelihood-ratio attack, for which N models are trained as the
    run trained its own, each on half of the clients' data: 16 are a start, 64 are better.

    Examples:

    * `accord membership runs/mnist-fedavg-1f0c2d3e4b-s0`

    * `accord membership runs/mnist-fedavg-1f0c2d3e4b-s0 --against test --json`

    * `accord membership runs/mnist-fedavg-1f0c2d3e4b-s0 --shadows 16`
    """
    from accord.audit.membership import attack
    from accord.core.files import plain, write_json
    from accord.runs.load import load

    experiment, seed = _recorded(folder, shadows > 0)
    run = load(folder, model)
    if run.stopped is not None:
        raise AccordError(f"{folder} is not done: {run.stopped}")
    module = run.model(which)
    console = Console(stderr=True)
    fed = experiment.federation(seed)
    outcome = attack(
        module,
        fed,
        against=against,
        steps=steps,
        shadows=shadows,
        train=_trainer(experiment, run.rounds),
        seed=seed,
        device=experiment.settings.run.device,
        tell=lambda text: tell(console, text),
    )
    figures = plain({"model": which, **outcome.plain()})
    write_json(folder / "membership.json", figures)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    print_table(outcome.cells())
    print("\n".join([*outcome.notes(), str(folder / "membership.json")]))


def _recorded(folder: Path, trains: bool) -> "tuple[Experiment, int]":
    """The experiment of a run folder of the command line, and the run's seed. Only shadow models need more of it than
    its data."""
    from accord.experiments.experiment import assemble
    from accord.experiments.settings import SECTIONS
    from accord.runs.checksums import read_json
    from accord.runs.settings import RunSettings

    settings = RunSettings.from_json(read_json(folder / "experiment.json"))
    if settings.content is not None:
        raise AccordError(
            f"{folder} holds a run made in Python, whose model and data only Python knows: use accord.audit.attack"
            " there"
        )
    assert settings.seed is not None, "the command always writes it"
    if not trains:
        every = {"train": {"sample": "all", "min_clients": 1}}
        return assemble({"data": dict(settings.data), "run": dict(settings.run), **every}, [], ""), settings.seed
    try:
        return assemble({name: settings[name] for name in SECTIONS if name in settings}, [], ""), settings.seed
    except AccordError as error:
        raise AccordError(f"--shadows trains models as {folder} did: {error}; use accord.audit.attack") from None


def _trainer(experiment: "Experiment", rounds: int) -> "Train":
    """Trains a shadow model as the run trained its own, for as many rounds, without recording or evaluating it on the
    way."""
    from dataclasses import replace

    from accord.training.fit import carry_out

    run = experiment.settings.run

    def train(fed: "Federation", seed: int) -> "nn.Module":
        plan = replace(
            experiment.plan(seed), rounds=rounds, evaluate_every=rounds, evaluate_at=(), budget=None, patience=None
        )
        module = experiment.module(fed, seed)
        machine: Any = {"engine": run.engine, "device": run.device, "speed": run.speed}
        return carry_out(module, fed, experiment.algorithm, experiment.training, plan, folder=None, **machine).model()

    return train
