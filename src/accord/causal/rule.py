"""CausalFed as an algorithm: a network cut in two, trained by an engine of its own (docs/explanation/causalfed.md)."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from accord.core.errors import AccordError, check_whole
from accord.core.protocols import Local
from accord.rules.algorithm import Algorithm


@dataclass(frozen=True)
class split_network(Local):
    """Clients hold the network's layers before `at`, the server the rest, and a round is an exchange of
    representations.

    `penalty` weighs how far the classifier is from being optimal for each client by itself (lambda of IRMv1); for the
    first `warmup` rounds it is `warmup_penalty`. `reduction` says how a client's losses make its risk.
    """

    at: Annotated[int, "number of layers that clients hold; if negative, all but so many"] = -1
    penalty: Annotated[float, "lambda, the weight of the invariance penalty"] = 1.0
    warmup: Annotated[int, "rounds before that weight applies"] = 0
    warmup_penalty: Annotated[float, "its weight until then"] = 0.0
    reduction: Annotated[Literal["mean", "sum"], "a client's risk is the mean or the sum of its samples' losses"] = (
        "mean"
    )

    reports_updates = False
    engine = "causal"

    def __post_init__(self) -> None:
        if isinstance(self.at, bool) or not isinstance(self.at, int) or self.at == 0:
            raise AccordError(
                f"at must be a whole number other than 0, got {self.at!r}: clients hold so many layers, or all but so"
                " many"
            )
        check_whole("warmup", self.warmup, 0)
        for name in ("penalty", "warmup_penalty"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not (value >= 0.0 and math.isfinite(value))
            ):
                raise AccordError(
                    f"{name} must be 0 or more, got {value!r}: it is lambda, the weight of the invariance penalty"
                )
        if self.reduction not in ("mean", "sum"):
            raise AccordError(f"reduction must be 'mean' or 'sum', got {self.reduction!r}")


def penalty_at(rule: split_network, round: int) -> float:
    """The penalty's weight in a round (from 1)."""
    return rule.penalty if round > rule.warmup else rule.warmup_penalty


def rule_of(algorithm: Algorithm) -> split_network:
    """How an algorithm cuts the network, which it must do to be trained here."""
    rule = algorithm.local
    if not isinstance(rule, split_network):
        raise AccordError(
            f"algorithm {algorithm.name!r} trains whole networks: take causalfed() to train a network cut in two"
        )
    return rule


def causalfed(
    at: int = -1,
    penalty: float = 1.0,
    warmup: int = 0,
    warmup_penalty: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
) -> Algorithm:
    """CausalFed: clients hold the first `at` layers and send representations; the server minimises risk + `penalty` x
    IRM penalty over them (docs/explanation/causalfed.md)."""
    return Algorithm(split_network(at, penalty, warmup, warmup_penalty, reduction), name="causalfed")
