"""The command `accord membership`. Like all commands it imports what it needs when it runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from accord.cli.shared import AsJson, print_table, tell
from accord.core.errors import AccordError

if TYPE_CHECKING:
    from torch import nn

    from accord.audit.membership import Train
    from accord.data import Federation
    from accord.experiments.experiment import Experiment

_MODELS = {"last": "model.safetensors", "held-out": "best.safetensors"}


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
    which: Annotated[
        str, typer.Option("--model", metavar="WHICH", help="The model: `last`, or best on `held-out` data.")
    ] = "last",
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
    from accord.models import warm_start
    from accord.runs.checksums import read_done, read_model

    if which not in _MODELS:
        raise AccordError(f"--model must be last or held-out, got {which!r}")
    experiment, seed = _recorded(folder)
    weights = folder / _MODELS[which]
    if not weights.exists():
        raise AccordError(f"{folder} holds no {weights.name}: the run is not done, or it trained no such model")
    console = Console(stderr=True)
    fed = experiment.federation(seed)
    outcome = attack(
        warm_start(experiment.module(fed, seed), read_model(weights)),
        fed,
        against=against,
        steps=steps,
        shadows=shadows,
        train=_trainer(experiment, read_done(folder / "done")["rounds"]),
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


def _recorded(folder: Path) -> "tuple[Experiment, int]":
    """The experiment of a run folder of the command line, and the run's seed."""
    from accord.experiments.experiment import assemble
    from accord.experiments.settings import SECTIONS
    from accord.runs.checksums import read_json
    from accord.runs.settings import RunSettings

    settings = RunSettings.from_json(read_json(folder / "experiment.json"), folder.name)
    if settings.content is not None:
        raise AccordError(
            f"{folder} holds a run made in Python, whose model and data only Python knows: use accord.audit.attack"
            " there"
        )
    assert settings.seed is not None, "the command always writes it"
    return assemble({name: settings[name] for name in SECTIONS if name in settings}, [], ""), settings.seed


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
