"""What a round tells about itself at no extra cost: how far the clients agreed, and how large the steps were."""

from typing import Any

from torch import Tensor

from accord.aggregate import Lowered
from accord.algorithm import Algorithm
from accord.layout import Layout
from accord.mask import enough, net_share
from accord.record import Record


def of_round(algorithm: Algorithm, record: Record, lowered: Lowered, change: Tensor, layout: Layout) -> dict[str, Any]:
    """Norms of the averaged update and of the server's step; where the clients voted, their mean net agreement, overall and by
    parameter, and the share of coordinates under tau."""
    row: dict[str, Any] = {"update_norm": float(lowered.update.norm()), "step_norm": float(change.norm())}
    if algorithm.mask is not None:
        agreement = net_share(record.mask)
        row["agreement"] = float(agreement.mean())
        row["below_tau"] = 1.0 - float(enough(record.mask, algorithm.mask.tau).to(agreement.dtype).mean())
        row["agreement_by_layer"] = {name: float(part.mean()) for name, part in layout.layers(agreement)}
    return row
