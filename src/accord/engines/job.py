"""What stays the same for a whole run; and where, in a client's model, what is shared ends and its own part begins."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from accord.attacks import Attackers
from accord.core.layout import Layout
from accord.core.measure import Measure, Metrics, PerSample, declared
from accord.core.record import State
from accord.data.federated import Federation
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training

PERSONAL = ("personal.w", "personal.b")  # in a client's state: its own parameters, and the buffers with them


@dataclass(frozen=True)
class Job:
    """What stays the same for a whole run."""

    module: nn.Module
    layout: Layout
    fed: Federation
    algorithm: Algorithm
    training: Training
    loss: PerSample
    metrics: Metrics
    seed: int
    device: torch.device
    speed: frozenset[str] = frozenset()  # see `accord.engines.speed`
    attack: Attackers | None = None
    given: nn.Module | None = None  # the user's model, where engines call a copy of it otherwise than the user does

    @cached_property
    def measures(self) -> dict[str, Measure]:
        """The metrics, by name and in order, as they declare themselves."""
        return {name: declared(metric) for name, metric in self.metrics.items()}

    @cached_property
    def of_sample(self) -> dict[str, Measure]:
        """Those that are a number per sample."""
        return {name: measure for name, measure in self.measures.items() if not measure.of_group}

    @cached_property
    def of_group(self) -> dict[str, Measure]:
        """Those of a whole group."""
        return {name: measure for name, measure in self.measures.items() if measure.of_group}

    @cached_property
    def whole(self) -> Layout:
        """All of the model: what is shared, as in `layout`, then what stays with the clients, if anything does."""
        return self.layout.whole(self.module) if self.algorithm.personal else self.layout

    @property
    def remembers(self) -> bool:
        """Whether clients keep anything between rounds."""
        return bool(self.algorithm.local.remembers or self.algorithm.personal)

    @property
    def unchecked(self) -> frozenset[str]:
        """What of it may hold infinities on purpose, as buffers do."""
        return self.algorithm.local.unchecked | {PERSONAL[1]}

    def personal_at_first(self) -> State:
        """What stays with a client that never took part: the part of the model as it came."""
        return self.personal_part(*self.packed(self.whole))

    def packed(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """The model as it came, and its buffers, on the device."""
        vector, buffers = layout.pack(self.module), layout.pack_buffers(dict(self.module.named_buffers()))
        return vector.to(self.device), buffers.to(self.device)

    def personal_part(self, vector: Tensor, buffers: Tensor) -> State:
        """What of a model `[..., P]` with its buffers stays with the client; nothing if all is shared."""
        if not self.algorithm.personal:
            return {}
        parts = vector[..., self.layout.size :], buffers[..., self.layout.buffer_size :]
        return dict(zip(PERSONAL, parts, strict=True))

    def assembled(self, vector: Tensor, buffers: Tensor, client_state: State) -> tuple[Tensor, Tensor]:
        """A client's model and buffers: the shared part, then its own."""
        if not self.algorithm.personal:
            return vector, buffers
        at_home, with_it = (client_state[name] for name in PERSONAL)
        return torch.cat([vector, at_home]), torch.cat([buffers, with_it])

    @property
    def beside(self) -> "Job | None":
        """The job of the second model that clients train beside the common one, if they do."""
        rule = self.algorithm.local.beside
        return None if rule is None else replace(self, algorithm=Algorithm(rule), attack=None)

    def used(self, vector: Tensor, buffers: Tensor, client_state: State) -> tuple[Tensor, Tensor]:
        """The model that a client uses on its own data."""
        return (
            self.assembled(vector, buffers, client_state)
            if self.algorithm.local.beside is None
            else (client_state["w"], client_state["b"])
        )

    def widened(self, drift: Tensor | None) -> Tensor | None:
        """What a local rule adds to the gradient `[P]`, with zeros for what it knows nothing of."""
        if drift is None or not self.algorithm.personal:
            return drift
        return torch.cat([drift, drift.new_zeros(self.whole.size - self.layout.size)])
