"""Whether a copy of a model whose layers were replaced computes what the model does."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from accord.core import draws

_MOVED = 0.3  # how far parameters are moved for it, relative to their size


@torch.no_grad()
def difference(twin: nn.Module, module: nn.Module, x: Tensor, of_twin: Tensor | None = None) -> float:
    """Between their outputs for `x`, relative to the model's; the copy may be given the same samples in another order
    of memory. Parameters of both are moved alike for it: of a last layer that begins with zeros every model gives the
    same."""
    with _moved(twin), _moved(module):
        output, wanted = _output(twin, x if of_twin is None else of_twin), _output(module, x)
    if output.shape != wanted.shape:
        return torch.inf
    return float((output - wanted).norm() / wanted.norm())


@contextmanager
def _moved(module: nn.Module) -> Iterator[None]:
    """Within it every parameter lies a little elsewhere; the same distance in every model with the same parameters."""
    noise = torch.Generator().manual_seed(0)
    before = [(p, p.detach().clone()) for p in module.parameters() if p.is_floating_point()]
    try:
        for p, value in before:
            size = float(value.abs().mean()) or 1.0
            p.add_(torch.randn(p.shape, generator=noise).to(p), alpha=_MOVED * size)
        yield
    finally:
        for p, value in before:
            p.copy_(value)


def _output(module: nn.Module, x: Tensor) -> Tensor:
    was = module.training
    try:
        with draws.Routed(0):
            output: Tensor = module.eval()(x)
    finally:
        module.train(was)
    return output
