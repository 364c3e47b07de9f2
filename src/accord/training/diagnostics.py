"""What a round tells about itself at no extra cost: how far the clients agreed, and how large the steps were."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from accord.core.record import Record
from accord.core.round import Round
from accord.rules.algorithm import Algorithm
from accord.rules.combine import Lowered
from accord.rules.masks import tau_at


def of_round(algorithm: Algorithm, record: Record, lowered: Lowered, change: Tensor, round: Round) -> dict[str, Any]:
    """Norms of the averaged update and of the server's step; where there is a mask, the clients' mean agreement as it sees it, overall and
    by parameter, and the share of coordinates under tau."""
    norms = torch._foreach_norm([lowered.update, change])  # one kernel for both
    if algorithm.mask is None:
        update_norm, step_norm = _looked_at(norms)
        return {"update_norm": update_norm, "step_norm": step_norm}
    agreement, enough = algorithm.mask.agreement(record.mask, tau_at(algorithm.mask.tau, round.number))
    names, parts = zip(*round.layout.layers(agreement), strict=True)
    sums_of = [part.sum(dtype=torch.float64) for part in parts]
    update_norm, step_norm, passed, *sums = _looked_at([*norms, enough.sum(), *sums_of])
    return {
        "update_norm": update_norm,
        "step_norm": step_norm,
        "agreement": sum(sums) / agreement.numel(),
        "below_tau": 1.0 - passed / enough.numel(),
        "agreement_by_layer": {name: total / part.numel() for name, total, part in zip(names, sums, parts, strict=True)},
    }


def _looked_at(numbers: Sequence[Tensor]) -> list[float]:
    """The numbers, in one look at the device."""
    return torch.stack([number.double() for number in numbers]).tolist()
