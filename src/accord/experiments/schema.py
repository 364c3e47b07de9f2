"""A part's dataclass as the schema of its table: which keys there are, what they take, what they default to and what
they are for."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from accord.core.errors import AccordError, did_you_mean, nearest
from accord.core.protocols import PROTOCOLS
from accord.core.schedule import Schedule, ramp
from accord.experiments.settings import shown, takes

_STRICT = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
_RAMP = {"from": "lr", "to": "end", "over": "over"}  # how a file spells the fields of a ramp


@dataclass(frozen=True)
class Setting:
    """A field of a part: what it takes, what it is for, and its default (MISSING: it must be given)."""

    kind: Any
    about: str
    default: Any

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """What it takes, one by one where there are several."""
        return get_args(self.kind) if get_origin(self.kind) not in (None, Literal, list, tuple, dict) else (self.kind,)

    @cached_property
    def part(self) -> str | None:
        """Which part of an algorithm it is itself, if it is one: `scaled` has a mask."""
        return next((what for what, protocol in PROTOCOLS.items() if protocol in self.kinds), None)

    @cached_property
    def moves(self) -> bool:
        """Whether it may be a schedule over rounds."""
        return ramp in self.kinds

    def __str__(self) -> str:
        """What it takes, in words."""
        words = [takes(kind) for kind in self.kinds if kind is not type(None) and kind not in get_args(Schedule)]
        return " or ".join([*words, *(["a table { from, to, over }"] if self.moves else [])])


def _settings_of(make: Callable[..., Any]) -> dict[str, Setting]:
    """What a table may hold besides `name`: the parameters of the constructor, as the dataclass that it makes has
    them."""
    made = made_by(make)
    hints = {} if made is None else get_type_hints(made, include_extras=True)
    factories = {field.name: field.default_factory for field in fields(made)} if is_dataclass(made) else {}
    found = {}
    for name, parameter in inspect.signature(make).parameters.items():
        kind, about = hints.get(name, Any), ""
        if get_origin(kind) is Annotated:
            kind, *notes = get_args(kind)
            about = next((note for note in notes if isinstance(note, str)), "")
        factory = factories.get(name, MISSING)
        default = MISSING if parameter.default is parameter.empty else parameter.default
        found[name] = Setting(kind, about, default if factory is MISSING else factory())
    return found


# once for each part: constructors do not change
settings_of: Callable[[Callable[..., Any]], dict[str, Setting]] = cache(_settings_of)


def made_by(make: Callable[..., Any]) -> type | None:
    """The class of what a constructor makes, if it says so."""
    made = make if isinstance(make, type) else inspect.signature(make, eval_str=True).return_annotation
    return made if isinstance(made, type) and made is not inspect.Signature.empty else None


def checked(path: str, value: Any, setting: Setting) -> Any:
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
    given = {"from": setting.default, **table}
    for key in _RAMP:
        if not isinstance(given.get(key), int if key == "over" else int | float) or isinstance(given[key], bool):
            wanted = "a whole number of rounds" if key == "over" else "a number"
            seen = f"must be {wanted}, got {shown(given[key])}" if key in given else "is missing"
            raise AccordError(
                f"{path}.{key} {seen}: { {'from': 0.8, 'to': 0.4, 'over': 50} } moves in a straight line over 50 rounds"
            )
    try:
        return ramp(**{_RAMP[key]: value for key, value in given.items()})
    except AccordError as error:
        field, _, rest = str(error).partition(" ")
        raise AccordError(f"{path}.{next((key for key, own in _RAMP.items() if own == field), field)} {rest}") from None
