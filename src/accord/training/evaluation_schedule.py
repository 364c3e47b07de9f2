"""When a run is evaluated, and on which training samples.

Neither changes what is trained, only what a run records of it.
"""

import re
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.federated import Federation
from accord.engines.contract import Group

WORDS = ("log", "last10", "window(a,b)")  # the last two are selection rules, which read all of these rounds
_WINDOW = re.compile(r"window\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def schedules(evaluate_at: str | Sequence[str]) -> tuple[str, ...]:
    """One schedule, or several."""
    return (evaluate_at,) if isinstance(evaluate_at, str) else tuple(evaluate_at)


def check_evaluate_at(words: Sequence[str]) -> None:
    """Refuses what says of no round whether it is evaluated."""
    for word in words:
        window = _WINDOW.fullmatch(word) if isinstance(word, str) else None
        if window and int(window[1]) > int(window[2]):
            raise AccordError(f"evaluate_at has {word}, which holds no round: its first comes after its last")
        if not window and word not in ("log", "last10"):
            raise AccordError(f"evaluate_at must be of {', '.join(WORDS)}, got {word!r}")


def dense_early(number: int) -> bool:
    """Whether `log` evaluates this round: each up to 10, every 5th up to 50, every 25th up to 250, every 125th up to
    1250. Of 500 rounds that has 5, 10, 25, 50 and 100 %.

    >>> [number for number in range(1, 130) if dense_early(number)][8:]
    [9, 10, 15, 20, 25, 30, 35, 40, 45, 50, 75, 100, 125]
    """
    step = 1
    while number > 10 * step:
        step *= 5
    return number % step == 0


def asked_for(words: Sequence[str], number: int) -> bool:
    """Whether any of these words asks for the round, however many there will be."""
    windows = [(int(match[1]), int(match[2])) for match in map(_WINDOW.fullmatch, words) if match]
    return ("log" in words and dense_early(number)) or any(first <= number <= last for first, last in windows)


_read: WeakKeyDictionary[Federation, dict[tuple[int | None, int], list[Group]]] = WeakKeyDictionary()


def evaluated_groups(fed: Federation, most: int | None, seed: int) -> list[Group]:
    """What an evaluation reads. Of training data at most so many samples, the same in every round: a keyed draw from
    all clients' alike. All other data is read whole. Runs that read the same are given the same list."""
    made, key = _read.setdefault(fed, {}), (most, seed if most else 0)
    if key not in made:
        made[key] = _drawn(list(fed.groups()), most, seed)
    return made[key]


def _drawn(groups: list[Group], most: int | None, seed: int) -> list[Group]:
    sizes = [len(rows) for split, _, rows in groups if split == "train"]
    if most is None or sum(sizes) <= most:
        return groups
    chosen = draws.choose(sum(sizes), most, seed, "evaluated training samples")
    ends = np.cumsum(sizes)
    parts = iter(np.split(chosen, np.searchsorted(chosen, ends[:-1])))
    starts = iter(ends - sizes)
    return [
        (split, client, rows[torch.from_numpy(next(parts) - next(starts))] if split == "train" else rows)
        for split, client, rows in groups
    ]
