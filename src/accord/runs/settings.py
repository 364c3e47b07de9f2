"""`experiment.json`: the settings of a run, the same whether it was made by the command or from Python.

Sections and keys are those of an experiment file. Model, data and functions that only Python knows are told by what
they hold (`content`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accord.core.errors import AccordError
from accord.core.jsonable import Json, Jsonable

_SECTIONS = ("data", "model", "train", "algorithm", "attack", "privacy", "run", "content")
_PARTS = ("local", "average", "mask", "server")
_KINDS = {str: "text", int: "a whole number", Mapping: "a table"}


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
    def from_json(cls, form: Any) -> "RunSettings":
        """The settings in a run folder, which may have been made elsewhere."""
        if not isinstance(form, Mapping):
            raise AccordError("experiment.json holds no settings")
        sections = {name: form[name] for name in _SECTIONS if name in form}
        kinds = {"label": str, "seed": int, **dict.fromkeys(sections, Mapping)}
        for name, kind in kinds.items():
            if not isinstance(form.get(name), kind):
                raise AccordError(f"{name} in experiment.json must be {_KINDS[kind]}, got {form.get(name)!r}")
        sections["algorithm"] = as_tables(form.get("algorithm", {}))
        return cls(label=form["label"], seed=form["seed"], **sections)


def as_tables(algorithm: Mapping[str, Any]) -> Json:
    """The section with `mask = "gma"` written out, so that all runs have the same keys."""
    short = [key for key in _PARTS if isinstance(algorithm.get(key), str)]
    return {**algorithm, **{key: {"name": algorithm[key]} for key in short}}
