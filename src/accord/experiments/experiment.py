"""An experiment file, validated: TOML in, settings with every default filled in and objects ready to run out.

Numbers are checked where they are used (a mask checks its tau); this file adds which key was meant. Every mistake is
one sentence that says the key, the value seen and what is allowed.
"""

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from accord.attacks import Attack, check_algorithm
from accord.core.errors import AccordError, check_bounds
from accord.core.files import check_plain
from accord.core.measure import Metrics
from accord.data import Federation
from accord.data.cache import Progress
from accord.engines.device import pick_device
from accord.engines.speed import SPEED, precision_of
from accord.experiments.data_options import Supply, digest, make_supply
from accord.experiments.metrics import metrics_named
from accord.experiments.options import Choice, blamed, chosen, unknown
from accord.experiments.overrides import CHOICES, put_in
from accord.experiments.parts import code_of, make_algorithm
from accord.experiments.paths import Override
from accord.experiments.problems import problems
from accord.experiments.settings import Settings
from accord.models import shaped, warm_start
from accord.rules.algorithm import Algorithm
from accord.rules.label import label_of
from accord.rules.local import Training
from accord.rules.schema import settings_of
from accord.runs.fingerprint import describe, folder_name
from accord.runs.settings import RunSettings
from accord.training.cohort import Conditions
from accord.training.engine_choice import ENGINES
from accord.training.loggers import LOGS
from accord.training.plan import Plan
from accord.training.run_settings import sections_of


@dataclass(frozen=True)
class Experiment:
    """Valid settings, the text they came from, and the objects they stand for."""

    settings: Settings
    text: str
    algorithm: Algorithm
    training: Training
    supply: Supply
    model: Choice
    attack: Attack | None
    first_plan: Plan  # of the first seed: seeds differ in nothing else
    metrics: Metrics | None = None  # those that suit the targets

    def plan(self, seed: int) -> Plan:
        return self.first_plan if seed == self.first_plan.seed else replace(self.first_plan, seed=seed)

    def check_here(self) -> None:
        """Refuses what this machine cannot do, before anything is fetched."""
        run, key = self.settings.run, "device"
        try:
            pick_device(run.device)
            if run.engine == "ray":
                key = "engine"
                from accord.engines.ray import connect  # here, because Ray may not be installed

                connect()
        except AccordError as error:
            raise blamed(error, "run", key) from None
        self.supply.check_here()
        if self.settings.model.start is not None:
            digest("model.start", self.settings.model.start, "safetensors file")

    def federation(self, seed: int, progress: Progress | None = None) -> Federation:
        """The data set, given to its clients. Fetches it first if it is not there yet."""
        return self.supply.federation(seed, progress)

    def module(self, fed: Federation, seed: int) -> nn.Module:
        """The network, shaped for the data, with the weights to start from."""
        start, key = self.settings.model.start, "name"
        try:
            module = shaped(self.model.make, fed.shape, fed.outputs, seed, **self.model.options)
            key = "start"
            return module if start is None else warm_start(module, start)
        except AccordError as error:
            raise blamed(error, "model", key) from None

    @cached_property  # of all seeds: a user's own files are read for it
    def identity(self) -> dict[str, Any]:
        """What changes the result: everything but how far, how often, where and on what; defaults left out."""
        model = self.settings.model
        start = {} if model.start is None else {"start": digest("model.start", model.start, "safetensors file")}
        made = {
            "algorithm": self.algorithm,
            "training": self.training,
            **({"metrics": list(self.metrics.items())} if self.metrics else {}),
            **({"attack": self.attack} if self.attack else {}),
        }
        return {
            "data": self.supply.identity(),
            "model": model.model_dump(exclude_defaults=True, include={"name"}) | self.model.changed | start,
            **({"code": code} if (code := code_of(self.algorithm)) else {}),
            "plan": self.first_plan.identity(),
            **describe(made),
            **precision_of(self.settings.run.speed),
        }

    @cached_property
    def label(self) -> str:
        """What its runs are called."""
        return label_of(self.algorithm)

    def folder(self, seed: int) -> Path:
        """Where this seed's run lives."""
        mask = self.algorithm.mask
        words = [self.settings.data.name, self.algorithm.name, type(mask).__name__ if mask else ""]
        return Path(self.settings.run.folder) / folder_name(words, self.identity, seed)

    def recorded(self, seed: int) -> RunSettings:
        """What `experiment.json` says of this seed's run."""
        return RunSettings(label=self.label, seed=seed, **self.resolved())

    def resolved(self) -> dict[str, Any]:
        """Every setting that applies, defaults filled in: what a file would say. Seeds differ in none of them."""
        settings, written = self.settings, self.settings.algorithm.model_dump()
        made = sections_of(self.training, self.first_plan, self.algorithm, self.attack, written)
        made["train"] |= {"metrics": settings.train.metrics} if settings.train.metrics else {}
        sections = {
            "data": self.supply.resolved(),
            "model": settings.model.model_dump(exclude_none=True) | self.model.full,
            **made,
            "run": settings.run.model_dump(exclude_none=True),
        }
        return {name: section for name, section in sections.items() if section is not None}


# ---------------------------------------------------------------------------------------------------- reading


