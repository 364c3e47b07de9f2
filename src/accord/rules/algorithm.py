"""`Algorithm(local, average, mask, server)` and the papers' named combinations.

The four parts are swapped, never subclassed: `fedadam(mask=gma(0.4))` is FedAdam with the papers' mask, and FedProx differs from FedAvg by
one number. An `average` takes the place of the mean; `weighting`, which is the mean's, then has no say.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Record, State, one_pass, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.privacy.dp import Privacy
from accord.rules.averages.first_fedgma import masked_gradient
from accord.rules.averages.mean import Average, mean
from accord.rules.combine import Lowered
from accord.rules.local.rule import Local, Split, control_variates, prox, sgd
from accord.rules.masks import Mask
from accord.rules.servers.adam import Placement, Server, adagrad, adam, momentum, step, take_step, yogi

Weighting = Literal["samples", "uniform"]
Memory = dict[str, State]  # what each part remembers between rounds


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm: what clients do, how their updates are averaged, how far each coordinate is trusted, how the server steps."""

    local: Local = sgd()
    average: Average = mean()
    mask: Mask | None = None
    server: Server = step()
    name: str = "custom"
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        if self.mask is not None and not isinstance(self.mask, Mask):
            raise AccordError(f"mask must be None or a mask such as gma(0.4), got {self.mask!r}")
        if isinstance(self.average, type) or not hasattr(self.average, "lift"):
            raise AccordError(f"average must be an average such as mean() or median(), got {self.average!r}")
        if self.privacy is not None:
            self.privacy.check(self)

    def with_privacy(self, clip: float, noise: float, delta: float = 1e-5, vote_noise: float | None = None) -> "Algorithm":
        """The same algorithm with user-level differential privacy (docs/privacy.md).

        >>> private = fedavg(mask=gma(0.4), weighting="uniform").with_privacy(clip=1.0, noise=1.0)
        """
        return replace(self, privacy=Privacy(clip, noise, delta, vote_noise))

    @property
    def needs(self) -> frozenset[str]:
        """What clients must report besides their delta."""
        return self.local.needs | self.average.needs | (self.mask.needs if self.mask else frozenset())

    @property
    def least(self) -> int:
        """The fewest reports that a round can be made of."""
        return getattr(self.average, "least", 1)

    def check_cohort(self, clients: int) -> None:
        """Refuses so few clients a round that none could count."""
        if clients < self.least:
            self.average.check_cohort(clients)  # type: ignore[attr-defined]

    def init(self, layout: Layout, clients: int, vector: Tensor) -> Memory:
        """What every part remembers before the first round."""
        parts = {"local": self.local, "average": self.average, **({"mask": self.mask} if self.mask else {})}
        begun = {part: {name: value.to(vector.device) for name, value in own.init(layout, clients).items()} for part, own in parts.items()}
        return {"mask": {}, **begun, "server": self.server.init(vector)}

    def lift(self, reports: Reports, memory: Memory) -> Record:
        """One record of a cohort, or of any part of it: records of parts add up. With privacy, updates are clipped first."""
        reports = reports if self.privacy is None else self.privacy.bound(reports)
        weights = self.average.weights(reports)
        with one_pass(self.mask is not None):
            parts = {
                "local": self.local.lift(reports, memory["local"]),
                "average": self.average.lift(reports, memory["average"]),
                "buffers": Record(change=total(reports.buffers, weights), weight=total(weights)),
            }
            if self.mask:  # a mask that weighs clients weighs them as the average does
                parts["mask"] = self.mask.lift(replace(reports, weight=weights), memory["mask"])
        return Record(**parts)

    @property
    def asks_twice(self) -> bool:
        """Whether clients are asked again once all have reported. Such clients keep what they reported in `extra` until then."""
        return getattr(self.average, "passes", 1) == 2

    def again(self, record: Record, kept: Sequence[State]) -> Record:
        """The record after the second exchange, if there is one: clients see the first one's sums, and add to others from what they kept.

        `kept` has the `extra` of some clients each, `[..., K, P]`, in the order in which they are added.
        """
        if not self.asks_twice:
            return record
        second = functools.reduce(operator.add, (self.average.second(own, record.average) for own in kept))  # type: ignore[attr-defined]
        return self.joined(record, second)

    def joined(self, record: Record, second: Record) -> Record:
        """A cohort's record with what its second exchange added up."""
        return Record(**{**dict(record), "average": Record(**dict(record.average), **dict(second))})

    def released(self, record: Record, round: Round) -> Record:
        """What the server may see of a cohort: the record itself or, with privacy, the record with its noise, which is put on once."""
        return record if self.privacy is None else self.privacy.released(record, round)

    def lower(self, record: Record, memory: Memory, round: Round) -> tuple[Lowered, Tensor, Memory]:
        """The averaged update and its mask, the change of the buffers (never masked), and what all parts but the server remember now."""
        record = self.released(record, round)
        update, average = self.average.lower(record.average, memory["average"], round)
        mask, mask_memory = self.mask.lower(record.mask, memory["mask"], round) if self.mask else (None, {})
        local = self.local.lower(record.local, memory["local"], round)
        buffers = record.buffers.change / record.buffers.weight
        return Lowered(update, mask), buffers, {**memory, "local": local, "average": average, "mask": mask_memory}

    def step(self, lowered: Lowered, memory: Memory) -> tuple[Tensor, Memory]:
        """What the server adds to the model, and the memory after it."""
        server, change = take_step(self.server, memory["server"], lowered.update, lowered.mask)
        return change, {**memory, "server": server}


