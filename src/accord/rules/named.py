"""The papers' algorithms by name.

The four parts are swapped, never subclassed: `fedadam(mask=gma(0.4))` is FedAdam with the papers' mask, and FedProx
differs from FedAvg by one number. An `average` takes the place of the mean; `weighting`, which is the mean's, then has
no say.
"""

from collections.abc import Callable
from typing import Literal

from accord.core.protocols import Average, Mask
from accord.rules.algorithm import Algorithm
from accord.rules.averages import masked_gradient, mean
from accord.rules.local import control_variates, own_model, prox, sgd
from accord.rules.local import ditto as ditto_rule
from accord.rules.masks import Share
from accord.rules.servers import Placement, adagrad, adam, momentum, step, yogi

Weighting = Literal["samples", "uniform"]


def fedavg(
    lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples", average: Average | None = None
) -> Algorithm:
    """Federated averaging (McMahan et al., 2017)."""
    return Algorithm(sgd(), average or mean(weighting), mask, step(lr), "fedavg")


def fedsgd(
    lr: float = 1.0, mask: Mask | None = None, weighting: Weighting = "samples", average: Average | None = None
) -> Algorithm:
    """One full-batch step per client and round; `epochs` and `batch` have no say."""
    return Algorithm(sgd(full_batch=True), average or mean(weighting), mask, step(lr), "fedsgd")


def fedprox(
    mu: float = 0.01,
    lr: float = 1.0,
    mask: Mask | None = None,
    weighting: Weighting = "samples",
    average: Average | None = None,
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


def ditto(
    lam: float = 0.1,
    lr: float = 1.0,
    mask: Mask | None = None,
    weighting: Weighting = "samples",
    average: Average | None = None,
) -> Algorithm:
    """FedAvg whose clients train a model of their own beside the common one, pulled towards it (Li et al., 2021)."""
    return Algorithm(ditto_rule(lam), average or mean(weighting), mask, step(lr), "ditto")


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
    return Algorithm(
        sgd(), average or mean(weighting), mask, adam(lr, beta1, beta2, eps, eps_inside, placement), "fedadam"
    )


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
    return Algorithm(
        sgd(), average or mean(weighting), mask, yogi(lr, beta1, beta2, eps, eps_inside, placement), "fedyogi"
    )


def fedgma(
    p: Share = 0.8,
    eta_s: float = 0.1,
    gradient: Literal["last", "start"] = "last",
    variant: Literal["workshop", "poster"] = "workshop",
    weighting: Weighting = "samples",
) -> Algorithm:
    """FedGMA as first published (Tenison et al., 2021): FedAvg, then a step of `eta_s` along the clients' masked
    gradients. What the later papers call gradient masked averaging is `fedavg(mask=gma())`."""
    return Algorithm(sgd(), masked_gradient(p, eta_s, gradient, variant, weighting), None, step(), "fedgma")


def pooled() -> Algorithm:
    """The baseline with all training data in one place: every round trains on as many samples as a cohort would hold,
    drawn from all."""
    return Algorithm(name="pooled", pools=True)


def local_only() -> Algorithm:
    """The baseline without a federation: every client trains alone, on from its own last model. Its unseen and test
    figures are those of the clients' models, averaged."""
    return Algorithm(own_model(), mean(), None, step(0.0), "local_only")


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    make.__name__: make
    for make in (
        fedavg,
        fedsgd,
        fedprox,
        scaffold,
        ditto,
        fedavgm,
        fedadagrad,
        fedadam,
        fedyogi,
        fedgma,
        pooled,
        local_only,
    )
}
