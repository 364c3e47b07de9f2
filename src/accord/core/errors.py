"""The one exception a user is meant to read: a sentence that says what was wrong, the value seen and what would be
right."""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral
from typing import Any


class AccordError(Exception):
    """Something the user can put right. The command line prints its sentence and exits with 2; it never shows a
    traceback."""


_MOST = 2**31 - 1  # of anything that is counted one by one: no run lives to see it
_LARGEST = 1e18  # in size, of any other number that is set: its square still fits in float32


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuses anything but a whole number of at least `least`; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AccordError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if value > _MOST:
        raise AccordError(f"{name} must be at most {_MOST:,}, got {_short(value)}")


def whole_seed(seed: object) -> int:
    """A seed as an int: a whole number of Python's or numpy's. True and False are none."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise AccordError(f"seed must be a whole number, got {seed!r}")
    return int(seed)


def check_bounds(value: Any, name: str = "") -> None:
    """Refuses, also deep within tables, lists and dataclasses, what no setting can mean: numbers beyond all bounds, and
    text with a NUL, which no file name has."""
    if isinstance(value, str) and "\0" in value:
        raise AccordError(f"{name} must be text without NUL characters, got {value!r}")
    # of infinities those speak who know whether they want one
    if isinstance(value, int | float) and _LARGEST < abs(value) != math.inf:
        raise AccordError(f"{name} must be at most {_LARGEST:g} in size, got {_short(value)}")
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif is_dataclass(value) and not isinstance(value, type):
        inner = [(field.name, getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, list | tuple):
        for one in value:
            check_bounds(one, name)
    for key, one in inner:
        check_bounds(key, name or "a key")
        check_bounds(one, f"{name}.{key}" if name else str(key))


def _short(value: int | float) -> str:
    """A number of any length in a few characters."""
    return f"{value:.3g}" if abs(value) < 1e300 else f"{str(value)[:10]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of the known names that was probably meant, if any looks like it."""
    close = difflib.get_close_matches(name, list(known))
    return next((one for one in close if one.startswith(name)), close[0] if close else None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'tau'?`, or all there is to choose from."""
    names = list(known)
    close = nearest(name, names)
    return f"did you mean {close!r}?" if close else f"choose one of {', '.join(names)}"