def fedavg(lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples", average: Average | None = None) -> Algorithm:
    """Federated averaging (McMahan et al., 2017)."""
    return Algorithm(sgd(), average or mean(weighting), mask, step(lr), "fedavg")


def fedsgd(lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples", average: Average | None = None) -> Algorithm:
    """One full-batch step per client and round; `epochs` and `batch` have no say."""
    return Algorithm(sgd(full_batch=True), average or mean(weighting), mask, step(lr), "fedsgd")


def fedprox(
    mu: float = 0.01, lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples", average: Average | None = None
) -> Algorithm:
    """FedAvg whose clients are pulled back to the round's start (Li et al., 2020)."""
    return Algorithm(prox(mu), average or mean(weighting), mask, step(lr), "fedprox")


def scaffold(
    option: Literal["mean", "I", "II"] = "mean",
    lr: float = 1.0,
    mask: Mask | None = None,
    weighting: Weighting = "uniform",
    average: Average | None = None,
) -> Algorithm:
    """SCAFFOLD (Karimireddy et al., 2020), which averages clients uniformly; only the model's update is masked."""
    return Algorithm(control_variates(option), average or mean(weighting), mask, step(lr), "scaffold")


def fedavgm(
    lr: float = 1.0,
    beta: float = 0.9,
    placement: Placement = "after",
    mask: Mask | None = None,
    weighting: Weighting = "samples",
    average: Average | None = None,
) -> Algorithm:
    """FedAvg with momentum on the server (Hsu et al., 2019)."""
    return Algorithm(sgd(), average or mean(weighting), mask, momentum(lr, beta, placement), "fedavgm")


def fedadagrad(
    lr: float = 0.02,
    eps: float = 1e-3,
    eps_inside: bool = False,
    placement: Placement = "after",
    mask: Mask | None = None,
    weighting: Weighting = "samples",
    average: Average | None = None,
) -> Algorithm:
    """Adagrad on the server (Reddi et al., 2021)."""
    return Algorithm(sgd(), average or mean(weighting), mask, adagrad(lr, eps, eps_inside, placement), "fedadagrad")


def fedadam(
    lr: float = 0.02,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-3,
    eps_inside: bool = False,
    placement: Placement = "after",
    mask: Mask | None = None,
    weighting: Weighting = "samples",
    average: Average | None = None,
) -> Algorithm:
    """Adam on the server (Reddi et al., 2021)."""
    return Algorithm(sgd(), average or mean(weighting), mask, adam(lr, beta1, beta2, eps, eps_inside, placement), "fedadam")


def fedyogi(
    lr: float = 0.02,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-3,
    eps_inside: bool = False,
    placement: Placement = "after",
    mask: Mask | None = None,
    weighting: Weighting = "samples",
    average: Average | None = None,
) -> Algorithm:
    """Yogi on the server (Reddi et al., 2021)."""
    return Algorithm(sgd(), average or mean(weighting), mask, yogi(lr, beta1, beta2, eps, eps_inside, placement), "fedyogi")


def fedgma(
    p: float = 0.8,
    eta_s: float = 0.1,
    gradient: Literal["last", "start"] = "last",
    variant: Literal["workshop", "poster"] = "workshop",
    weighting: Weighting = "samples",
) -> Algorithm:
    """FedGMA as first published (Tenison et al., 2021): FedAvg, then a step of `eta_s` along the clients' masked gradients. What the later
    papers call gradient masked averaging is `fedavg(mask=gma())`."""
    return Algorithm(sgd(), masked_gradient(p, eta_s, gradient, variant, weighting), None, step(), "fedgma")


def causalfed(
    at: int = -1,
    penalty: float = 1.0,
    warmup: int = 0,
    warmup_penalty: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
) -> Algorithm:
    """CausalFed: clients hold the first `at` layers and send representations; the server minimises risk + `penalty` x IRM penalty over them
    (docs/causalfed.md)."""
    return Algorithm(Local(split=Split(at, penalty, warmup, warmup_penalty, reduction)), mean(), None, step(), "causalfed")


def pooled() -> Algorithm:
    """The baseline with all training data in one place: every round trains on as many samples as a cohort would hold, drawn from all."""
    return Algorithm(Local(pooled=True), mean(), None, step(), "pooled")


def local_only() -> Algorithm:
    """The baseline without a federation: every client trains alone, on from its own last model. Its unseen and test figures are those of
    the clients' models, averaged."""
    return Algorithm(Local(alone=True), mean(), None, step(0.0), "local_only")


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    make.__name__: make
    for make in (fedavg, fedsgd, fedprox, scaffold, fedavgm, fedadagrad, fedadam, fedyogi, fedgma, causalfed, pooled, local_only)
}
