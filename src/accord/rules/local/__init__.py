"""What a client does on its own data (docs/explanation/mathematics.md, "Local rules"); `Training` says how long and how
fast it trains."""

from collections.abc import Callable

from accord.core.protocols import Local
from accord.rules.local.control_variates import control_variates
from accord.rules.local.ditto import ditto
from accord.rules.local.optimisers import OPTIMISERS
from accord.rules.local.own_model import own_model
from accord.rules.local.prox import prox
from accord.rules.local.sgd import sgd
from accord.rules.local.step import Optimiser
from accord.rules.local.training import Training

__all__ = [
    "LOCALS",
    "OPTIMISERS",
    "Local",
    "Optimiser",
    "Training",
    "control_variates",
    "ditto",
    "own_model",
    "prox",
    "sgd",
]

LOCALS: dict[str, Callable[..., Local]] = {
    make.__name__: make for make in (sgd, prox, control_variates, ditto, own_model)
}
