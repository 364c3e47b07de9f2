"""`combine`: one call, no engine, for people who only want the rule."""

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.protocols import Average, Mask
from accord.core.reports import Reports, finite
from accord.core.round import Round
from accord.rules.algorithm import Algorithm, Lowered


def combine(rule: Average | Mask, deltas: Tensor, weights: Tensor | None = None) -> Lowered:
    """Averages `deltas: [K, P]` by `weights: [K]` (equal if left out) and, when the rule is a mask, says how far to
    trust each coordinate.

    The server's step is `update` for an average and `rule.apply(mask, update)` for a mask, usually `mask * update`.

    >>> combine(gma(tau=0.6), torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 3.0]])).mask
    tensor([1.0000, 0.3333])
    """
    if isinstance(rule, Average):
        algorithm = Algorithm(average=rule)
    elif isinstance(rule, Mask):
        algorithm = Algorithm(mask=rule)
    else:
        raise AccordError(f"rule must be an average or a mask, such as mean() or gma(0.4), got {rule!r}")
    deltas = torch.as_tensor(deltas)
    if rule.needs:
        raise AccordError(
            f"rule must need the clients' updates alone, got {rule!r}, which needs their gradients too: use it in an"
            " Algorithm"
        )
    if deltas.ndim != 2 or 0 in deltas.shape:
        raise AccordError(
            f"deltas must have shape [clients, parameters] with at least one of each, got {tuple(deltas.shape)}"
        )
    if not deltas.dtype.is_floating_point:
        raise AccordError(f"deltas must be floating-point numbers, got {deltas.dtype}")
    clients, size = deltas.shape
    weights = torch.ones(clients) if weights is None else torch.as_tensor(weights)
    if weights.shape != (clients,):
        raise AccordError(f"weights must have shape [{clients}], one per client, got {tuple(weights.shape)}")
    if not bool((weights > 0).all()) or not bool(weights.isfinite().all()):
        raise AccordError(f"weights must be positive and finite, got {weights.tolist()}")
    wide = torch.promote_types(deltas.dtype, torch.float32)
    column = weights.to(deltas.device, wide).view(clients, 1)
    reports = Reports(delta=deltas, weight=column, steps=torch.ones_like(column), buffers=column[:, :0])
    round = Round(1, Layout.flat(size, wide), clients)
    memory = algorithm.init(round.layout, clients, deltas[0])
    record = algorithm.lift(reports, memory)
    # a sum tells of every value that is not finite
    if not finite(algorithm.weighted(reports).total.value):
        bad = [k for k in range(clients) if not bool(deltas[k].isfinite().all())]
        raise AccordError(
            f"deltas of clients {bad} hold NaN or infinity: leave them out"
            if bad
            else "the sum of the deltas is not finite"
        )
    return algorithm.lower(record, memory, round)[0]
