"""Keys whose meaning hangs on a choice: the constructor that a key names says which of the others it takes, and what
they default to."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from accord.core.errors import AccordError, nearest
from accord.experiments.settings import SECTIONS, Section, shown
from accord.rules.registry import Names

Makers = Mapping[str, Callable[..., Any]]


def chosen(
    section: str, given: Section, by: str, makers: Makers, keys: Sequence[str]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The constructor that the key `by` names, and those of `keys` that were given, which must be its own."""
    name = getattr(given, by)
    known(f"{section}.{by}", name, makers)
    options = {key: getattr(given, key) for key in keys if getattr(given, key) is not None}
    takes = inspect.signature(makers[name]).parameters
    for key, value in options.items():
        if key not in takes:
            own = makers.own if isinstance(makers, Names) else makers  # packages are not imported to explain a slip
            owners = ", ".join(maker for maker, make in own.items() if key in inspect.signature(make).parameters)
            raise AccordError(
                f"{section}.{key} has no meaning with {section}.{by} = {name!r}, got {shown(value)}: it belongs to"
                f" {owners}"
            )
    for key in keys:
        if key in takes and takes[key].default is inspect.Parameter.empty and key not in options:
            what = SECTIONS[section].model_fields[key].description
            raise AccordError(f"{section}.{key} is missing: {section}.{by} = {name!r} needs it ({what})")
    return makers[name], options


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


def known(key: str, name: str, names: Collection[str], more: str = "") -> None:
    """Refuses a name that is none of these, with the one that was probably meant."""
    if name not in names:
        close = nearest(name, names)
        hint = f": did you mean {close!r}?" if close else ""
        raise AccordError(f"{key} must be one of {', '.join(names)}{more}, got {name!r}{hint}")


def defaults(make: Callable[..., Any], keys: Sequence[str]) -> dict[str, Any]:
    """What `make` takes for those of `keys` that it has a default for."""
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in parameters if p.name in keys and p.default not in (p.empty, None)}


def without_defaults(make: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters
    return {key: value for key, value in options.items() if value != parameters[key].default}
