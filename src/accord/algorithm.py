"""`Algorithm(local, average, mask, server)` and the papers' named combinations.

The four parts are swapped, never subclassed: `fedadam(mask=gma(0.4))` is FedAdam with the papers' mask, and FedProx differs from FedAvg by
one number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from accord.aggregate import Lowered
from accord.average import mean
from accord.errors import AccordError
from accord.layout import Layout
from accord.local import Local, control_variates, prox, sgd
from accord.mask import Mask
from accord.record import Record, State, one_pass, total
from accord.reports import Reports
from accord.rounds import Round
from accord.server import Placement, Server, adagrad, adam, momentum, step, take_step, yogi

Weighting = Literal["samples", "uniform"]
Memory = dict[str, State]  # what each part remembers between rounds


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm: what clients do, how their updates are averaged, how far each coordinate is trusted, how the server steps."""

    local: Local = sgd()
    average: mean = mean()
    mask: Mask | None = None
    server: Server = step()
    name: str = "custom"

    def __post_init__(self) -> None:
        if self.mask is not None and not isinstance(self.mask, Mask):
            raise AccordError(f"mask must be None or a mask such as gma(0.4), got {self.mask!r}")

    @property
    def needs(self) -> frozenset[str]:
        """What clients must report besides their delta."""
        return self.local.needs | self.average.needs | (self.mask.needs if self.mask else frozenset())

    def init(self, layout: Layout, clients: int, vector: Tensor) -> Memory:
        """What every part remembers before the first round."""
        return {
            "local": {name: value.to(vector.device) for name, value in self.local.init(layout, clients).items()},
            "average": self.average.init(layout, clients),
            "mask": self.mask.init(layout, clients) if self.mask else {},
            "server": self.server.init(vector),
        }

    def lift(self, reports: Reports, memory: Memory) -> Record:
        """One record of a cohort, or of any part of it: records of parts add up."""
        with one_pass(self.mask is not None):
            parts = {
                "local": self.local.lift(reports, memory["local"]),
                "average": self.average.lift(reports, memory["average"]),
                "buffers": Record(change=total(reports.buffers, weights := self.average.weights(reports)), weight=total(weights)),
            }
            if self.mask:
                parts["mask"] = self.mask.lift(reports, memory["mask"])
        return Record(**parts)

    def lower(self, record: Record, memory: Memory, round: Round) -> tuple[Lowered, Tensor, Memory]:
        """The averaged update and its mask, the change of the buffers (never masked), and what all parts but the server remember now."""
        update, average = self.average.lower(record.average, memory["average"], round)
        mask, mask_memory = self.mask.lower(record.mask, memory["mask"], round) if self.mask else (None, {})
        local = self.local.lower(record.local, memory["local"], round)
        buffers = record.buffers.change / record.buffers.weight
        return Lowered(update, mask), buffers, {**memory, "local": local, "average": average, "mask": mask_memory}

    def step(self, lowered: Lowered, memory: Memory) -> tuple[Tensor, Memory]:
        """What the server adds to the model, and the memory after it."""
        server, change = take_step(self.server, memory["server"], lowered.update, lowered.mask)
        return change, {**memory, "server": server}


def fedavg(lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples") -> Algorithm:
    """Federated averaging (McMahan et al., 2017)."""
    return Algorithm(sgd(), mean(weighting), mask, step(lr), "fedavg")


def fedsgd(lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples") -> Algorithm:
    """One full-batch step per client and round; `epochs` and `batch` have no say."""
    return Algorithm(sgd(full_batch=True), mean(weighting), mask, step(lr), "fedsgd")


def fedprox(mu: float = 0.01, lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples") -> Algorithm:
    """FedAvg whose clients are pulled back to the round's start (Li et al., 2020)."""
    return Algorithm(prox(mu), mean(weighting), mask, step(lr), "fedprox")


def scaffold(
    option: Literal["mean", "I", "II"] = "mean", lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "uniform"
) -> Algorithm:
    """SCAFFOLD (Karimireddy et al., 2020), which averages clients uniformly; only the model's update is masked."""
    return Algorithm(control_variates(option), mean(weighting), mask, step(lr), "scaffold")


def fedavgm(
    lr: float = 1.0, beta: float = 0.9, placement: Placement = "after", mask: Mask | None = None, weighting: Weighting = "samples"
) -> Algorithm:
    """FedAvg with momentum on the server (Hsu et al., 2019)."""
    return Algorithm(sgd(), mean(weighting), mask, momentum(lr, beta, placement), "fedavgm")


def fedadagrad(
    lr: float = 0.02,
    eps: float = 1e-3,
    eps_inside: bool = False,
    placement: Placement = "after",
    mask: Mask | None = None,
    weighting: Weighting = "samples",
) -> Algorithm:
    """Adagrad on the server (Reddi et al., 2021)."""
    return Algorithm(sgd(), mean(weighting), mask, adagrad(lr, eps, eps_inside, placement), "fedadagrad")


def fedadam(
    lr: float = 0.02,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-3,
    eps_inside: bool = False,
    placement: Placement = "after",
    mask: Mask | None = None,
    weighting: Weighting = "samples",
) -> Algorithm:
    """Adam on the server (Reddi et al., 2021)."""
    return Algorithm(sgd(), mean(weighting), mask, adam(lr, beta1, beta2, eps, eps_inside, placement), "fedadam")


def fedyogi(
    lr: float = 0.02,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-3,
    eps_inside: bool = False,
    placement: Placement = "after",
    mask: Mask | None = None,
    weighting: Weighting = "samples",
) -> Algorithm:
    """Yogi on the server (Reddi et al., 2021)."""
    return Algorithm(sgd(), mean(weighting), mask, yogi(lr, beta1, beta2, eps, eps_inside, placement), "fedyogi")


def pooled() -> Algorithm:
    """The baseline with all training data in one place: every round trains on as many samples as a cohort would hold, drawn from all."""
    return Algorithm(Local(pooled=True), mean(), None, step(), "pooled")


def local_only() -> Algorithm:
    """The baseline without a federation: every client trains alone, on from its own last model. Its unseen and test figures are those of
    the clients' models, averaged."""
    return Algorithm(Local(alone=True), mean(), None, step(0.0), "local_only")


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    make.__name__: make for make in (fedavg, fedsgd, fedprox, scaffold, fedavgm, fedadagrad, fedadam, fedyogi, pooled, local_only)
}
