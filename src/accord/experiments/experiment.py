"""An experiment file, validated: TOML in, settings with every default filled in and objects ready to run out.

Numbers are checked where they are used (a mask checks its tau); this file adds which key was meant. Every mistake is
one sentence that says the key, the value seen and what is allowed.
"""

import inspect
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from accord.attacks import ATTACKS, Attack, check_algorithm
from accord.core.errors import AccordError
from accord.core.files import flat
from accord.core.schedule import SCHEDULES, Schedule
from accord.data import Federation
from accord.data.cache import Progress
from accord.engines.device import pick_device
from accord.engines.speed import SPEED
from accord.experiments.data_options import (
    AUGMENT_KEYS,
    FILE_KEYS,
    LOADERS,
    NO_AUGMENT,
    NO_SHIFT,
    SHIFT_KEYS,
    SPLIT_KEYS,
    WAYS,
    Supply,
    digest,
    make_supply,
)
from accord.experiments.options import Makers, blaming, chosen, defaults, known, without_defaults
from accord.experiments.parts import drop_old_choice, make_algorithm
from accord.experiments.settings import AttackSection, PrivacySection, Settings, TrainSection, problems
from accord.models import shaped, warm_start
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from accord.rules.old_spelling import MOVED, modern, moved, named, put, ramps, tell
from accord.rules.registry import NETWORKS
from accord.rules.schema import algorithm_table, settings_of
from accord.runs.fingerprint import describe, folder_name
from accord.runs.settings import RunSettings
from accord.training.cohort import Conditions
from accord.training.engine_choice import ENGINES
from accord.training.loggers import LOGS
from accord.training.plan import Plan
from accord.training.run_settings import ALGORITHMS, part_fields, privacy_table, train_table

# Keys whose meaning hangs on a choice: each choice's constructor says which of them it takes.
_MODEL_KEYS = ("width", "hidden", "dropout", "norm", "groups")
_SCHEDULE_KEYS = ("decay", "every", "over", "floor")
_ATTACK_KEYS = ("share", "factor")
_ATTACKS: Makers = {"none": lambda: None, **ATTACKS}

_CHOICES: dict[tuple[str, str], tuple[Makers, Sequence[str]]] = {
    ("data", "name"): (LOADERS, FILE_KEYS),
    ("data", "split"): (WAYS, SPLIT_KEYS),
    ("data", "shift"): (NO_SHIFT, SHIFT_KEYS),
    ("data", "augment"): (NO_AUGMENT, AUGMENT_KEYS),
    ("model", "name"): (NETWORKS, _MODEL_KEYS),
    ("train", "schedule"): (SCHEDULES, _SCHEDULE_KEYS),
    ("attack", "name"): (_ATTACKS, _ATTACK_KEYS),
}


@dataclass(frozen=True)
class Experiment:
    """Valid settings, the text they came from, and the objects they stand for."""

    settings: Settings
    text: str
    algorithm: Algorithm
    training: Training
    supply: Supply
    model_options: dict[str, Any]
    attack: Attack | None = None

    def plan(self, seed: int) -> Plan:
        train, run = self.settings.train, self.settings.run
        conditions = Conditions(train.available, train.lost, train.stragglers, train.least)
        sample = None if train.sample == "all" else train.sample
        how_far = (
            train.rounds,
            sample,
            train.evaluate_every,
            run.checkpoint_every,
            train.min_clients,
            conditions,
            run.budget,
            seed,
        )
        return Plan(*how_far, train.until_flat, Plan.flat_margin if train.flat_margin is None else train.flat_margin)

    def check_here(self) -> None:
        """Refuses what this machine cannot do, before anything is fetched."""
        with blaming("run", "device"):
            pick_device(self.settings.run.device)
        if self.settings.run.engine == "ray":
            with blaming("run", "engine"):
                from accord.engines.ray import connect  # here, because Ray may not be installed

                connect()
        self.supply.check_here()
        if self.settings.model.start is not None:
            digest("model.start", self.settings.model.start, "safetensors file")

    def federation(self, seed: int, progress: Progress | None = None) -> Federation:
        """The data set, given to its clients. Fetches it first if it is not there yet."""
        return self.supply.federation(seed, progress)

    def module(self, fed: Federation, seed: int) -> nn.Module:
        """The network, shaped for the data, with the weights to start from."""
        model = self.settings.model
        with blaming("model", "name"):
            module = shaped(NETWORKS[model.name], fed.shape, fed.outputs, seed, **self.model_options)
        with blaming("model", "start"):
            return module if model.start is None else warm_start(module, model.start)

    def identity(self) -> dict[str, Any]:
        """What changes the result: everything but how far, how often, where and on what; defaults left out."""
        model = self.settings.model
        start = {} if model.start is None else {"start": digest("model.start", model.start, "safetensors file")}
        return {
            "data": self.supply.identity(),
            "model": (
                model.model_dump(exclude_defaults=True, include={"name"})
                | without_defaults(NETWORKS[model.name], self.model_options)
                | start
            ),
            "algorithm": describe(self.algorithm),
            **({"code": code} if (code := _foreign(self.algorithm)) else {}),
            "training": describe(self.training),
            "plan": describe(self.plan(0).that_changes_results()),
            **({"attack": describe(self.attack)} if self.attack else {}),
            **({"precision": "bf16"} if "bf16" in self.settings.run.speed else {}),
        }

    def folder(self, seed: int) -> Path:
        """Where this seed's run lives."""
        mask = self.algorithm.mask
        words = [self.settings.data.name, self.algorithm.name, type(mask).__name__ if mask else ""]
        return Path(self.settings.run.folder) / folder_name(words, self.identity(), seed)

    def recorded(self, seed: int) -> RunSettings:
        """Every setting that applies to this seed's run, defaults filled in."""
        settings, algorithm = self.settings, self.algorithm
        network = NETWORKS[settings.model.name]
        model = settings.model.model_dump(exclude_none=True) | defaults(network, _MODEL_KEYS) | self.model_options
        return RunSettings(
            label=algorithm.label,
            seed=seed,
            data=self.supply.resolved(),
            model=model,
            train=train_table(self.training, self.plan(seed)),
            algorithm=algorithm_table(algorithm, ALGORITHMS[algorithm.name], settings.algorithm.model_dump()),
            run=settings.run.model_dump(exclude_none=True),
            attack=part_fields(self.attack),
            privacy=privacy_table(algorithm),
        )

    def resolved(self) -> dict[str, Any]:
        """The same, of all seeds: what a file would say."""
        full = self.recorded(self.settings.run.seeds[0]).fields_in_json()
        return {key: value for key, value in full.items() if key not in ("seed", "label")}


