"""What an algorithm is called where people read it."""

import re
from functools import cache

from accord.rules.algorithm import Algorithm
from accord.rules.named import ALGORITHMS
from accord.rules.schema import name_of


def label_of(algorithm: Algorithm) -> str:
    """`fedadam + gma(0.4)`, `fedavg by median` where an average of choice stands in for the mean, `fedadam with yogi`
    where another local or server rule does for the preset's own, and `fedavg keeping head.*` where that stays with
    clients."""
    average, mask, rules = algorithm.average.label, algorithm.mask, _replaced(algorithm)
    name = f"{algorithm.name} by {average}" if average else algorithm.name
    name += f" with {' and '.join(rules)}" if rules else ""
    name += f" keeping {', '.join(algorithm.personal)}" if algorithm.personal else ""
    return name if mask is None else f"{name} + {mask.label}"


def _replaced(algorithm: Algorithm) -> list[str]:
    """The names of the local and the server rule that stand in a preset for its own."""
    if algorithm.name not in ALGORITHMS:
        return []
    rules = zip(_rules(algorithm), _own_rules(algorithm.name), strict=True)
    return [re.split("[:.]", name)[-1] for name, default in rules if name != default]


def _rules(algorithm: Algorithm) -> tuple[str, str]:
    return name_of("local", algorithm.local), name_of("server", algorithm.server)


@cache
def _own_rules(preset: str) -> tuple[str, str]:
    return _rules(ALGORITHMS[preset]())
