"""What a round tells about itself at no extra cost: how far the clients agreed, and how large the steps were."""

from typing import Any

import torch
from torch import Tensor

from accord.aggregate import Lowered
from accord.algorithm import Algorithm
from accord.mask import tau_at
from accord.record import Record
from accord.rounds import Round


def of_round(algorithm: Algorithm, record: Record, lowered: Lowered, change: Tensor, round: Round) -> dict[str, Any]:
    """Norms of the averaged update and of the server's step; where there is a mask, the clients' mean agreement as it sees it, overall and
    by parameter, and the share of coordinates under tau."""
    told = {"update_norm": lowered.update.norm(), "step_norm": change.norm()}
    layers: dict[str, Tensor] = {}
    if algorithm.mask is not None:
        agreement, enough = algorithm.mask.agreement(record.mask, tau_at(algorithm.mask.tau, round.number))
        told |= {"agreement": agreement.mean(), "below_tau": (~enough).to(agreement.dtype).mean()}
        layers = {name: part.mean() for name, part in round.layout.layers(agreement)}
    numbers = torch.stack([value.to(change.dtype) for value in (*told.values(), *layers.values())]).tolist()  # one look at the device
    row: dict[str, Any] = dict(zip(told, numbers, strict=False))
    return row | ({"agreement_by_layer": dict(zip(layers, numbers[len(told) :], strict=True))} if layers else {})
