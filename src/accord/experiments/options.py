"""Keys whose meaning hangs on a choice: the constructor that a key names says which of the others it takes, and what they default to."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from accord.core.errors import AccordError
from accord.experiments.settings import SECTIONS, Section, shown

Makers = Mapping[str, Callable[..., Any]]


def chosen(section: str, given: Section, by: str, makers: Makers, keys: Sequence[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The constructor that the key `by` names, and those of `keys` that were given, which must be its own."""
    name = getattr(given, by)
    known(f"{section}.{by}", name, makers)
    options = {key: getattr(given, key) for key in keys if getattr(given, key) is not None}
    takes = {maker: inspect.signature(make).parameters for maker, make in makers.items()}
    for key, value in options.items():
        if key not in takes[name]:
            owners = ", ".join(maker for maker in makers if key in takes[maker])
            raise AccordError(f"{section}.{key} has no meaning with {section}.{by} = {name!r}, got {shown(value)}: it belongs to {owners}")
    for key in keys:
        if key in takes[name] and takes[name][key].default is inspect.Parameter.empty and key not in options:
            what = SECTIONS[section].model_fields[key].description
            raise AccordError(f"{section}.{key} is missing: {section}.{by} = {name!r} needs it ({what})")
    return makers[name], options


@contextmanager
def blaming(section: str, key: str | None = None) -> Iterator[None]:
    """Says which key a part complains of: its first word, where that is a key of the section, or else `key`."""
    try:
        yield
    except AccordError as error:
        text = str(error)
        if text.split(maxsplit=1)[0] in SECTIONS[section].model_fields:
            text = f"{section}.{text}"
        elif not text.startswith(f"{section}."):
            text = f"{section}.{key}: {text}" if key else f"[{section}] {text}"
        raise AccordError(text) from None


def known(key: str, name: str, names: Mapping[str, Any]) -> None:
    if name not in names:
        raise AccordError(f"{key} must be one of {', '.join(names)}, got {name!r}")


def defaults(make: Callable[..., Any], keys: Sequence[str]) -> dict[str, Any]:
    """What `make` takes for those of `keys` that it has a default for."""
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in parameters if p.name in keys and p.default not in (p.empty, None)}


def without_defaults(make: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters
    return {key: value for key, value in options.items() if value != parameters[key].default}
