"""What an experiment would do, before it does it: its settings, what a run takes, and where it goes."""

import json
from collections.abc import Mapping
from typing import Any

from accord.causal.engine import Causal
from accord.causal.rule import rule_of
from accord.causal.traffic import traffic
from accord.core.layout import Layout
from accord.data import Federation
from accord.experiments.execute import Watcher
from accord.experiments.experiment import Experiment
from accord.privacy.accounting import spent_text
from accord.rules.local import Training


def preview(experiment: Experiment, watcher: Watcher) -> dict[str, Any]:
    """What an experiment would do: its settings, what a run takes, and where it goes."""
    folders = [str(experiment.folder(seed)) for seed in experiment.settings.run.seeds]
    return {"settings": experiment.resolved(), "cost": cost(experiment, watcher), "folders": folders}


def as_text(ahead: dict[str, Any]) -> str:
    """A preview as an experiment file with every default filled in; what is not a setting is a comment."""
    lines = []
    for section, values in ahead["settings"].items():
        lines += _table(section, values)
    for what, amount in ahead["cost"].items():
        lines.append(f"# {what.replace('_', ' ')}: " + (f"{amount:,}" if isinstance(amount, int) else amount))
    return "\n".join([*lines, *(f"# folder: {folder}" for folder in ahead["folders"])])


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    """A table of a file, and below it those that it holds."""
    inner = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if key not in inner]
    below = [line for key, value in inner.items() for line in _table(f"{name}.{key}", value)]
    return [f"[{name}]", *lines, "", *below]


def cost(experiment: Experiment, watcher: Watcher) -> dict[str, Any]:
    """What one run of the experiment takes: client steps, and bytes a round between clients and server."""
    seed = experiment.settings.run.seeds[0]
    fed = experiment.federation(seed, watcher.data)
    module = experiment.module(fed, seed)
    algorithm, plan, training = experiment.algorithm, experiment.first_plan, experiment.training
    layout = Layout.of(module, algorithm.personal)
    sizes = [len(rows) for rows in fed.train.values()]
    per_client = client_steps(experiment, fed)
    cohort = len(sizes) if plan.sample is None else plan.sample
    steps_a_round = cohort * sum(per_client) / len(sizes)
    if algorithm.local.engine == Causal.name:
        seen = sum(
            min(training.epochs * size, done * (training.batch or size))
            for size, done in zip(sizes, per_client, strict=True)
        )
        share = cohort / len(sizes)
        down, up = traffic(module, fed, rule_of(algorithm).at, share * sum(per_client), share * seen)
    else:
        down, up = (cohort * size for size in algorithm.bytes_of_a_client(layout))
    privacy = algorithm.privacy
    spent = privacy and privacy.spent(algorithm.mask is not None, len(sizes), plan.sample, plan.rounds)
    return {
        **({"privacy": spent_text(spent)} if spent else {}),
        **({"released": privacy.release_text(algorithm.mask is not None, cohort)} if privacy else {}),
        "data_set": experiment.supply.data.about,
        "parameters": layout.size,
        "client_steps_a_round": round(steps_a_round),
        "client_steps_a_run": round(plan.rounds * steps_a_round),
        "bytes_down_a_round": down,
        "bytes_up_a_round": up,
        "runs": len(experiment.settings.run.seeds),
    }


def client_steps(experiment: Experiment, fed: Federation) -> list[int]:
    """The local steps of every training client in a round that it takes part in."""
    whole = experiment.algorithm.local.full_batch
    return [1 if whole else steps_of(len(rows), experiment.training) for rows in fed.train.values()]


def steps_of(samples: int, training: Training) -> int:
    """Local steps of a client with so many samples."""
    steps = training.epochs * (1 if training.batch is None else -(-samples // training.batch))
    return steps if training.steps is None else min(steps, training.steps)
