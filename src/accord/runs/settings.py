"""`experiment.json`: the settings of a run, the same whether it was made by the command or from Python.

Sections and keys are those of an experiment file. Model, data and functions that only Python knows are told by what
they hold (`content`). Folders of accord 0.1, and of Python before this was so, are read as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accord.core.errors import AccordError
from accord.core.jsonable import Json, Jsonable
from accord.rules.old_spelling import MOVED, RENAMED, modern, renamed

_SECTIONS = ("data", "model", "train", "algorithm", "attack", "privacy", "run", "content")
_PARTS = ("local", "average", "mask", "server")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunSettings(Jsonable):
    """What a run was told to do, every default filled in."""

    label: str = ""  # `fedadam + gma(0.4)`
    seed: int | None = None
    data: Json = field(default_factory=dict)
    model: Json = field(default_factory=dict)
    train: Json = field(default_factory=dict)
    algorithm: Json = field(default_factory=dict)
    attack: Json | None = None
    privacy: Json | None = None
    run: Json = field(default_factory=dict)  # how it was run: nothing that changes results
    content: Json | None = None  # fingerprints of what a run made in Python was given

    def fields_in_json(self) -> Json:
        sections = {name: getattr(self, name) for name in _SECTIONS}
        there = {name: section for name, section in sections.items() if section is not None}
        return {"seed": self.seed, "label": self.label, **there}

    @classmethod
    def from_json(cls, form: Any, folder: str) -> "RunSettings":
        """The settings in a run folder of that name."""
        if not isinstance(form, Mapping):
            raise AccordError("experiment.json holds no settings")
        form = dict(form) if isinstance(form.get("data"), Mapping) else _of_python(form, folder)
        if any(f"train.{key}" in RENAMED for key in form.get("train", {})):
            form["train"] = renamed("train", form["train"])
        algorithm = form.get("algorithm", {})
        if MOVED.keys() & algorithm.keys():
            algorithm = modern(algorithm)
        algorithm = as_tables(algorithm)
        seed = form.get("seed")
        return cls(
            **{name: form[name] for name in _SECTIONS if name in form and name != "algorithm"},
            algorithm=algorithm,
            label=form["label"] if "label" in form else label_of_0_1(algorithm),
            seed=_seed_in(folder) if seed is None else seed,
        )


def _seed_in(folder: str) -> int | None:
    seed = folder.rpartition("-s")[2]
    return int(seed) if seed.lstrip("-").isdecimal() else None


# --------------------------------------------------------------------------------------------- earlier spellings


def _of_python(form: Mapping[str, Any], folder: str) -> Json:
    """What a run in Python wrote until 0.2: values that differed from their defaults, under the names of classes."""
    training, plan = (_without_kind(form.get(name, {})) for name in ("training", "plan"))
    rate, conditions = training.pop("lr", None), plan.pop("conditions", {})
    if isinstance(rate, Mapping):
        training |= {"schedule": rate["kind"], **_without_kind(rate)}
    elif rate is not None:
        training["lr"] = rate
    algorithm = {key: _named(value) for key, value in _without_kind(form["algorithm"]).items()}
    named = {key: form[key] for key in ("seed", "label") if key in form}
    known = {"schema", "algorithm", "training", "plan", "attack", "rounds", *named}
    return {
        **named,
        "data": {"name": folder.partition(f"-{algorithm.get('name', 'custom')}-")[0].partition("-s")[0]},
        "model": {"name": form["model"][0]} if form.get("model") else {},
        "train": {"rounds": form.get("rounds", 0), **training, **plan, **_without_kind(conditions)},
        "algorithm": algorithm,
        **({"attack": _named(form["attack"])} if "attack" in form else {}),
        "content": {key: value for key, value in form.items() if key not in known},
    }


def _without_kind(table: Mapping[str, Any]) -> Json:
    return {key: value for key, value in table.items() if key != "kind"}


def _named(value: Any) -> Any:
    """`{"kind": "gma", ...}` as `{"name": "gma", ...}`, also within it."""
    if not isinstance(value, Mapping):
        return value
    name = {"name": value["kind"]} if "kind" in value else {}
    return name | {key: _named(entry) for key, entry in value.items() if key != "kind"}


def as_tables(algorithm: Mapping[str, Any]) -> Json:
    """The section with `mask = "gma"` written out, so that runs of any release have the same keys."""
    short = [key for key in _PARTS if isinstance(algorithm.get(key), str)]
    return {**algorithm, **{key: {"name": algorithm[key]} for key in short}}


def label_of_0_1(algorithm: Mapping[str, Any]) -> str:
    """The label of a run of accord 0.1, which wrote none. Names are read, never looked up: reading a folder imports
    nothing."""
    average, mask = algorithm.get("average", {}), algorithm.get("mask") or {}
    kind = average.get("name", "mean")
    averaged = "" if kind in ("mean", "masked_gradient") else f" by {kind}"
    masked = "" if mask.get("name", "none") == "none" else f" + {_mask_of_0_1(mask)}"
    return f"{algorithm.get('name', 'custom')}{averaged}{masked}"


def _mask_of_0_1(mask: Mapping[str, Any]) -> str:
    kind = mask.get("name", "gma")
    if kind == "scaled":
        return f"scaled({_mask_of_0_1(mask.get('mask', {}))}, {mask.get('by', 'mean')})"
    tau = mask.get("tau", 0.4)
    if isinstance(tau, Mapping):
        first = tau.get("lr", tau.get("from", 0.4))
        return f"{'and_mask' if kind == 'and' else kind}({first:g} {tau.get('name', 'ramp')})"
    return f"{'and_mask' if kind == 'and' else kind}({tau:g})"
