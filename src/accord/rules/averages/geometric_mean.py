"""The geometric mean, which the AND-mask stands in for (Parascandolo et al., 2021; docs/explanation/masks.md)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.protocols import Average
from accord.core.record import Record, State, exact_total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.averages.mean import Weighting
from accord.rules.masks import Share, as_share, enough


@dataclass(frozen=True)
class geometric_mean(Average):
    """Where all clients agree on a coordinate's sign, the weighted geometric mean of their magnitudes with that sign; 0
    elsewhere.

    With `agree` below 1, wherever the net vote reaches that share: each side's geometric mean counts by the weight of
    the clients on it, up minus down, and a client that does not move the coordinate adds to neither. Where magnitudes
    are equal that is the mean; elsewhere each side pulls less than in the mean.
    """

    agree: Annotated[Share, "net agreement below which a coordinate is set to 0"] = 1.0
    weighting: Weighting = "samples"

    def __post_init__(self) -> None:
        agree = as_share("agree", self.agree, "the net agreement below which a coordinate is set to 0")
        object.__setattr__(self, "agree", agree)
        if self.weighting not in ("samples", "uniform"):
            raise AccordError(f"weighting must be 'samples' or 'uniform', got {self.weighting!r}")

    def weights(self, reports: Reports) -> Tensor:
        return reports.weight if self.weighting == "samples" else reports.one

    def lift(self, reports: Reports, sent: State) -> Record:
        weights, delta = reports.weight, reports.delta
        return Record(
            up=exact_total(delta, _is_up, weights, "weight"),
            log_up=exact_total(delta, _log_up, weights),
            down=exact_total(delta, lambda x: _is_up(-x), weights, "weight"),
            log_down=exact_total(delta, lambda x: _log_up(-x), weights),
            votes=reports.votes,
            count=reports.count,
            weight=exact_total(weights, kind="weight"),
        )

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        update = (_pull(total["up"], total["log_up"]) - _pull(total["down"], total["log_down"])) / total["weight"]
        return update.masked_fill_(~enough(total, self.agree), 0.0).to(total["votes"].dtype), state


def _is_up(x: Tensor) -> Tensor:
    return (x > 0).double()


def _log_up(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 1.0).log()  # 0 where it is not up


def _pull(weight: Tensor, log: Tensor) -> Tensor:
    """The weight of a side times the geometric mean of its magnitudes; 0 where nobody is on it."""
    return weight * torch.exp(log / weight.clamp(min=torch.finfo(weight.dtype).tiny))
