"""What the server does with the averaged update (docs/mathematics.md, "Server steps"; Reddi et al., 2021).

Each class turns an update `[P]` into a direction `[P]` and remembers moments. `take_step` places the mask: on the direction, which
is what the papers do (algorithm 2 of the TMLR paper), or on the update before it is normalised.
"""

from torch import Tensor

from accord.core.record import State
from accord.rules.servers.adagrad import adagrad
from accord.rules.servers.adam import adam, yogi
from accord.rules.servers.momentum import momentum
from accord.rules.servers.step import Placement, step

__all__ = ["Placement", "Server", "adagrad", "adam", "momentum", "step", "take_step", "yogi"]

Server = step | momentum | adagrad | adam


def take_step(server: Server, state: State, update: Tensor, mask: Tensor | None) -> tuple[State, Tensor]:
    """The server's next state and what it adds to the model: lr times the direction, with the mask where `placement` puts it."""
    if mask is not None and server.placement == "before":
        update = mask * update
    state, direction = server.direction(state, update)
    if mask is not None and server.placement == "after":
        direction = mask * direction
    return state, server.lr * direction
