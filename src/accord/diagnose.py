"""What a round tells about itself at no extra cost: how far the clients agreed, and how large the steps were."""

from typing import Any

import torch
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
        below = (~enough(record.mask, algorithm.mask.tau)).to(agreement.dtype)
        layers = dict(layout.layers(agreement))
        means = torch.stack([agreement.mean(), below.mean(), *(part.mean() for part in layers.values())]).tolist()  # one look at the device
        row["agreement"], row["below_tau"] = means[:2]
        row["agreement_by_layer"] = dict(zip(layers, means[2:], strict=True))
    return row
