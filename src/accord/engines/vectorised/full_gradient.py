"""Gradients over all of a client's data, for the rules that ask for them (scaffold I, corrective weights)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from accord.engines.transfer import sent
from accord.engines.vectorised.client_lane import Lane
from accord.engines.vectorised.lanes import Model, gradients
from accord.engines.vectorised.planning import padded, waves
from accord.engines.vectorised.sending import arrays_of, draw_keys, tops

_BATCH = 512  # samples at a time


def full_gradient(
    model: Model, pads: bool, drops_out: bool, chosen: Sequence[Lane], where: str, at: Tensor, buffers: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient `[L, P]` and value `[L, 1]` of each client's mean loss over all its data, at the "start" of the round or
    at its "end". Buffers `[L, B]` are read, not moved."""
    groups = _by_width(chosen) if at.device.type == "cpu" else []
    if len(groups) > 1:
        pieces = []
        for group in groups:
            some = group if len(group) > 1 else 2 * group  # libraries compute a batch of one in another way
            lanes, which = [chosen[lane] for lane in some], torch.tensor(some)
            group_gradient = full_gradient(model, pads, drops_out, lanes, where, at[which], buffers[which])
            pieces.append([part[: len(group)] for part in group_gradient])
        place = torch.tensor([lane for group in groups for lane in group]).argsort()
        gradient, loss = (torch.cat(parts)[place] for parts in zip(*pieces, strict=True))
        return gradient, loss
    orders = [(lane.member.numbers, near_equal(lane.member.samples, _BATCH)) for lane in chosen]
    samples = sent(np.array([[lane.member.samples] for lane in chosen], dtype=np.int64), at.device).to(at.dtype)
    total, value, flips = torch.zeros_like(at), torch.zeros_like(at[:, :1]), tops(chosen)
    top = None if flips is None else sent(flips, at.device)
    for part in waves(padded(orders), pads):
        arrays = (sent(values, at.device) for values in arrays_of(part, at.dtype).values())
        purpose, nothing = f"dropout at the {where}", [None] * len(part.count)
        keys = sent(draw_keys(purpose, part, chosen), at.device) if drops_out else nothing
        for rows, share, count, key in zip(*arrays, keys, strict=True):
            unpacked = model.layout.unpack_buffers(buffers.to(at.device))
            gradient, loss = gradients(model, at, unpacked, rows, share, dropout=key, top=top)
            weight = count.unsqueeze(1) / samples
            total.addcmul_(gradient, weight)
            value.addcmul_(loss.unsqueeze(1).to(value), weight)
    return total, value


def _by_width(chosen: Sequence[Lane]) -> list[list[int]]:
    """The lanes, by number, grouped by the widest client of their run. Batches are filled up to that width, so a CPU's
    sums do not depend on which runs go along. On CUDA all are one batch, which is faster, and last digits differ."""
    width: dict[int, int] = {}  # by run
    for lane in chosen:
        widest = near_equal(len(lane.member.rows), _BATCH)[0]
        width[id(lane.work)] = max(width.get(id(lane.work), 0), widest)
    groups: dict[int, list[int]] = {}
    for number, lane in enumerate(chosen):
        groups.setdefault(width[id(lane.work)], []).append(number)
    return list(groups.values())


def near_equal(count: int, most: int) -> list[int]:
    """Sizes of at most `most` that differ by one at most.

    >>> near_equal(7, 3)
    [3, 2, 2]
    """
    parts = -(-count // most)
    return [count // parts + (part < count % parts) for part in range(parts)]
