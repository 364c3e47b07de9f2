"""Keys whose meaning hangs on a choice: the constructor that a key names says which of the others it takes, and what
they default to."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from accord.core.errors import AccordError, nearest
from accord.experiments.settings import SECTIONS, Section, shown
from accord.rules.registry import Names

Makers = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Choice:
    """What a key of a section names, with the options that were given for it."""

    key: str
    make: Callable[..., Any]
    given: dict[str, Any]
    full: dict[str, Any]  # with its defaults for the others
    changed: dict[str, Any]  # those that differ from their defaults

    def made(self, **more: Any) -> Any:
        """What the constructor makes of the options."""
        section, _, by = self.key.partition(".")
        with blaming(section, by):
            return self.make(**more, **self.given)


def chosen(section: str, given: Section, by: str, makers: Makers, keys: Sequence[str]) -> Choice:
    """What the key `by` names, with those of `keys` that were given, which must be its own."""
    name = getattr(given, by)
    if name not in makers:
        raise unknown(f"{section}.{by}", name, makers)
    make = makers[name]
    options = {key: getattr(given, key) for key in keys if getattr(given, key) is not None}
    takes = inspect.signature(make).parameters
    for key, value in options.items():
        if key not in takes:
            own = makers.own if isinstance(makers, Names) else makers  # packages are not imported to explain a slip
            owners = ", ".join(maker for maker, make in own.items() if key in inspect.signature(make).parameters)
            raise AccordError(
                f"{section}.{key} has no meaning with {section}.{by} = {name!r}, got {shown(value)}: it belongs to"
                f" {owners}"
            )
    empty = inspect.Parameter.empty
    defaults = {key: takes[key].default for key in keys if key in takes}
    for key, default in defaults.items():
        if default is empty and key not in options:
            what = SECTIONS[section].model_fields[key].description
            raise AccordError(f"{section}.{key} is missing: {section}.{by} = {name!r} needs it ({what})")
    full = {key: default for key, default in defaults.items() if default not in (empty, None)} | options
    changed = {key: value for key, value in options.items() if value != defaults[key]}
    return Choice(f"{section}.{by}", make, options, full, changed)


def none() -> None:
    """The constructor that `none` names."""
    return


def drop_old_options(
    table: dict[str, Any], section: str, key: str, value: Any, makers: Makers, options: Sequence[str]
) -> None:
    """An override that chooses another split, model or schedule leaves the file's options for the old one behind. What
    a new attack takes, stays."""
    if not isinstance(value, str) or value not in makers or table.get(key) == value:
        return
    takes = () if key == "name" and section != "attack" else inspect.signature(makers[value]).parameters
    for option in options:
        if option not in takes:
            table.pop(option, None)


@contextmanager
def blaming(section: str, key: str | None = None, fields: Collection[str] | None = None) -> Iterator[None]:
    """Says which key a part complains of: its first word, where that is a key of the section or one of `fields`, or
    else `key`."""
    keys = SECTIONS[section].model_fields if fields is None else fields
    try:
        yield
    except AccordError as error:
        text = str(error)
        if text.split(maxsplit=1)[0] in keys:
            text = f"{section}.{text}"
        elif not text.startswith(f"{section}."):
            text = f"{section}.{key}: {text}" if key else f"{section}: {text}" if fields else f"[{section}] {text}"
        raise AccordError(text) from None


def unknown(key: str, name: str, names: Iterable[str], more: str = "") -> AccordError:
    """The sentence for a name that is none of these, with the one that was probably meant."""
    names = list(names)
    close = nearest(name, names)
    hint = f": did you mean {close!r}?" if close else ""
    return AccordError(f"{key} must be one of {', '.join(names)}{more}, got {name!r}{hint}")
