"""Keys whose meaning hangs on a choice: the constructor that a key names says which of the others it takes, and what
they default to."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accord.core.errors import AccordError, nearest
from accord.experiments.section import Section
from accord.experiments.settings import SECTIONS, shown
from accord.rules.registry import Names

Makers = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Choice:
    """What a key of a section names, with the options that were given for it."""

    key: str
    make: Callable[..., Any]
    options: dict[str, Any]
    full: dict[str, Any]  # with its defaults for the others
    changed: dict[str, Any]  # those that differ from their defaults

    def made(self) -> Any:
        """What the constructor makes of the options."""
        try:
            return self.make(**self.options)
        except AccordError as error:
            raise blamed(error, *self.key.split(".")) from None


def chosen(section: str, table: Section, by: str, makers: Makers, keys: Sequence[str]) -> Choice:
    """What the key `by` names, with those of `keys` that were given, which must be its own."""
    name = getattr(table, by)
    if name not in makers:
        raise unknown(f"{section}.{by}", name, makers)
    make = makers[name]
    options = {key: getattr(table, key) for key in keys if getattr(table, key) is not None}
    takes = inspect.signature(make).parameters
    for key, value in options.items():
        if key not in takes:
            known = makers.own if isinstance(makers, Names) else makers  # packages are not imported to explain a slip
            owners = ", ".join(maker for maker, make in known.items() if key in inspect.signature(make).parameters)
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


def blamed(
    error: AccordError, section: str, key: str | None = None, fields: Collection[str] | None = None
) -> AccordError:
    """What a part complains of, with the key that it means: its first word, where that is a key of the section or one
    of `fields`, or else `key`."""
    text, keys = str(error), SECTIONS[section].model_fields if fields is None else fields
    if text.split(maxsplit=1)[0] in keys:
        return AccordError(f"{section}.{text}")
    if text.startswith(f"{section}."):
        return error
    return AccordError(f"{section}.{key}: {text}" if key else f"{section}: {text}" if fields else f"[{section}] {text}")


def unknown(key: str, name: str, names: Iterable[str], more: str = "") -> AccordError:
    """The sentence for a name that is none of these, with the one that was probably meant."""
    names = list(names)
    close = nearest(name, names)
    hint = f": did you mean {close!r}?" if close else ""
    return AccordError(f"{key} must be one of {', '.join(names)}{more}, got {name!r}{hint}")
