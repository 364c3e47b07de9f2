"""What a round tells about itself at no extra cost: how far the clients agreed, and how large the steps were."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from accord.core.record import Record
from accord.core.round import Round
from accord.rules.algorithm import Algorithm, Lowered, Memory


def of_round(
    algorithm: Algorithm, record: Record, lowered: Lowered, memory: Memory, change: Tensor, round: Round
) -> dict[str, Any]:
    """Norms of the averaged update and of the server's step; where a mask knows it, the clients' mean agreement,
    overall and by parameter, and the share of coordinates under tau."""
    norms = torch._foreach_norm([lowered.update, change])  # one kernel for both
    seen = algorithm.mask.agreement(record.part("mask"), memory["mask"], round) if algorithm.mask else None
    if seen is None:
        update_norm, step_norm = _looked_at(norms)
        return {"update_norm": update_norm, "step_norm": step_norm}
    agreement, enough = seen
    names, parts = zip(*round.layout.layers(agreement), strict=True)
    sums_of = [part.sum(dtype=torch.float64) for part in parts]
    update_norm, step_norm, passed, *sums = _looked_at([*norms, enough.sum(), *sums_of])
    return {
        "update_norm": update_norm,
        "step_norm": step_norm,
        "agreement": sum(sums) / agreement.numel(),
        "below_tau": 1.0 - passed / enough.numel(),
        "agreement_by_layer": {
            name: total / part.numel() for name, total, part in zip(names, sums, parts, strict=True)
        },
    }


def _looked_at(numbers: Sequence[Tensor]) -> list[float]:
    """The numbers, in one look at the device."""
    return torch.stack([number.double() for number in numbers]).tolist()
