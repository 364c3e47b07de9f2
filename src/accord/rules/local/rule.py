"""What a client does on its own data (docs/mathematics.md, "Local rules").

A local rule is data, not code: every local step follows

    gradient + mu (w - w_start) + drift

with `mu` and `drift` fixed for the round. That is SGD (both zero), FedProx (mu) and SCAFFOLD (drift = c - c_n), and it lets engines that
batch clients, replay a captured step or mix algorithms share one step.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from accord.core.errors import AccordError, check_whole
from accord.core.layout import Layout
from accord.core.record import Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.core.schedule import Schedule, as_schedule, constant


@dataclass(frozen=True)
class Variates:
    """SCAFFOLD's control variates: c on the server, c_n on every client, all zero at first (Karimireddy et al., 2020).

    After its steps a client's c_n becomes, by `option`:
    "I", the gradient of its data at the round's start point; "II", c_n - c + (w_start - w_n) / (K lr), for plain SGD only; "mean", the mean
    of the gradients it met, which equals "II" without momentum and stays right with it.
    """

    option: Literal["mean", "I", "II"] = "mean"

    def __post_init__(self) -> None:
        if self.option not in ("mean", "I", "II"):
            raise AccordError(f"option must be 'mean', 'I' or 'II', got {self.option!r}")

    @property
    def needs(self) -> frozenset[str]:
        return {"mean": frozenset({"mean_gradient"}), "I": frozenset({"start_gradient"}), "II": frozenset[str]()}[self.option]

    def drift(self, sent: State, own: State) -> Tensor:
        return sent["c"] - own["c"]

    def keep(self, sent: State, own: State, reports: Reports, lr: float) -> State:
        """The clients' next c_n, `[..., K, P]`."""
        if self.option == "mean":
            return {"c": reports.extra["mean_gradient"]}
        if self.option == "I":
            return {"c": reports.extra["start_gradient"]}
        if lr == 0.0:  # the end of a schedule: nothing moved, nothing was learnt
            return {"c": own["c"]}
        return {"c": own["c"] - sent["c"] - reports.delta / (reports.steps * lr)}

    def lift(self, reports: Reports) -> Record:
        return Record(change=total(reports.after["c"] - reports.before["c"]))

    def lower(self, total: Record, state: State, round: Round) -> State:
        return {"c": state["c"] + total.change / round.clients}  # over all clients, so that c stays the mean of the c_n


