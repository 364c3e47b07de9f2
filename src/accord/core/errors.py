"""The one exception a user is meant to read: a sentence that says what was wrong, the value seen and what would be
right."""

import difflib
from collections.abc import Iterable


class AccordError(Exception):
    """Something the user can put right. The command line prints its sentence and exits with 2; it never shows a
    traceback."""


class OldSpelling(FutureWarning):
    """Settings are spelled as an earlier release had them: they are read, and a sentence says how they are spelled
    now."""


_MOST = 2**31 - 1  # of anything that is counted one by one: no run lives to see it


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuses anything but a whole number of at least `least`; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AccordError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if value > _MOST:
        raise AccordError(f"{name} must be at most {_MOST:,}, got {value:.3g}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of the known names that was probably meant, if any looks like it."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'tau'?`, or all there is to choose from."""
    names = list(known)
    close = nearest(name, names)
    return f"did you mean {close!r}?" if close else f"choose one of {', '.join(names)}"
