"""How clients' updates become one: the weighted mean, and by name what can take its place."""

from collections.abc import Callable

from accord.core.protocols import Average
from accord.rules.averages.corrective import corrective
from accord.rules.averages.first_fedgma import masked_gradient
from accord.rules.averages.geometric_mean import geometric_mean
from accord.rules.averages.krum import krum
from accord.rules.averages.mean import mean
from accord.rules.averages.median import median
from accord.rules.averages.trimmed_mean import trimmed_mean

__all__ = [
    "AVERAGES",
    "Average",
    "corrective",
    "geometric_mean",
    "krum",
    "masked_gradient",
    "mean",
    "median",
    "trimmed_mean",
]


# What any algorithm can take.
AVERAGES: dict[str, Callable[..., Average]] = {
    make.__name__: make for make in (mean, geometric_mean, median, trimmed_mean, krum, corrective)
}
