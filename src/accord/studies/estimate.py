"""How long a round takes here: a few rounds of a run, tried and thrown away."""

import time
from dataclasses import replace

from accord.engines.determinism import steady
from accord.experiments.sweep import One
from accord.training.engine_choice import make_engine
from accord.training.fit import make_job
from accord.training.loop import Event, Loop


def kind_of(run: One) -> str:
    """What the time of a round hangs on: runs of one kind take equally long."""
    settings = run.experiment.settings
    clients = "natural clients" if settings.data.clients is None else f"{settings.data.clients} clients"
    return (
        f"{settings.data.name}, {settings.model.name}, {settings.train.sample} of {clients}, {settings.train.epochs}"
        " epochs"
    )


def per_round(run: One) -> float:
    """Seconds a round: the second of three, since the first sets things up, and a share of the evaluation after the
    third."""
    experiment, seed = run.experiment, run.seed
    where, plan = experiment.settings.run, experiment.plan(seed)
    tried = replace(plan, rounds=3, evaluate_every=4)  # the last round is evaluated, whatever the plan
    fed = experiment.federation(seed)
    job = make_job(
        experiment.module(fed, seed),
        fed,
        experiment.algorithm,
        experiment.training,
        tried,
        where.device,
        speed=where.speed,
    )
    moments: list[float] = []

    def note(_: Event) -> None:
        moments.append(time.monotonic())

    with steady(job.speed):
        Loop(job, tried, make_engine(where.engine, job), None, [note]).go()
    training, with_evaluation = moments[1] - moments[0], moments[2] - moments[1]
    return training + max(0.0, with_evaluation - training) / plan.evaluate_every
