"""FedProx's proximal term (Li et al., 2020, "Federated optimization in heterogeneous networks", MLSys)."""

import math
from dataclasses import dataclass
from typing import Annotated

from accord.core.errors import AccordError
from accord.core.protocols import Local


@dataclass(frozen=True)
class prox(Local):
    """FedProx: each step is pulled back to the round's start point by mu."""

    mu: Annotated[float, "weight of the proximal term, which pulls a client back to the round's start"] = 0.01

    def __post_init__(self) -> None:
        if not (self.mu >= 0.0 and math.isfinite(self.mu)):
            raise AccordError(f"mu must be 0 or more, got {self.mu}: it is the weight of the proximal term")