# ---------------------------------------------------------------------------------------------------- reading


# section, key (of a part's field, its path: "mask.tau") and the value that replaces the file's
Given = tuple[str, str, Any]


def read(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """An experiment from a TOML file and `section.key=value` overrides."""
    return parse(text_of(path), overrides, name=str(path), folder=Path(path).parent)


def parse(
    text: str, overrides: Sequence[str] = (), name: str = "the experiment", folder: Path | None = None
) -> Experiment:
    """An experiment from TOML text and `section.key=value` overrides."""
    return assemble(tables_of(text, name), [override(given) for given in overrides], text, folder)


def text_of(path: str | Path) -> str:
    """The text of an experiment file."""
    try:
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
    except tomllib.TOMLDecodeError as error:
        raise AccordError(f"{name} is not valid TOML: {error}") from None


def assemble(tables: dict[str, Any], given: Sequence[Given], text: str, folder: Path | None = None) -> Experiment:
    """An experiment from a file's tables, which are changed by what is given. Modules that it names are looked for in
    `folder` too."""
    given = _as_spelled_now(tables, given)
    for section, key, value in given:
        _drop_options_of_the_old_choice(tables, section, key, value, folder)
    for section, key, value in given:
        table = tables.setdefault(section, {})
        if isinstance(table, dict):  # else the file is wrong, and validation will say so
            put(table, f"{key}.name" if _names_a_part(table, section, key, value) else key, value)
    try:
        settings = Settings.model_validate(tables)
    except ValidationError as error:
        raise AccordError(problems(error)) from None
    return _build(settings, text, folder)


def _names_a_part(table: dict[str, Any], section: str, key: str, value: Any) -> bool:
    """Whether `algorithm.mask=gma` names a mask whose fields are there already, or to come."""
    return section == "algorithm" and isinstance(value, str) and isinstance(table.get(key), dict)


def _as_spelled_now(tables: dict[str, Any], given: Sequence[Given]) -> list[Given]:
    """What is given, and the file's [algorithm] in place, with keys of accord 0.1 where they are now; a warning names
    them."""
    section = tables.get("algorithm", {})
    if not isinstance(section, dict):
        return list(given)
    old = [key for key in [*section, *(key for of, key, _ in given if of == "algorithm")] if key in MOVED]
    if not old:
        return list(given)
    asked = [named(value) for of, key, value in given if of == "algorithm" and key in ("mask", "mask.name")]
    mask = asked[-1] if asked else named(section.get("mask"))
    now = modern(section)
    moving = ramps([*flat(now), *(key for _, key, _ in given)])
    tell({key: moved(key, mask, moving) for key in old})
    if "algorithm" in tables:
        tables["algorithm"] = now
    return [
        (of, moved(key, mask, moving) if of == "algorithm" and key in MOVED else key, value) for of, key, value in given
    ]


def override(text: str) -> Given:
    """`section.key=value` in its parts. Values are written as in TOML; bare words are strings, commas make lists."""
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (section and dot and key and equals):
        raise AccordError(f"{text!r} is not a setting: write section.key=value, such as algorithm.mask.tau=0.6")
    return section, key, _value(value.strip())


def _drop_options_of_the_old_choice(
    tables: dict[str, Any], section: str, key: str, value: Any, folder: Path | None
) -> None:
    """An override that chooses another algorithm, split, mask, model or schedule leaves the file's options for the old
    one behind. What a new attack takes, stays; for algorithms and their parts see `drop_old_choice`."""
    makers, options = _CHOICES.get((section, key), ({}, ()))
    if (section, key) == ("data", "name"):
        options = (*options, *SHIFT_KEYS)  # another data set has another shift of its own
    table = tables.get(section)
    if section == "algorithm" and isinstance(table, dict):
        drop_old_choice(table, key, value, folder)
    if not isinstance(table, dict) or not isinstance(value, str) or value not in makers or table.get(key) == value:
        return
    takes = () if key == "name" and section != "attack" else inspect.signature(makers[value]).parameters
    for option in options:
        if option not in takes:
            table.pop(option, None)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except RecursionError:
        raise AccordError(f"{text[:20]}... is nested too deeply to be a setting") from None
    except tomllib.TOMLDecodeError:
        return [_value(part.strip()) for part in text.split(",")] if "," in text else text


# --------------------------------------------------------------------------------------------------- building


def _build(settings: Settings, text: str, folder: Path | None) -> Experiment:
    train, run = settings.train, settings.run
    known("run.engine", run.engine, ENGINES)
    for way in run.speed:
        known("run.speed", way, SPEED)
    for program in run.log:
        known("run.log", program, LOGS)
    supply = make_supply(settings.data)
    _, model_options = chosen("model", settings.model, "name", NETWORKS, _MODEL_KEYS)
    algorithm = _private(make_algorithm(settings.algorithm, folder), settings.privacy)
    with blaming("train", "momentum"):
        batch, steps = (None if value == "all" else value for value in (train.batch, train.steps))
        training = Training(
            train.epochs, batch, steps, _schedule(train), train.momentum, train.weight_decay, train.clip
        )
        algorithm.local.check(training.momentum)
    experiment = Experiment(
        settings, text, algorithm, training, supply, model_options, _attack(settings.attack, algorithm)
    )
    with blaming("train"):
        cohort = experiment.plan(0).sample or supply.clients
        if algorithm.privacy:
            experiment.plan(0).check_privacy()
    if train.flat_margin is not None and train.until_flat is None:
        raise AccordError(
            f"train.flat_margin says when a run counts as flat, got {train.flat_margin}: it needs train.until_flat"
            " beside it"
        )
    if train.until_flat is not None and not settings.data.heldout:
        raise AccordError(
            "train.until_flat needs held-out data to tell when a run is flat: data.heldout must be above 0, got 0"
        )
    if cohort and supply.clients and cohort > supply.clients:
        raise AccordError(f"train.sample must be at most the {supply.clients} clients of data.clients, got {cohort}")
    if cohort and train.min_clients > cohort:
        raise AccordError(f"train.min_clients must be at most the {cohort} clients of a round, got {train.min_clients}")
    if cohort:
        with blaming("algorithm.average", fields=settings_of(type(algorithm.average))):
            algorithm.average.check_cohort(cohort)
    if len(set(run.seeds)) < len(run.seeds):
        raise AccordError(f"run.seeds must differ from each other, got {run.seeds}")
    return experiment


def _foreign(part: Any, path: str = "algorithm") -> dict[str, str]:
    """Where the parts of an algorithm are from that are not accord's own: a class of the same name may do something
    else."""
    module = type(part).__module__
    found = {} if module.partition(".")[0] == "accord" else {path: f"{module}:{type(part).__qualname__}"}
    for field in fields(part):
        if is_dataclass(value := getattr(part, field.name)):
            found |= _foreign(value, f"{path}.{field.name}")
    return found


def _attack(section: AttackSection, algorithm: Algorithm) -> Attack | None:
    make, options = chosen("attack", section, "name", _ATTACKS, _ATTACK_KEYS)
    with blaming("attack", "name"):
        attack: Attack | None = make(**options)
        if attack is not None:
            check_algorithm(algorithm)
    return attack


def _private(algorithm: Algorithm, section: PrivacySection) -> Algorithm:
    """The algorithm with the privacy that the section asks for, if it asks for any."""
    given = section.model_dump(exclude_none=True)
    if not given:
        return algorithm
    for key in ("clip", "noise"):
        if key not in given:
            raise AccordError(f"privacy.{key} is missing: {PrivacySection.model_fields[key].description}")
    with blaming("privacy"):
        return algorithm.with_privacy(**given)


def _schedule(train: TrainSection) -> Schedule:
    make, options = chosen("train", train, "schedule", SCHEDULES, _SCHEDULE_KEYS)
    schedule: Schedule = make(lr=train.lr, **options)
    return schedule
