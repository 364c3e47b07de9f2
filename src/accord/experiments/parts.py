"""The [algorithm] and [privacy] sections: a preset, and tables in the place of its parts.

A table's `name` picks a part (accord's own, one that an installed package registers, or a user's `module:object`), its
other keys are the fields of the part's dataclass. Without a name, or with the name of the preset's own part, it changes
fields of that.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError, did_you_mean
from accord.experiments.options import blaming, unknown
from accord.experiments.schema import checked
from accord.experiments.settings import AlgorithmSection, PrivacySection, shown
from accord.rules.algorithm import Algorithm
from accord.rules.old_spelling import named as name_in
from accord.rules.registry import PARTS, imported
from accord.rules.schema import is_open, name_of, settings_of
from accord.training.run_settings import ALGORITHMS

Table = Mapping[str, Any]


def make_algorithm(section: AlgorithmSection, folder: Path | None = None) -> Algorithm:
    """The preset with the parts that the section has in the place of its own. Modules of the user's are looked for in
    `folder` too."""
    if section.name not in ALGORITHMS:
        raise unknown("algorithm.name", section.name, ALGORITHMS)
    preset = _preset(section.name)
    parts = {}
    for what in PARTS:
        if (given := getattr(section, what)) is not None:
            table = _table(given)
            _check_open(section.name, what, table, getattr(preset, what))
            parts[what] = _made(what, table, f"algorithm.{what}", getattr(preset, what), folder)
    if not parts:
        return preset
    try:
        return replace(preset, **parts)
    except AccordError as error:  # whose first word is the part
        raise AccordError(f"algorithm.{error}") from None


@cache
def _preset(name: str) -> Algorithm:
    algorithm: Algorithm = ALGORITHMS[name]()
    return algorithm


def with_privacy(algorithm: Algorithm, section: PrivacySection) -> Algorithm:
    """The algorithm with the privacy that the section asks for, if it asks for any."""
    given = section.model_dump(exclude_none=True)
    if not given:
        return algorithm
    for key in ("clip", "noise"):
        if key not in given:
            raise AccordError(f"privacy.{key} is missing: {PrivacySection.model_fields[key].description}")
    with blaming("privacy"):
        return algorithm.with_privacy(**given)


def _check_open(preset: str, what: str, table: Table, own: Any) -> None:
    if is_open(ALGORITHMS[preset]) or (what == "mask" and name_in(table) == "none"):
        return
    takes = inspect.signature(ALGORITHMS[preset]).parameters
    for key, value in table.items():
        if not (value == type(own).__name__ if key == "name" else key in takes):
            path = f"algorithm.{what}" + f".{key}" * (key != "name")
            raise AccordError(f"{path} has no meaning with algorithm.name = {preset!r}, got {shown(value)}")


def _made(what: str, table: Table, path: str, own: Any, folder: Path | None) -> Any:
    """The part that a table describes. `own` is what stands there without the table, if anything does."""
    name = table.get("name")
    given = {key: value for key, value in table.items() if key != "name"}
    if name is not None and not isinstance(name, str):
        raise AccordError(f"{path}.name must be text in quotes, got {shown(name)}")
    if what == "mask" and name == "none":
        for key, value in given.items():
            raise AccordError(
                f"{path}.{key} has no meaning with {path} = 'none', got {shown(value)}: name a mask, such as gma"
            )
        return None
    if name is None and own is None:
        raise AccordError(f'{path}.name is missing: it says which {PARTS[what].what} is meant, such as name = "gma"')
    changes_own = own is not None and name in (None, name_of(what, own))
    make = type(own) if changes_own else _maker(what, name or "", path, folder)
    values = _values(name or type(own).__name__, make, given, path, folder, changes_own)
    with blaming(path, fields=settings_of(make)):
        try:
            part = replace(own, **values) if changes_own else make(**values)
        except (TypeError, ValueError) as error:  # a class of the user's may complain in its own way
            raise AccordError(f"{path}: {error}") from None
    if not is_dataclass(part) or isinstance(part, type):
        raise AccordError(
            f"{path}.name must be the name of a dataclass, got {name!r}, which makes {part!r}: its fields are its"
            " settings"
        )
    return part


def _maker(what: str, name: str, path: str, folder: Path | None) -> Callable[..., Any]:
    if ":" in name:
        with blaming(path, "name", fields=()):
            return imported(name, folder)
    if name not in PARTS[what]:
        raise unknown(path, name, [*(["none"] if what == "mask" else []), *PARTS[what]], " or module:object of yours")
    make: Callable[..., Any] = PARTS[what][name]
    return make


def _values(
    name: str, make: Callable[..., Any], given: Table, path: str, folder: Path | None, changes_own: bool
) -> dict[str, Any]:
    """A table's values, as the fields of the part take them."""
    settings, values = settings_of(make), {}
    for key, value in given.items():
        if key not in settings:
            raise AccordError(
                f"{path}.{key} is not a field of {name}, got {shown(value)}: {_belongs(key, settings, path)}"
            )
        setting, below = settings[key], f"{path}.{key}"
        if setting.part and isinstance(value, str | Mapping):
            default = None if setting.default is MISSING else setting.default
            values[key] = _made(setting.part, _table(value), below, default, folder)
        else:
            values[key] = checked(below, value, setting)
    for key, setting in settings.items():
        if setting.default is MISSING and key not in values and not changes_own:
            raise AccordError(f"{path}.{key} is missing: {name} needs it" + f" ({setting.about})" * bool(setting.about))
    return values