@dataclass(frozen=True)
class Split:
    """CausalFed's rule: clients hold the network's layers before `at`, the server the rest, and a round is an exchange of representations.

    `penalty` weighs how far the classifier is from being optimal for each client by itself (lambda of IRMv1); for the first `warmup` rounds
    it is `warmup_penalty`. `reduction` says how a client's losses make its risk.
    """

    at: int = -1
    penalty: float = 1.0
    warmup: int = 0
    warmup_penalty: float = 0.0
    reduction: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        if isinstance(self.at, bool) or not isinstance(self.at, int) or self.at == 0:
            raise AccordError(f"at must be a whole number other than 0, got {self.at!r}: clients hold so many layers, or all but so many")
        check_whole("warmup", self.warmup, 0)
        for name in ("penalty", "warmup_penalty"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not (value >= 0.0 and math.isfinite(value)):
                raise AccordError(f"{name} must be 0 or more, got {value!r}: it is lambda, the weight of the invariance penalty")
        if self.reduction not in ("mean", "sum"):
            raise AccordError(f"reduction must be 'mean' or 'sum', got {self.reduction!r}")

    def penalty_at(self, round: int) -> float:
        """The penalty's weight in a round (from 1)."""
        return self.penalty if round > self.warmup else self.warmup_penalty


@dataclass(frozen=True)
class Local:
    """A local rule. Made by `sgd`, `prox` and `control_variates`, or from its fields."""

    mu: float = 0.0
    variates: Variates | None = None
    full_batch: bool = False  # one step on all of a client's data: FedSGD
    alone: bool = False  # each client goes on from its own last model: no federation at all
    pooled: bool = False  # clients' data in one place: no federation either
    split: Split | None = None  # clients hold half of the network, and send representations: CausalFed

    def __post_init__(self) -> None:
        if not (self.mu >= 0.0 and math.isfinite(self.mu)):
            raise AccordError(f"mu must be 0 or more, got {self.mu}: it pulls a client back to where the round began")

    @property
    def needs(self) -> frozenset[str]:
        """What the engine must report besides the delta."""
        return self.variates.needs if self.variates else frozenset()

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of the vectors that a client keeps between rounds: its control variate `[P]`, or its own model `[P]` and buffers `[B]`."""
        return ("c",) if self.variates else ("w", "b") if self.alone else ()

    def init(self, layout: Layout, clients: int) -> State:
        return {"c": torch.zeros(layout.size, dtype=layout.dtype)} if self.variates else {}

    def fresh(self, vector: Tensor, buffers: Tensor) -> State:
        """What a client that never took part remembers, given the model that the run began with."""
        if self.alone:
            return {"w": vector, "b": buffers}
        return {name: torch.zeros_like(vector) for name in self.remembers}

    def start(self, vector: Tensor, buffers: Tensor, own: State) -> tuple[Tensor, Tensor]:
        """Where a client begins: at the server's model and buffers, or at its own."""
        return (own["w"], own["b"]) if self.alone else (vector, buffers)

    def drift(self, sent: State, own: State) -> Tensor | None:
        return self.variates.drift(sent, own) if self.variates else None

    def keep(self, sent: State, own: State, reports: Reports, lr: float) -> State:
        """What the clients will remember if their reports are accepted."""
        if self.variates:
            return self.variates.keep(sent, own, reports, lr)
        return {"w": own["w"] + reports.delta, "b": own["b"] + reports.buffers} if self.alone else {}

    def lift(self, reports: Reports, sent: State) -> Record:
        return self.variates.lift(reports) if self.variates else Record()

    def lower(self, total: Record, state: State, round: Round) -> State:
        return self.variates.lower(total, state, round) if self.variates else state


def sgd(full_batch: bool = False) -> Local:
    """Plain local SGD; with `full_batch`, one step on all of a client's data."""
    return Local(full_batch=full_batch)


def prox(mu: float = 0.01) -> Local:
    """FedProx: each step is pulled back to the round's start point by mu (Li et al., 2020)."""
    return Local(mu=mu)


def control_variates(option: Literal["mean", "I", "II"] = "mean") -> Local:
    """SCAFFOLD: each step is corrected by c - c_n."""
    return Local(variates=Variates(option))


@dataclass(frozen=True)
class Training:
    """How long and how fast a client trains. The gradient is clipped first; weight decay, mu and drift are added to what is left."""

    epochs: int = 1
    batch: int | None = 32  # None: all of a client's data at once
    steps: int | None = None  # at most so many local steps, whatever the epochs
    lr: float | Schedule = constant(0.01)
    momentum: float = 0.9  # starts at zero every round
    weight_decay: float = 0.0
    clip: float | None = None  # largest norm of a step's gradient

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", as_schedule(self.lr))
        for name in ("epochs", "batch", "steps"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        for name in ("momentum", "weight_decay", "clip"):
            if not isinstance(getattr(self, name), int | float | None):
                raise AccordError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not 0.0 <= self.momentum < 1.0:
            raise AccordError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        if not self.weight_decay >= 0.0:
            raise AccordError(f"weight_decay must be 0 or more, got {self.weight_decay}")
        if self.clip is not None and not self.clip > 0.0:
            raise AccordError(f"clip must be above 0, got {self.clip}; leave it out not to clip")

    def lr_at(self, round: int) -> float:
        return as_schedule(self.lr).at(round)

    def check(self, local: Local) -> None:
        """Refuses settings that a local rule has no meaning for."""
        if self.momentum and local.variates and local.variates.option == "II":
            raise AccordError(
                f"momentum must be 0 for SCAFFOLD's option II, got {self.momentum}: it assumes plain SGD; option 'mean' does not"
            )
