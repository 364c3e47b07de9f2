"""What the server minimises for each client: its risk, and how far the classifier is from being optimal for it
(IRMv1)."""

from typing import Literal

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.losses import PerSample


def risk_and_penalty(
    loss: PerSample, output: Tensor, labels: Tensor, reduction: Literal["mean", "sum"] = "mean"
) -> tuple[Tensor, Tensor]:
    """A client's risk, and the squared derivative of that risk by a scale on the output, at scale 1. Both can be
    differentiated again.

    The penalty is zero where no rescaling of the output would serve this client better (Arjovsky et al., Invariant Risk
    Minimization, 2019, eq. IRMv1). `reduction="sum"` sums the samples' losses, as the thesis prints it; their mean
    keeps clients of all sizes comparable.

    >>> output, labels = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])  # once right, once wrong
    >>> [round(value.item(), 4) for value in risk_and_penalty(cross_entropy, output, labels)]
    [1.1269, 0.58]
    """
    if not isinstance(output, Tensor):
        raise AccordError(
            f"the network's output must be a tensor, which the penalty can scale, got a {type(output).__name__}"
        )
    scale = torch.ones((), dtype=output.dtype, device=output.device, requires_grad=True)
    losses = loss(scale * output, labels)
    risk = losses.mean() if reduction == "mean" else losses.sum()
    (slope,) = torch.autograd.grad(risk, scale, create_graph=True)
    return risk, slope.square()
