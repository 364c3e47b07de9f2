"""What an experiment would do, before it does it: its settings, what a run takes, and where it goes."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from accord.causal.rule import split_network
from accord.causal.traffic import traffic
from accord.core.layout import Layout
from accord.experiments.execute import Watcher
from accord.experiments.experiment import Experiment
from accord.privacy.accounting import spent_text
from accord.rules.algorithm import Algorithm


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
    own = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if key not in inner]
    below = [line for key, value in inner.items() for line in _table(f"{name}.{key}", value)]
    return [f"[{name}]", *own, "", *below]


def cost(experiment: Experiment, watcher: Watcher) -> dict[str, Any]:
    """What one run of the experiment takes: client steps, and bytes a round between clients and server."""
    seed = experiment.settings.run.seeds[0]
    fed = experiment.federation(seed, watcher.data)
    module = experiment.module(fed, seed)
    layout = Layout.of(module)
    plan, training = experiment.first_plan, experiment.training
    sizes = [len(rows) for rows in fed.train.values()]
    per_client = [steps_of(size, training.epochs, training.batch, training.steps) for size in sizes]
    if experiment.algorithm.local.full_batch:
        per_client = [1] * len(sizes)
    cohort = len(sizes) if plan.sample is None else plan.sample
    down, up = (cohort * size for size in bytes_of_a_client(experiment.algorithm, layout))
    if isinstance(local := experiment.algorithm.local, split_network):
        seen = [
            min(training.epochs * size, steps * (training.batch or size))
            for size, steps in zip(sizes, per_client, strict=True)
        ]
        share = cohort / len(sizes)
        down, up = traffic(module, fed, local.at, share * sum(per_client), share * sum(seen))
    privacy = experiment.algorithm.privacy
    spent = privacy and privacy.spent(experiment.algorithm.mask is not None, len(sizes), plan.sample, plan.rounds)
    return {
        **({"privacy": spent_text(spent)} if spent else {}),
        "data_set": experiment.supply.data.about,
        "parameters": layout.size,
        "client_steps_a_round": round(cohort * sum(per_client) / len(per_client)),
        "client_steps_a_run": round(plan.rounds * cohort * sum(per_client) / len(per_client)),
        "bytes_down_a_round": down,
        "bytes_up_a_round": up,
        "runs": len(experiment.settings.run.seeds),
    }


def bytes_of_a_client(algorithm: Algorithm, layout: Layout) -> tuple[int, int]:
    """What one client receives and sends in a round: the model both ways, what the local rule is told and adds up, what
    the average and the mask need besides, and a second exchange where there is one."""
    reports, sent = algorithm.sample_reports(layout), algorithm.local.init(layout, 1)
    added = algorithm.local.lift(reports, sent).fields().values()
    needs = algorithm.average.needs | (algorithm.mask.needs if algorithm.mask else frozenset())
    down = [reports.delta, reports.buffers, *sent.values()]
    up = [reports.delta, reports.buffers, *(reports.extra[name] for name in needs), *(field.value for field in added)]
    if algorithm.asks_twice:
        memory = algorithm.init(layout, 1, reports.delta[0])
        first = algorithm.broadcast(algorithm.lift(reports, memory))
        down += [field.value for field in first.fields().values()]
        up += [field.value for field in algorithm.average.second(reports.extra, first).fields().values()]
    return _bytes(down), _bytes(up)


def _bytes(values: Iterable[Tensor]) -> int:
    return sum(value.nbytes for value in values)


def steps_of(samples: int, epochs: int, batch: int | None, limit: int | None) -> int:
    """Local steps of a client with so many samples."""
    steps = epochs * (1 if batch is None else -(-samples // batch))
    return steps if limit is None else min(steps, limit)
