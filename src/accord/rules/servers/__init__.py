"""What the server does with the averaged update (docs/explanation/mathematics.md, "Server steps"; Reddi et al., 2021).

Each class turns an update `[P]` into a direction `[P]` and remembers moments. `Mask.direction` puts the mask on the
direction, which is what the papers do (algorithm 2 of the TMLR paper), or on the update before it is normalised.
"""

from collections.abc import Callable

from accord.core.protocols import Server
from accord.rules.servers.adaptive import adagrad, adam, yogi
from accord.rules.servers.momentum import momentum
from accord.rules.servers.step import Placement, step

__all__ = ["SERVERS", "Placement", "Server", "adagrad", "adam", "momentum", "step", "yogi"]

SERVERS: dict[str, Callable[..., Server]] = {make.__name__: make for make in (step, momentum, adagrad, adam, yogi)}
