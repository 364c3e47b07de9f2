"""The [algorithm] and [privacy] sections: a preset, and tables in the place of its parts.

A table's `name` picks a part (accord's own, one that an installed package registers, or a user's `module:object`), its
other keys are the fields of the part's dataclass. Without a name, or with the name of the preset's own part, it changes
fields of that.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from accord.core.errors import AccordError, did_you_mean, nearest
from accord.core.schedule import ramp
from accord.experiments.options import blamed, unknown
from accord.experiments.paths import name_in
from accord.experiments.settings import AlgorithmSection, PrivacySection, shown
from accord.rules.algorithm import Algorithm
from accord.rules.registry import PARTS, imported
from accord.rules.schema import Setting, is_open, name_of, settings_of
from accord.training.run_settings import ALGORITHMS

Table = Mapping[str, Any]
_STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
_RAMP = {"from": "lr", "to": "end", "over": "over"}  # how a file spells the fields of a ramp


def make_algorithm(section: AlgorithmSection, privacy: PrivacySection, folder: Path | None) -> Algorithm:
    """The preset with the parts that the section has in the place of its own, and the privacy that is asked for, if any
    is. Modules of the user's are looked for in `folder` too; without it none is imported."""
    if section.name not in ALGORITHMS:
        raise unknown("algorithm.name", section.name, ALGORITHMS)
    preset = preset_of(section.name)
    parts = {}
    for what in PARTS:
        if (written := getattr(section, what)) is not None:
            table = _table(written)
            _check_open(section.name, what, table, getattr(preset, what))
            parts[what] = _made(what, table, f"algorithm.{what}", getattr(preset, what), folder)
    try:
        algorithm = replace(preset, **parts) if parts else preset
        algorithm = algorithm.with_personal(*section.personal) if section.personal else algorithm
    except AccordError as error:  # whose first word is the part
        raise AccordError(f"algorithm.{error}") from None
    wanted = privacy.model_dump(exclude_none=True)
    return _with_privacy(algorithm, wanted) if wanted else algorithm


@cache
def preset_of(name: str) -> Algorithm:
    return ALGORITHMS[name]()


def _with_privacy(algorithm: Algorithm, table: Table) -> Algorithm:
    for key in ("clip", "noise"):
        if key not in table:
            raise AccordError(f"privacy.{key} is missing: {PrivacySection.model_fields[key].description}")
    try:
        return algorithm.with_privacy(**table)
    except AccordError as error:
        raise blamed(error, "privacy") from None


def _check_open(preset: str, what: str, table: Table, default: Any) -> None:
    if is_open(ALGORITHMS[preset]) or (what == "mask" and name_in(table) == "none"):
        return
    takes = inspect.signature(ALGORITHMS[preset]).parameters
    for key, value in table.items():
        if not (value == type(default).__name__ if key == "name" else key in takes):
            path = f"algorithm.{what}" + f".{key}" * (key != "name")
            raise AccordError(f"{path} has no meaning with algorithm.name = {preset!r}, got {shown(value)}")


def _made(what: str, table: Table, path: str, default: Any, folder: Path | None) -> Any:
    """The part that a table describes. `default` is what stands there without the table, if anything does."""
    name = table.get("name")
    settings = {key: value for key, value in table.items() if key != "name"}
    if name is not None and not isinstance(name, str):
        raise AccordError(f"{path}.name must be text in quotes, got {shown(name)}")
    if what == "mask" and name == "none":
        for key, value in settings.items():
            raise AccordError(
                f"{path}.{key} has no meaning with {path} = 'none', got {shown(value)}: name a mask, such as gma"
            )
        return None
    if name is None and default is None:
        raise AccordError(f'{path}.name is missing: it says which {PARTS[what].what} is meant, such as name = "gma"')
    changes_default = default is not None and name in (None, name_of(what, default))
    make = type(default) if changes_default else maker_of(what, name or "", path, folder)
    values = _values(name or type(default).__name__, make, settings, path, folder, changes_default)
    try:
        part = replace(default, **values) if changes_default else make(**values)
    except AccordError as error:
        raise blamed(error, path, fields=settings_of(make)) from None
    except (Exception, SystemExit) as error:  # a class of the user's may complain in its own way
        reason = str(error) if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: {error}"
        raise AccordError(f"{path}: {' '.join(reason.split())}") from None
    if not is_dataclass(part) or isinstance(part, type):
        raise AccordError(
            f"{path}.name must be the name of a dataclass, got {name!r}, which makes {part!r}: its fields are its"
            " settings"
        )
    return part


