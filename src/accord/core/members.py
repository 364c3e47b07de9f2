"""Custom classes whose public members nothing uses: a misspelled method would be ignored in silence."""

import inspect
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from accord.core.errors import AccordError, nearest


def members_of(protocol: type) -> list[str]:
    """The public names that a protocol defines."""
    return [name for name in (*protocol.__annotations__, *vars(protocol)) if not name.startswith("_")]


def has_own_call(value: Any) -> bool:
    """Whether it is an object of a class that defines `__call__` in Python, and no function."""
    return inspect.isfunction(inspect.getattr_static(type(value), "__call__", None))


def check_members(what: str, value: Any, protocols: Collection[type], also: Collection[str] = ()) -> None:
    """Raises an error for a public method or property that accord does not use, and for a plain value whose name is
    close to one that it uses.

    Fields of a dataclass and attributes of an instance are settings. Class methods, which make such objects, and nested
    classes are free, too. Of an object without a protocol, which may be more than this to its author, only names that
    are close count.

    Args:
        what: What the object is to accord, which begins the message: `mask`.
        value: The object.
        protocols: Whose members are used.
        also: Further names that are used.

    Raises:
        AccordError: A member that is not used, with the name that was probably meant.
    """
    kind = type(value)
    known = sorted({*also, *(name for protocol in protocols for name in members_of(protocol))})
    written = [one for one in kind.__mro__ if _package(one) == _package(kind) or set(protocols) & set(one.__mro__)]
    # what overrides a member of a library's class, such as `forward` of torch.nn.Module, is used by that library
    free = {name for one in kind.__mro__ if one not in written for name in vars(one)}
    free |= {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    for one in written:
        for sort, name in _members(one):
            close = nearest(name, known)
            counts = close is not None or (bool(protocols) and sort != "attribute")
            if counts and name not in free and name not in known:
                hint = f" Did you mean {close!r}?" if close else ""
                raise AccordError(
                    f"{what}: {kind.__name__} has a public {sort} {name!r} that accord does not use.{hint} Begin the"
                    " names of helpers with an underscore."
                )


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """What a class itself defines that a protocol could have: what each is, and its name."""
    for name, value in vars(kind).items():
        if name.startswith("_") or isinstance(value, type | classmethod):
            continue
        if isinstance(value, property | cached_property):
            yield "property", name
        elif inspect.isfunction(value) or inspect.ismethoddescriptor(value):
            yield "method", name
        else:
            yield "attribute", name


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]
