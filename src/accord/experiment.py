"""An experiment file, validated: TOML in, settings with every default filled in and objects ready to run out.

Numbers are checked where they are used (a mask checks its tau); this file adds which key was meant. Every mistake is one sentence that
says the key, the value seen and what is allowed.
"""

import hashlib
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from accord.algorithm import ALGORITHMS, Algorithm
from accord.cohort import Conditions
from accord.data import DATASETS, SPLITS, Federation
from accord.describe import describe
from accord.engines import ENGINES, pick_device
from accord.errors import AccordError
from accord.identity import Plan, folder_name
from accord.local import Training
from accord.mask import MASKS, Mask
from accord.models import MODELS, warm_start
from accord.schedule import SCHEDULES, Schedule
from accord.settings import SECTIONS, AlgorithmSection, Section, Settings, TrainSection, problems, shown

Makers = Mapping[str, Callable[..., Any]]

# Keys whose meaning hangs on a choice: each choice's constructor says which of them it takes.
_SPLIT_KEYS = ("classes", "noise", "alpha", "beta")
_MODEL_KEYS = ("width", "hidden", "dropout")
_SCHEDULE_KEYS = ("decay", "every", "over", "floor")
_MASK_KEYS = ("tau", "rescale")
_ALGORITHM_KEYS = tuple(key for key in AlgorithmSection.model_fields if key not in ("name", *_MASK_KEYS))


_NO_MASK: Makers = {"none": lambda: None, **MASKS}
_CHOICES: dict[tuple[str, str], tuple[Makers, Sequence[str]]] = {
    ("data", "split"): (SPLITS, _SPLIT_KEYS),
    ("model", "name"): (MODELS, _MODEL_KEYS),
    ("train", "schedule"): (SCHEDULES, _SCHEDULE_KEYS),
    ("algorithm", "mask"): (_NO_MASK, _MASK_KEYS),
    ("algorithm", "name"): (ALGORITHMS, _ALGORITHM_KEYS),
}


@dataclass(frozen=True)
class Experiment:
    """Valid settings, the text they came from, and the objects they stand for."""

    settings: Settings
    text: str
    algorithm: Algorithm
    training: Training
    split_options: dict[str, Any]
    model_options: dict[str, Any]

    def plan(self, seed: int) -> Plan:
        train, run = self.settings.train, self.settings.run
        conditions = Conditions(train.available, train.lost, train.stragglers, train.least)
        sample = None if train.sample == "all" else train.sample
        return Plan(train.rounds, sample, train.evaluate_every, run.checkpoint_every, train.min_clients, conditions, run.budget, seed)

    def check_here(self) -> None:
        """Refuses what this machine cannot do, before anything is fetched."""
        with _blaming("run", "device"):
            pick_device(self.settings.run.device)
        self.identity()  # reads the file to start from

    def federation(self, seed: int, progress: Callable[[str, int, int | None], None] | None = None) -> Federation:
        """The data set, dealt. Fetches it first if it is not there yet."""
        data = self.settings.data
        with _blaming("data"):
            return DATASETS[data.name](
                clients=data.clients,
                split=data.split,
                unseen=data.unseen,
                heldout=data.heldout,
                seed=seed if data.seed is None else data.seed,
                source=data.source,
                progress=progress,
                **self.split_options,
            )

    def module(self, fed: Federation, seed: int) -> nn.Module:
        """The network, shaped for the data, with the weights to start from."""
        model = self.settings.model
        channels, size, classes = fed.x.shape[1], fed.x.shape[-1], int(fed.y.max()) + 1
        with _blaming("model"):
            module = MODELS[model.name](channels=channels, size=size, classes=classes, seed=seed, **self.model_options)
        with _blaming("model", "start"):
            return module if model.start is None else warm_start(module, model.start)

    def identity(self) -> dict[str, Any]:
        """What changes the result: everything but how far, how often, where and on what; defaults left out."""
        data, model = self.settings.data, self.settings.model
        start = {} if model.start is None else {"start": _digest(model.start)}
        return {
            "data": data.model_dump(exclude_defaults=True, exclude={"source", *_SPLIT_KEYS})
            | _without_defaults(SPLITS[data.split], self.split_options),
            "model": model.model_dump(exclude_defaults=True, include={"name"})
            | _without_defaults(MODELS[model.name], self.model_options)
            | start,
            "algorithm": describe(self.algorithm),
            "training": describe(self.training),
            "plan": describe(self.plan(0).that_changes_results()),
        }

    def folder(self, seed: int) -> Path:
        """Where this seed's run lives."""
        mask = self.algorithm.mask
        words = [self.settings.data.name, self.algorithm.name, type(mask).__name__ if mask else ""]
        return Path(self.settings.run.folder) / folder_name(words, self.identity(), seed)

    def resolved(self) -> dict[str, Any]:
        """Every setting that applies, defaults filled in."""
        settings = self.settings
        full = settings.model_dump(exclude_none=True)
        full["data"] |= _defaults(SPLITS[settings.data.split], _SPLIT_KEYS) | self.split_options
        full["model"] |= _defaults(MODELS[settings.model.name], _MODEL_KEYS) | self.model_options
        full["train"] = _defaults(SCHEDULES[settings.train.schedule], _SCHEDULE_KEYS) | full["train"]
        full["algorithm"] = {"name": self.algorithm.name} | _defaults(ALGORITHMS[self.algorithm.name], _ALGORITHM_KEYS) | full["algorithm"]
        if mask := self.algorithm.mask:
            full["algorithm"] |= {field.name: getattr(mask, field.name) for field in fields(mask)}
        return full


