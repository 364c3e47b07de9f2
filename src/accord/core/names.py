"""Names of clients, classes and the like as people read them."""

import re
from collections.abc import Iterable, Sequence

_LISTED = 5  # names that a line lists


def in_order(names: Iterable[str]) -> list[str]:
    """Sorted by number where all are whole numbers, else as text.

    >>> in_order(["10", "9"]), in_order(["b", "a", "10", "9"])
    (['9', '10'], ['10', '9', 'a', 'b'])
    """
    by_text = sorted(names)
    return sorted(by_text, key=int) if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in by_text) else by_text


def listed(names: Sequence[str]) -> str:
    """`north, south`; of many, the first few and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"
