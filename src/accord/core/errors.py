"""The one exception a user is meant to read: a sentence that says what was wrong, the value seen and what would be right."""


class AccordError(Exception):
    """Something the user can put right. The command line prints its sentence and exits with 2; it never shows a traceback."""


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Refuses anything but a whole number of at least `least`; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AccordError(f"{name} must be a whole number of at least {least}, got {value!r}")
