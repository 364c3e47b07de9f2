"""Every key of an experiment file, for `accord settings` and the page of the site: what it is, and its default."""

from collections.abc import Iterator
from typing import Any, Literal, get_origin

from accord.causal.rule import split_network
from accord.experiments.settings import SECTIONS
from accord.rules.averages import masked_gradient
from accord.rules.registry import PARTS
from accord.rules.schema import Setting, settings_of

_OF_PRESETS: dict[str, dict[str, Any]] = {
    "local": {"causalfed": split_network},
    "average": {"fedgma": masked_gradient},
}  # parts that come with a preset alone


def keys() -> Iterator[tuple[str, Any, str]]:
    """Every key with its default (None: it depends, or there is none) and what it is for; below the parts of an
    algorithm, their fields."""
    for section, model in SECTIONS.items():
        for key, field in model.model_fields.items():
            yield f"{section}.{key}", field.default, field.description or ""
            if section == "algorithm" and key in PARTS:
                yield from _fields(key)


def _fields(what: str) -> Iterator[tuple[str, Any, str]]:
    """The fields of all parts of a kind. Parts share a field where they have it under one name for one thing."""
    by_key: dict[tuple[str, str], list[tuple[str, Setting]]] = {}
    for name, make in {**PARTS[what].own, **_OF_PRESETS.get(what, {})}.items():
        for key, setting in settings_of(make).items():
            by_key.setdefault((key, setting.about), []).append((name, setting))
    for (key, about), owners in by_key.items():
        defaults = [setting.default for _, setting in owners]
        same = all(default == defaults[0] for default in defaults) and isinstance(defaults[0], str | int | float)
        names = ", ".join(name for name, _ in owners)
        setting = owners[0][1]
        words = f" ({setting})" if get_origin(setting.kind) is Literal or setting.moves else ""
        yield f"algorithm.{what}.{key}", defaults[0] if same else None, f"{names}: {about}{words}"
