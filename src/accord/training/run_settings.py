"""The objects of a run as the sections of an experiment file: what `experiment.json` says of it."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from accord.attacks import Attack
from accord.causal.rule import causalfed
from accord.core.jsonable import Json
from accord.engines.contract import Job
from accord.models import recipe_of
from accord.rules import named
from accord.rules.algorithm import Algorithm
from accord.rules.label import label_of
from accord.rules.local import Training
from accord.rules.schema import algorithm_table
from accord.runs.fingerprint import describe
from accord.runs.settings import RunSettings
from accord.training.plan import Plan, identity

ALGORITHMS: Mapping[str, Callable[..., Any]] = {**named.ALGORITHMS, "causalfed": causalfed}
_WHOLE = ("sample", "batch")  # None means all, and a file says so
_OF_RUN = ("checkpoint_every", "budget")  # what of a plan changes no result
_NAMED = 20  # unseen clients that the settings name; of more they say how many
_BY_NAME = ("algorithm", "training", "plan", "attack", "precision")  # what settings can say; the rest is content


def run_settings(job: Job, plan: Plan, engine: str, device: str) -> RunSettings:
    """The settings of a run made in Python."""
    fed, algorithm = job.fed, job.algorithm
    unseen = list(fed.unseen) if 0 < len(fed.unseen) <= _NAMED else len(fed.unseen)
    asked = {"seeds": [plan.seed], "engine": engine, "device": device, "speed": list(job.speed)}
    return RunSettings(
        label=label_of(algorithm),
        seed=plan.seed,
        data={"name": fed.name, "clients": len(fed.clients), "unseen": unseen},
        model=recipe_of(job.module) or {"name": type(job.module).__name__},
        **sections_of(job.training, plan, algorithm, job.attack.attack if job.attack else None),
        run=asked | {name: getattr(plan, name) for name in _OF_RUN if getattr(plan, name) is not None},
        content={name: value for name, value in identity(job, plan).items() if name not in _BY_NAME},
    )


def sections_of(
    training: Training, plan: Plan, algorithm: Algorithm, attack: Attack | None, written: Json | None = None
) -> dict[str, Any]:
    """What a run is made of as the sections of a file; None for those that it has not. Parts of the algorithm go by the
    names that were `written`, if any were."""
    return {
        "train": _train_table(training, plan),
        "algorithm": _json(algorithm_table(algorithm, ALGORITHMS.get(algorithm.name), written)),
        "attack": _part_fields(attack),
        "privacy": _privacy_table(algorithm),
    }


def _train_table(training: Training, plan: Plan) -> Json:
    """A training and a plan as a file's [train] section."""
    table = {"schedule": type(training.lr).__name__}  # a training has made one of its rate
    parts: list[Any] = [plan, training, training.lr, plan.conditions]
    for part in parts:
        table |= {field.name: getattr(part, field.name) for field in fields(part)}
    aside = {"conditions", "seed", *_OF_RUN, *(["min_delta"] if plan.patience is None else [])}
    values = {name: "all" if value is None and name in _WHOLE else value for name, value in table.items()}
    return {name: _json(value) for name, value in values.items() if value is not None and name not in aside}


def _part_fields(part: Any) -> Json | None:
    """A dataclass by its name and its fields; None is None."""
    if part is None:
        return None
    return {"name": type(part).__name__, **{field.name: getattr(part, field.name) for field in fields(part)}}


def _privacy_table(algorithm: Algorithm) -> Json | None:
    """The [privacy] section, of an algorithm that has one."""
    privacy = algorithm.privacy
    if privacy is None:
        return None
    values = {field.name: getattr(privacy, field.name) for field in fields(privacy)}
    return {name: value for name, value in values.items() if value is not None}


def _json(value: Any) -> Any:
    """Values as JSON has them; a function, say, by its fingerprint."""
    if isinstance(value, Mapping):
        return {key: _json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json(entry) for entry in value]
    return value if isinstance(value, str | int | float | None) else describe(value)