def read(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """An experiment from a TOML file and `section.key=value` overrides."""
    return parse(text_of(path), overrides, name=str(path), folder=Path(path).parent)


def parse(text: str, overrides: Sequence[str] = (), name: str = "the experiment", folder: Path = Path()) -> Experiment:
    """An experiment from TOML text and `section.key=value` overrides."""
    return assemble(tables_of(text, name), [override(one) for one in overrides], text, folder)


def text_of(path: str | Path) -> str:
    """The text of an experiment file."""
    try:
        check_plain(Path(path))
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AccordError(
            f"there is no file {path}: give the path of an experiment file, such as experiments/quickstart.toml"
        ) from None
    except OSError as error:
        raise AccordError(f"{path} cannot be read as an experiment file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccordError(f"{path} is not an experiment file: it does not hold text in UTF-8") from None


def tables_of(text: str, name: str) -> dict[str, Any]:
    """The tables of an experiment's text, not yet looked at."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise AccordError(f"{name} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:  # TOML's own, or of a number of thousands of digits
        raise AccordError(f"{name} is not valid TOML: {error}") from None


def assemble(
    tables: dict[str, Any], overrides: Sequence[Override], text: str, folder: Path | None = None
) -> Experiment:
    """An experiment from a file's tables, which are changed by what is given. Modules and files that it names are
    looked for in `folder` too. Tables without a folder are data, such as a run folder's: no module is imported."""
    put_in(tables, overrides, folder)
    check_bounds(tables)
    try:
        settings = Settings.model_validate(tables)
    except ValidationError as error:
        raise AccordError(problems(error)) from None
    return _build(settings if folder is None else settings.found_from(folder), text, folder)


def override(text: str) -> Override:
    """`section.key=value` in its parts. Values are written as in TOML; bare words are strings, commas make lists."""
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (section and dot and key and equals):
        raise AccordError(f"{text!r} is not a setting: write section.key=value, such as algorithm.mask.tau=0.6")
    return section, key, _value(value.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except RecursionError:
        raise AccordError(f"{text[:20]}... is nested too deeply to be a setting") from None
    except ValueError:  # TOML's own, or of a number of thousands of digits
        parts = re.split(r",(?![^(]*\))", text)  # a comma within parentheses, as in window(1,5), parts nothing
        return [_value(part.strip()) for part in parts] if len(parts) > 1 else text


# --------------------------------------------------------------------------------------------------- building


def _build(settings: Settings, text: str, folder: Path | None) -> Experiment:
    data, train, run = settings.data, settings.train, settings.run
    words: list[tuple[str, list[str], Collection[str]]] = [
        ("engine", [run.engine], ENGINES),
        ("speed", run.speed, SPEED),
        ("log", run.log, LOGS),
    ]
    for key, names, known in words:
        for name in names:
            if name not in known:
                raise unknown(f"run.{key}", name, known)
    supply = make_supply(data)
    model = chosen("model", settings.model, "name", *CHOICES["model", "name"])
    schedule = chosen("train", train, "schedule", *CHOICES["train", "schedule"])
    optimiser = chosen("train", train, "optimiser", *CHOICES["train", "optimiser"])
    attack = chosen("attack", settings.attack, "name", *CHOICES["attack", "name"]).made()
    algorithm = make_algorithm(settings.algorithm, settings.privacy, folder)
    sample, batch, steps = (None if value == "all" else value for value in (train.sample, train.batch, train.steps))
    try:
        lr = schedule.make(train.lr, **schedule.options)
        how = {"clip": train.clip, "optimiser": train.optimiser, **optimiser.options}
        training = Training(train.epochs, batch, steps, lr, **how)
        algorithm.local.check(training.rule.momentum)
        plan = Plan(
            train.rounds,
            sample,
            train.evaluate_every,
            run.checkpoint_every,
            train.min_clients,
            Conditions(train.available, train.lost, train.stragglers, train.least),
            run.budget,
            run.seeds[0],
            train.patience,
            Plan.min_delta if train.min_delta is None else train.min_delta,
            tuple(train.evaluate_at),
            train.evaluate_samples,
            train.adapt_steps,
        )
        if algorithm.privacy:
            plan.check_privacy()
    except AccordError as error:
        raise blamed(error, "train", "momentum") from None
    _check(settings, plan.sample or supply.clients, supply.clients, algorithm)
    if attack is not None:
        try:
            check_algorithm(algorithm)
        except AccordError as error:
            raise blamed(error, "attack", "name") from None
    metrics = metrics_named(train.metrics, folder) if train.metrics else None
    return Experiment(settings, text, algorithm, training, supply, model, attack, plan, metrics)


def _check(settings: Settings, cohort: int | None, clients: int | None, algorithm: Algorithm) -> None:
    """Refuses settings that do not go together; `cohort` clients of `clients` take part in a round, where known."""
    train, run = settings.train, settings.run
    if train.min_delta is not None and train.patience is None:
        raise AccordError(
            f"train.min_delta has no meaning without train.patience, got {train.min_delta}: it is the smallest gain"
            " that counts as an improvement"
        )
    if train.patience is not None and not settings.data.heldout:
        raise AccordError(
            "train.patience needs held-out data to see whether a run improves: data.heldout must be above 0, got 0"
        )
    if cohort and clients and cohort > clients:
        raise AccordError(f"train.sample must be at most the {clients} clients of data.clients, got {cohort}")
    if cohort and train.min_clients > cohort:
        raise AccordError(f"train.min_clients must be at most the {cohort} clients of a round, got {train.min_clients}")
    if cohort:
        try:
            algorithm.average.check_cohort(cohort)
        except AccordError as error:
            raise blamed(error, "algorithm.average", fields=settings_of(type(algorithm.average))) from None
    if len(set(run.seeds)) < len(run.seeds):
        raise AccordError(f"run.seeds must differ from each other, got {run.seeds}")