# ------------------------------------------------------------------------------------------------------------------- reading


def read(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """An experiment from a TOML file and `section.key=value` overrides."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AccordError(f"there is no file {path}: give the path of an experiment file, such as experiments/quickstart.toml") from None
    except OSError as error:
        raise AccordError(f"{path} cannot be read as an experiment file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccordError(f"{path} is not an experiment file: it does not hold text in UTF-8") from None
    return parse(text, overrides, name=str(path))


def parse(text: str, overrides: Sequence[str] = (), name: str = "the experiment") -> Experiment:
    """An experiment from TOML text and `section.key=value` overrides."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AccordError(f"{name} is not valid TOML: {error}") from None
    given = [_override(override) for override in overrides]
    for section, key, value in given:
        _drop_options_of_the_old_choice(tables, section, key, value)
    for section, key, value in given:
        table = tables.setdefault(section, {})
        if isinstance(table, dict):  # else the file is wrong, and validation will say so
            table[key] = value
    try:
        settings = Settings.model_validate(tables)
    except ValidationError as error:
        raise AccordError(problems(error)) from None
    return _build(settings, text)


def _override(text: str) -> tuple[str, str, Any]:
    """`section.key=value` in its parts. Values are written as in TOML; bare words are strings, commas make lists."""
    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (section and dot and key and equals):
        raise AccordError(f"{text!r} is not a setting: write section.key=value, such as algorithm.tau=0.6")
    return section, key, _value(value.strip())


def _drop_options_of_the_old_choice(tables: dict[str, Any], section: str, key: str, value: Any) -> None:
    """An override that chooses another algorithm, split, mask, model or schedule leaves the file's options for the old one behind. What a
    new mask takes, stays; an algorithm's numbers never stay, since the rate that suits Adam is far too short for averaging."""
    makers, options = _CHOICES.get((section, key), ({}, ()))
    table = tables.get(section)
    if not isinstance(table, dict) or not isinstance(value, str) or value not in makers or table.get(key) == value:
        return
    takes = set(inspect.signature(makers[value]).parameters)
    dropped = [option for option in options if option not in (takes & {"mask"} if key == "name" else takes)]
    for option in (*dropped, *(_MASK_KEYS if "mask" in dropped else ())):
        table.pop(option, None)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return [_value(part.strip()) for part in text.split(",")] if "," in text else text


# ------------------------------------------------------------------------------------------------------------------ building


def _build(settings: Settings, text: str) -> Experiment:
    data, train, run = settings.data, settings.train, settings.run
    _known("data.name", data.name, DATASETS)
    _known("run.engine", run.engine, ENGINES)
    _, split_options = _chosen("data", data, "split", SPLITS, _SPLIT_KEYS)
    _, model_options = _chosen("model", settings.model, "name", MODELS, _MODEL_KEYS)
    algorithm = _algorithm(settings.algorithm)
    with _blaming("train", "momentum"):
        batch = None if train.batch == "all" else train.batch
        training = Training(train.epochs, batch, train.steps, _schedule(train), train.momentum, train.weight_decay, train.clip)
        training.check(algorithm.local)
    experiment = Experiment(settings, text, algorithm, training, split_options, model_options)
    with _blaming("train"):
        cohort = experiment.plan(0).sample or data.clients
    if cohort > data.clients:
        raise AccordError(f"train.sample must be at most the {data.clients} clients of data.clients, got {cohort}")
    if train.min_clients > cohort:
        raise AccordError(f"train.min_clients must be at most the {cohort} clients of a round, got {train.min_clients}")
    if len(set(run.seeds)) < len(run.seeds):
        raise AccordError(f"run.seeds must differ from each other, got {run.seeds}")
    return experiment


def _algorithm(section: AlgorithmSection) -> Algorithm:
    make_mask, mask_options = _chosen("algorithm", section, "mask", _NO_MASK, _MASK_KEYS)
    with _blaming("algorithm", "mask"):
        mask: Mask | None = make_mask(**mask_options)
    unmasked = section.model_copy(update={"mask": None}) if mask is None else section
    make, options = _chosen("algorithm", unmasked, "name", ALGORITHMS, _ALGORITHM_KEYS)
    with _blaming("algorithm", "name"):
        algorithm: Algorithm = make(**(options if mask is None else {**options, "mask": mask}))
    return algorithm


def _schedule(train: TrainSection) -> Schedule:
    make, options = _chosen("train", train, "schedule", SCHEDULES, _SCHEDULE_KEYS)
    schedule: Schedule = make(lr=train.lr, **options)
    return schedule


def _chosen(section: str, given: Section, by: str, makers: Makers, keys: Sequence[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The constructor that the key `by` names, and those of `keys` that were given, which must be its own."""
    name = getattr(given, by)
    _known(f"{section}.{by}", name, makers)
    options = {key: getattr(given, key) for key in keys if getattr(given, key) is not None}
    takes = {maker: inspect.signature(make).parameters for maker, make in makers.items()}
    for key, value in options.items():
        if key not in takes[name]:
            owners = ", ".join(maker for maker in makers if key in takes[maker])
            raise AccordError(f"{section}.{key} has no meaning with {section}.{by} = {name!r}, got {shown(value)}: it belongs to {owners}")
    for key in keys:
        if key in takes[name] and takes[name][key].default is inspect.Parameter.empty and key not in options:
            what = SECTIONS[section].model_fields[key].description
            raise AccordError(f"{section}.{key} is missing: {section}.{by} = {name!r} needs it ({what})")
    return makers[name], options


@contextmanager
def _blaming(section: str, key: str | None = None) -> Iterator[None]:
    """Says which key a part complains of: its first word, where that is a key of the section, or else `key`."""
    try:
        yield
    except AccordError as error:
        text = str(error)
        if text.split(maxsplit=1)[0] in SECTIONS[section].model_fields:
            text = f"{section}.{text}"
        elif not text.startswith(f"{section}."):
            text = f"{section}.{key}: {text}" if key else f"[{section}] {text}"
        raise AccordError(text) from None


def _known(key: str, name: str, names: Mapping[str, Any]) -> None:
    if name not in names:
        raise AccordError(f"{key} must be one of {', '.join(names)}, got {name!r}")


def _defaults(make: Callable[..., Any], keys: Sequence[str]) -> dict[str, Any]:
    """What `make` takes for those of `keys` that it has a default for."""
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in parameters if p.name in keys and p.default not in (p.empty, None)}


def _without_defaults(make: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters
    return {key: value for key, value in options.items() if value != parameters[key].default}


def _digest(path: str) -> str:
    """A file by its content, so that other weights under the same name make another run."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise AccordError(f"model.start must be a safetensors file, got {path!r}: {error.strerror}") from None
