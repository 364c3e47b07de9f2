"""A part's dataclass as the schema of its table: which keys there are, what they take, what they default to and what
they are for; and a part as such a table."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache, cached_property
from types import FunctionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from accord.core.errors import AccordError
from accord.core.protocols import PROTOCOLS
from accord.core.schedule import Schedule, ramp
from accord.rules.algorithm import Algorithm
from accord.rules.registry import PARTS

_KINDS = {
    int: "a whole number",
    float: "a number",
    Fraction: 'a fraction such as "5/7"',
    str: "text in quotes",
    bool: "true or false",
}
_BOUNDS = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}


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

    def __str__(self) -> str:
        """What it takes, in words."""
        hidden = (type(None), *get_args(Schedule), *([str] if Fraction in self.kinds else []))
        words = [takes(kind) for kind in self.kinds if kind not in hidden]
        return " or ".join([*words, *(["a table { from, to, over }"] if self.moves else [])])

    @cached_property
    def moves(self) -> bool:
        """Whether it may be a schedule over rounds."""
        return ramp in self.kinds

    @cached_property
    def part(self) -> str | None:
        """Which part of an algorithm it is itself, if it is one: `scaled` has a mask."""
        return next((what for what, protocol in PROTOCOLS.items() if protocol in self.kinds), None)


def takes(kind: Any, bounds: Iterable[Any] = ()) -> str:
    """What a key takes, in words: `a whole number of at least 1`."""
    if get_origin(kind) is Annotated:
        base, *info = get_args(kind)
        return takes(base, [bound for one in info for bound in getattr(one, "metadata", ())])
    if get_origin(kind) in (list, tuple):
        return f"one or more, each {takes(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return "a table"
    if get_origin(kind) is Literal:
        *words, last = map(repr, get_args(kind))
        return f"{', '.join(words)} or {last}" if words else last
    if kinds := [part for part in get_args(kind) if part is not type(None)]:
        return " or ".join(takes(part, bounds) for part in kinds)
    limits = [
        f"{word} {getattr(bound, name)}" for bound in bounds for name, word in _BOUNDS.items() if hasattr(bound, name)
    ]
    return " ".join(
        [_KINDS.get(kind, str(getattr(kind, "__name__", kind))), *([" and ".join(limits)] if limits else [])]
    )


def settings_of(make: Callable[..., Any]) -> dict[str, Setting]:
    """What a table may hold besides `name`: the parameters of the constructor, as the dataclass that it makes has
    them."""
    try:
        # once for a class or a function, which do not change; other callables may, and may have no hash
        return _kept(make) if isinstance(make, type | FunctionType) else _read(make)
    except (NameError, TypeError, ValueError) as error:  # an annotation of the user's, or a constructor written in C
        raise AccordError(f"the parameters of {make!r} cannot be read: {error}") from None


def _read(make: Callable[..., Any]) -> dict[str, Setting]:
    made = made_by(make)
    hints = {} if made is None else get_type_hints(made, include_extras=True)
    factories = {field.name: field.default_factory for field in fields(made)} if is_dataclass(made) else {}
    settings = {}
    for name, parameter in inspect.signature(make).parameters.items():
        kind, about = hints.get(name, Any), ""
        if get_origin(kind) is Annotated:
            kind, *notes = get_args(kind)
            about = next((note for note in notes if isinstance(note, str)), "")
        factory = factories.get(name, MISSING)
        default = MISSING if parameter.default is parameter.empty else parameter.default
        settings[name] = Setting(kind, about, default if factory is MISSING else factory())
    return settings


_kept = cache(_read)


def made_by(make: Callable[..., Any]) -> type | None:
    """The class of what a constructor makes, if it says so."""
    made = make if isinstance(make, type) else inspect.signature(make, eval_str=True).return_annotation
    return made if isinstance(made, type) and made is not inspect.Signature.empty else None


# ------------------------------------------------------------------------------------------- parts as tables


def is_open(preset: Callable[..., Algorithm]) -> bool:
    """Whether any part of the preset can be another; the others are what they are by their parts."""
    return "mask" in inspect.signature(preset).parameters


def algorithm_table(
    algorithm: Algorithm, preset: Callable[..., Algorithm] | None, tables: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """An algorithm as a file's [algorithm] section, with every field that applies. Parts go by the names that they were
    given, if any were; without a preset all four apply."""
    takes = {} if preset is None else inspect.signature(preset).parameters
    full: dict[str, Any] = {"name": algorithm.name}
    any_part = preset is None or is_open(preset)
    for what in PARTS:
        part = getattr(algorithm, what)
        if any_part or (part is not None and settings_of(type(part)).keys() & takes.keys()):
            full[what] = part_table(what, part, (tables or {}).get(what))
    return {**full, "personal": list(algorithm.personal)} if algorithm.personal else full


def part_table(what: str, part: Any, source: Any = None) -> dict[str, Any]:
    """A part as a table, under the name that it was given, or else that it has."""
    if part is None:
        return {"name": "none"}
    written: Mapping[str, Any] = {"name": source} if isinstance(source, str) else source or {}
    name = written.get("name") or name_of(what, part)
    table: dict[str, Any] = {"name": name}
    make = PARTS[what].own.get(name)
    if make is None:  # a user's own was imported when the part was made
        make = PARTS[what][name] if name in PARTS[what] else type(part)
    for key, setting in settings_of(make).items():
        value = getattr(part, key)
        if isinstance(value, ramp):
            table[key] = {"from": value.lr, "to": value.end, "over": value.over}
        elif setting.part:
            table[key] = part_table(setting.part, value, written.get(key))
        elif value is not None:
            table[key] = list(value) if isinstance(value, tuple) else value
    return table


@cache
def _makers_of(what: str) -> dict[type | None, dict[str, Callable[..., Any]]]:
    """The names of accord's own parts of a kind by the class that they make (`yogi` is an `adam`)."""
    makers: dict[type | None, dict[str, Callable[..., Any]]] = {}
    for name, make in PARTS[what].own.items():
        makers.setdefault(made_by(make), {})[name] = make
    return makers


def name_of(what: str, part: Any) -> str:
    """The name of a part of accord's own: of those whose settings tell all of it, the one with the fewest; of a part of
    the user's, where it is from."""
    matches = {}
    for name, make in _makers_of(what).get(type(part), {}).items():
        settings = settings_of(make)
        if make is type(part) or make(**{key: getattr(part, key) for key in settings}) == part:
            matches[name] = len(settings)
    if matches:
        return min(matches, key=matches.__getitem__)
    home, kind = type(part).__module__, type(part).__qualname__
    return kind if home.partition(".")[0] == "accord" else f"{home}:{kind}"
