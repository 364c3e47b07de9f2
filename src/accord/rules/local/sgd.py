"""Local SGD (McMahan et al., 2017, "Communication-efficient learning of deep networks from decentralized data")."""

from dataclasses import dataclass
from typing import Annotated

from accord.core.protocols import Local


@dataclass(frozen=True)
class sgd(Local):
    """Plain local SGD; with `full_batch`, one step on all of a client's data."""

    full_batch: Annotated[bool, "one step on all of a client's data"] = False