def maker_of(what: str, name: str, path: str, folder: Path | None) -> Callable[..., Any]:
    if ":" in name:
        try:
            make = imported(name, folder)
            settings_of(make)  # which must be there to be read
            return make
        except AccordError as error:
            raise AccordError(f"{path}.name: {error}") from None
    if name not in PARTS[what]:
        raise unknown(path, name, [*(["none"] if what == "mask" else []), *PARTS[what]], " or module:object of yours")
    return PARTS[what][name]


def _values(
    name: str, make: Callable[..., Any], table: Table, path: str, folder: Path | None, changes_default: bool
) -> dict[str, Any]:
    """A table's values, as the fields of the part take them."""
    settings, values = settings_of(make), {}
    for key, value in table.items():
        if key not in settings:
            raise AccordError(
                f"{path}.{key} is not a field of {name}, got {shown(value)}: {_belongs(key, settings, path)}"
            )
        setting, below = settings[key], f"{path}.{key}"
        if setting.part and isinstance(value, str | Mapping):
            default = None if setting.default is MISSING else setting.default
            values[key] = _made(setting.part, _table(value), below, default, folder)
        else:
            values[key] = _checked(below, value, setting)
    for key, setting in settings.items():
        if setting.default is MISSING and key not in values and not changes_default:
            raise AccordError(f"{path}.{key} is missing: {name} needs it" + f" ({setting.about})" * bool(setting.about))
    return values


def _checked(path: str, value: Any, setting: Setting) -> Any:
    """The value of a key, if it is what the field takes. A table is a schedule in a straight line."""
    if setting.moves and isinstance(value, Mapping):
        return _ramp(path, value, setting)
    words = [word for kind in setting.kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if type(value) is int and str(value) in words:
        return str(value)  # a command line cannot tell the word 24 from the number
    if isinstance(value, list) and any(get_origin(kind) is tuple for kind in setting.kinds):
        value = tuple(value)
    try:
        return TypeAdapter(setting.kind, config=_STRICT).validate_python(value)
    except PydanticUserError:
        return value  # a type that cannot be checked from outside: the part's own checks have the say
    except ValidationError:
        takes = str(setting)
        if isinstance(value, float) and not math.isfinite(value):
            takes = takes.replace("a number", "a finite number")
        close = nearest(value, [word for word in words if isinstance(word, str)]) if isinstance(value, str) else None
        hint = f": did you mean {close!r}?" if close else f" ({setting.about})" if setting.about else ""
        raise AccordError(f"{path} must be {takes}, got {shown(value)}{hint}") from None


def _ramp(path: str, table: Mapping[str, Any], setting: Setting) -> ramp:
    """`{ from = 0.8, to = 0.4, over = 50 }`; without `from` it starts at the default."""
    for key in table:
        if key not in _RAMP:
            raise AccordError(f"{path}.{key} is not a known key, got {shown(table[key])}: {did_you_mean(key, _RAMP)}")
    settings = {"from": setting.default, **table}
    for key in _RAMP:
        if not isinstance(settings.get(key), int if key == "over" else int | float) or isinstance(settings[key], bool):
            wanted = "a whole number of rounds" if key == "over" else "a number"
            seen = f"must be {wanted}, got {shown(settings[key])}" if key in settings else "is missing"
            raise AccordError(
                f"{path}.{key} {seen}: { {'from': 0.8, 'to': 0.4, 'over': 50} } moves in a straight line over 50 rounds"
            )
    try:
        return ramp(**{_RAMP[key]: value for key, value in settings.items()})
    except AccordError as error:
        field, _, rest = str(error).partition(" ")
        raise AccordError(
            f"{path}.{next((key for key, name in _RAMP.items() if name == field), field)} {rest}"
        ) from None


def _belongs(key: str, settings: Table, path: str) -> str:
    """What may have been meant by a field that a part does not have."""
    others = [
        name for name, make in PARTS.get(path.rpartition(".")[2], PARTS["mask"]).own.items() if key in settings_of(make)
    ]
    return (
        f"it belongs to {', '.join(others)}" if others else did_you_mean(key, settings) if settings else "it has none"
    )


def _table(written: str | Table) -> Table:
    """A part that is written as a name or as a table, as a table."""
    return {"name": written} if isinstance(written, str) else written


def code_of(part: Any, path: str = "algorithm") -> dict[str, str]:
    """Where the parts of an algorithm are from that are not accord's own: a class of the same name may do something
    else."""
    module = type(part).__module__
    named = {} if module.partition(".")[0] == "accord" else {path: f"{module}:{type(part).__qualname__}"}
    for field in fields(part):
        if is_dataclass(value := getattr(part, field.name)):
            named |= code_of(value, f"{path}.{field.name}")
    return named
