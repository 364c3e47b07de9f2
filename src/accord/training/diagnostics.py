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


def of_rounds(
    algorithm: Algorithm, record: Record, lowered: Lowered, memory: Memory, change: Tensor, round: Round, finite: Tensor
) -> tuple[list[bool], list[dict[str, Any]]]:
    """The same of several runs, all tensors `[R, ...]`, in one look at the device, which is also one at `finite:
    [R]`."""
    norms = torch._foreach_norm([*lowered.update.unbind(0), *change.unbind(0)])
    seen = algorithm.mask.agreement(record.part("mask"), memory["mask"], round) if algorithm.mask else None
    columns = [finite.double(), *torch.stack(norms).double().view(2, -1)]
    names: tuple[str, ...] = ()
    if seen is not None:
        agreement, enough = seen
        names, parts = zip(*round.layout.layers(agreement), strict=True)
        columns += [enough.sum(-1).double(), *(_sums(part) for part in parts)]
    told = []
    for _, update_norm, step_norm, *more in (looked := torch.stack(columns, 1).tolist()):
        row: dict[str, Any] = {"update_norm": update_norm, "step_norm": step_norm}
        if seen is not None:
            passed, *sums = more
            row["agreement"] = sum(sums) / agreement.shape[-1]
            row["below_tau"] = 1.0 - passed / enough.shape[-1]
            sizes = [part.shape[-1] for part in parts]
            row["agreement_by_layer"] = dict(
                zip(names, (total / size for total, size in zip(sums, sizes, strict=True)), strict=True)
            )
        told.append(row)
    return [bool(each[0]) for each in looked], told


def _sums(part: Tensor) -> Tensor:
    """`[R]` in float64. Sums of float32 shares are exact there, in whatever order a device adds them; others are added
    as those of one run are."""
    if part.dtype != torch.float64:
        return part.sum(-1, dtype=torch.float64)
    return torch.stack([row.sum() for row in part])


def _looked_at(numbers: Sequence[Tensor]) -> list[float]:
    """The numbers, in one look at the device."""
    return torch.stack([number.double() for number in numbers]).tolist()
