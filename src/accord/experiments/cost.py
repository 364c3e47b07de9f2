"""What an experiment would do, before it does it: its settings, what a run takes, and where it goes."""

import json
from typing import Any

from accord.causal.traffic import traffic
from accord.core.layout import Layout
from accord.data import DATASETS
from accord.experiments.execute import Watcher
from accord.experiments.experiment import Experiment
from accord.privacy.accounting import spent_text


def preview(experiment: Experiment, watcher: Watcher) -> dict[str, Any]:
    """What an experiment would do: its settings, what a run takes, and where it goes."""
    folders = [str(experiment.folder(seed)) for seed in experiment.settings.run.seeds]
    return {"settings": experiment.resolved(), "cost": cost(experiment, watcher), "folders": folders}


def as_text(ahead: dict[str, Any]) -> str:
    """A preview as an experiment file with every default filled in; what is not a setting is a comment."""
    lines = []
    for section, values in ahead["settings"].items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()), ""]
    for what, amount in ahead["cost"].items():
        lines.append(f"# {what.replace('_', ' ')}: " + (f"{amount:,}" if isinstance(amount, int) else amount))
    return "\n".join([*lines, *(f"# folder: {folder}" for folder in ahead["folders"])])


def cost(experiment: Experiment, watcher: Watcher) -> dict[str, Any]:
    """What one run of the experiment takes: client steps, and bytes a round between clients and server."""
    seed = experiment.settings.run.seeds[0]
    fed = experiment.federation(seed, watcher.data)
    module = experiment.module(fed, seed)
    layout = Layout.of(module)
    plan, training = experiment.plan(seed), experiment.training
    sizes = [len(rows) for rows in fed.train.values()]
    per_client = [steps_of(size, training.epochs, training.batch, training.steps) for size in sizes]
    if experiment.algorithm.local.full_batch:
        per_client = [1] * len(sizes)
    cohort = len(sizes) if plan.sample is None else plan.sample
    vectors = 2 if experiment.algorithm.local.variates else 1  # SCAFFOLD sends its control variates along, both ways
    width = layout.dtype.itemsize
    down = up = cohort * (vectors * layout.size * width + sum(b.size for b in layout.buffers) * 8)
    asked, vector = experiment.algorithm.asks_twice, cohort * layout.size * width
    up += vector * (asked + sum(name.endswith("gradient") for name in experiment.algorithm.average.needs))
    down += vector * asked
    if split := experiment.algorithm.local.split:
        seen = [min(training.epochs * size, steps * (training.batch or size)) for size, steps in zip(sizes, per_client, strict=True)]
        share = cohort / len(sizes)
        down, up = traffic(module, fed, split.at, share * sum(per_client), share * sum(seen))
    privacy = experiment.algorithm.privacy
    spent = privacy and privacy.spent(experiment.algorithm.mask is not None, len(sizes), plan.sample, plan.rounds)
    return {
        **({"privacy": spent_text(spent)} if spent else {}),
        "data_set": DATASETS[experiment.settings.data.name].about,
        "parameters": layout.size,
        "client_steps_a_round": round(cohort * sum(per_client) / len(per_client)),
        "client_steps_a_run": round(plan.rounds * cohort * sum(per_client) / len(per_client)),
        "bytes_down_a_round": down,
        "bytes_up_a_round": up,
        "runs": len(experiment.settings.run.seeds),
    }


def steps_of(samples: int, epochs: int, batch: int | None, limit: int | None) -> int:
    """Local steps of a client with so many samples."""
    steps = epochs * (1 if batch is None else -(-samples // batch))
    return steps if limit is None else min(steps, limit)