def _belongs(key: str, settings: Table, path: str) -> str:
    """What may have been meant by a field that a part does not have."""
    others = [
        name for name, make in PARTS.get(path.rpartition(".")[2], PARTS["mask"]).own.items() if key in settings_of(make)
    ]
    return (
        f"it belongs to {', '.join(others)}" if others else did_you_mean(key, settings) if settings else "it has none"
    )


def _table(given: str | Table) -> Table:
    """A part that is written as a name or as a table, as a table."""
    return {"name": given} if isinstance(given, str) else given


def code_of(part: Any, path: str = "algorithm") -> dict[str, str]:
    """Where the parts of an algorithm are from that are not accord's own: a class of the same name may do something
    else."""
    module = type(part).__module__
    found = {} if module.partition(".")[0] == "accord" else {path: f"{module}:{type(part).__qualname__}"}
    for field in fields(part):
        if is_dataclass(value := getattr(part, field.name)):
            found |= code_of(value, f"{path}.{field.name}")
    return found


# ------------------------------------------------------------------------------------------------- overridden


def drop_old_choice(table: dict[str, Any], path: str, value: Any, folder: Path | None) -> None:
    """Readies an [algorithm] table for another choice. Another preset keeps a mask and an average of choice and nothing
    else, since the rate that suits Adam is far too short for averaging; another mask or average keeps those of the old
    one's fields that it has too."""
    old_name = table.get("name", AlgorithmSection.model_fields["name"].default)
    if path == "name" and value in ALGORITHMS and old_name in ALGORITHMS and old_name != value:
        own = _preset(old_name).average
        kept = {"mask", *({"average"} if name_in(table.get("average")) not in (None, name_of("average", own)) else ())}
        for what in PARTS:
            if what not in kept or not is_open(ALGORITHMS[value]):
                table.pop(what, None)
    what, _, key = path.partition(".")
    if what not in PARTS or key not in ("", "name"):
        return
    old = table.get(what)
    if isinstance(value, Mapping):
        table.pop(what, None)
    elif isinstance(old, Mapping) and old.get("name") != value and isinstance(value, str):
        table[what] = _kept(what, old, value, folder) if what in ("mask", "average") else {}


def _kept(what: str, old: Table, name: str, folder: Path | None) -> dict[str, Any]:
    """The fields of a part that one of another name has too. A control has them by its mask."""
    inner = old.get("mask") if isinstance(old.get("mask"), Mapping) else {}
    fields = {**{key: value for key, value in old.items() if key != "mask"}, **inner} if inner else dict(old)
    fields.pop("name", None)
    if name == "none" or (":" not in name and name not in PARTS[what]):
        return {}
    takes = settings_of(_maker(what, name, f"algorithm.{what}", folder))
    kept = {key: value for key, value in fields.items() if key in takes}
    if what == "mask" and "mask" in takes and takes["mask"].part:
        of_mask = {key: value for key, value in fields.items() if key in settings_of(type(takes["mask"].default))}
        kept |= {"mask": of_mask} if of_mask else {}
    return kept
