"""What both sides know: the model, and who owns which digits."""

from functools import cache

from torch import nn

import accord
from accord.data import Federation

from .faults import CLIENTS

ALGORITHM = accord.fedadam(lr=0.02, mask=accord.gma(0.4))
LR = 0.05


@cache
def everybody() -> Federation:
    """All owners' digits. A real owner has its own and nothing else; here one data set plays them all."""
    return accord.data.digits(clients=CLIENTS, split="labels", seed=0)


def model() -> nn.Module:
    return accord.models.shaped("mlp", everybody().shape, everybody().outputs, seed=0)
