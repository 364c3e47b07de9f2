"""What does not fit the sections of an experiment file, in sentences."""

from typing import Any

from pydantic import ValidationError

from accord.core.errors import did_you_mean, nearest
from accord.experiments.settings import SECTIONS, shown
from accord.rules.registry import PARTS
from accord.rules.schema import settings_of, takes


def problems(error: ValidationError) -> str:
    """A sentence for each thing that does not fit: the key, what it takes, the value seen, what the key is for."""
    return "\n".join(dict.fromkeys(_sentence(problem) for problem in error.errors()))


def _sentence(problem: Any) -> str:
    section, *path = problem["loc"]
    seen = problem["input"]
    if section == "sweep":
        return "[sweep] makes this file a grid of runs: train it with `accord sweep`, or take the table out"
    if section not in SECTIONS:
        return f"[{section}] is not a section of an experiment: {did_you_mean(str(section), SECTIONS)}"
    if not path:
        return (
            f"{section} must be a section, got {shown(seen)}: write [{section}] on a line of its own, and its keys"
            " below it"
        )
    key, fields = str(path[0]), SECTIONS[section].model_fields
    if key not in fields:
        return f"{section}.{key} is not a known key, got {shown(seen)}: {_meant(section, key)}"
    field = fields[key]
    wanted = takes(field.annotation, field.metadata)
    if problem["type"] == "finite_number":
        wanted = wanted.replace("a number", "a finite number")
    return f"{section}.{key} must be {wanted}, got {shown(seen)} ({field.description})"


def _meant(section: str, key: str) -> str:
    """Which key was probably meant; of [algorithm], maybe one of a part."""
    fields = SECTIONS[section].model_fields
    if section == "algorithm" and not nearest(key, fields):
        of_parts = {
            field: f"{what}.{field}" for what in PARTS for make in PARTS[what].values() for field in settings_of(make)
        }
        if inner := nearest(key, of_parts):
            return f"did you mean {of_parts[inner]!r}?"
    return did_you_mean(key, fields)
