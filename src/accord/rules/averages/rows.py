"""Every client's update, kept apart, for averages that a minority of clients cannot carry off
(docs/explanation/robustness.md).

Such an average needs all of them at once, so the server holds `[K, P]`, and it counts clients alike: a client that lies
may lie about its samples too. Buffers are still averaged, over all clients.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from accord.core.protocols import Average
from accord.core.record import BLOCK, Field, Record, State
from accord.core.reports import Reports


class OfEveryUpdate(Average):
    """What these averages share: clients count alike, and `total["deltas"]` has every update, `[..., K, P]`."""

    @property
    def sums_only(self) -> bool:
        return False

    def weights(self, reports: Reports) -> Tensor:
        return reports.one

    def lift(self, reports: Reports, sent: State) -> Record:
        wide = torch.promote_types(reports.delta.dtype, torch.float32)
        return Record(deltas=Field(reports.delta.to(wide), "rows"))


def by_coordinate(deltas: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """`of` each coordinate's values in ascending order, `[..., K, P] -> [..., P]`, a block of coordinates at a time:
    sorting takes three times the memory of what is sorted."""
    return torch.cat([of(part.sort(-2).values) for part in deltas.split(BLOCK, -1)], -1)
