"""The models that clients use on their own data, of a run whose clients keep one, or a part of one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError, nearest
from accord.core.names import listed
from accord.core.record import State
from accord.engines.job import PERSONAL


@dataclass(frozen=True, eq=False)
class ClientModels:
    """Who keeps what. `state` gives what a client remembers, None of one that never took part; it may keep the run's
    data in memory."""

    clients: Sequence[str]  # those that train
    common: bool  # there is a common model too
    whole: bool  # a client keeps a whole model; else the parameters that stay with it
    deployed: bool  # it keeps it on its own machine
    first: State  # the personal part that the model came with
    state: Callable[[str], State | None]

    def to_json(self) -> dict[str, Any]:
        """What of it a checkpoint's JSON file says."""
        return {key: getattr(self, key) for key in ("clients", "common", "whole", "deployed")}

    @classmethod
    def from_json(
        cls, form: Mapping[str, Any] | None, first: State, state: Callable[[str], State | None]
    ) -> "ClientModels | None":
        """None of a run whose clients keep no model."""
        return None if form is None else cls(**form, first=first, state=state)

    def of(self, client: str, vector: Tensor, buffers: Tensor) -> tuple[Tensor, Tensor]:
        """The client's model and its buffers, where `vector` and `buffers` are what is shared."""
        if client not in self.clients:
            close = nearest(client, self.clients)
            hint = f"did you mean {close!r}?" if close else f"those that did are {listed(self.clients)}"
            raise AccordError(f"client {client} took no part in the training and has no model of its own: {hint}")
        if self.deployed:
            raise AccordError(f"client {client} keeps its part of the model itself: it was trained in a deployment")
        state = self.state(client)
        if self.whole:
            if state is None:
                raise AccordError(f"client {client} was drawn for no round so far, and has no model of its own yet")
            return state["w"].cpu(), state["b"].cpu()
        personal, with_it = ((self.first if state is None else state)[name].cpu() for name in PERSONAL)
        return torch.cat([vector.cpu(), personal]), torch.cat([buffers.cpu(), with_it])
