"""The step of SGD with momentum for many lanes in one pass over memory, on CUDA: whatever a lane's rule adds to its
gradient included."""

import functools
from typing import Any

import torch
from torch import Tensor

_BLOCK = 1024  # coordinates per program


def step_(
    gradient: Tensor,
    w: Tensor,
    velocity: Tensor,
    start: Tensor,
    drift: Tensor | None = None,
    gradients: Tensor | None = None,
    *,
    count: Tensor,
    lr: Tensor,
    momentum: Tensor,
    factor: Tensor | None = None,
    weight_decay: Tensor | None = None,
    mu: Tensor | None = None,
) -> None:
    """As `accord.engines.vectorised.lanes.lanes_step_`, and `accord.engines.local_step.step_` says what each of these
    is. All matrices are `[L, P]`, all columns `[L, 1]`."""
    lanes, size = w.shape
    matrices = [w if matrix is None else matrix for matrix in (gradients, start, drift)]
    columns = [lr if column is None else column for column in (factor, weight_decay, mu)]
    given = [value is not None for value in (factor, weight_decay, gradients, mu, drift)]
    with torch.cuda.device(w.device) if w.is_cuda else torch.no_grad():
        _kernel()[-(-size // _BLOCK), lanes](
            w, velocity, gradient, *matrices, count, lr, momentum, *columns, size, *given, _BLOCK
        )


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def step(  # type: ignore[no-untyped-def]
        w, velocity, gradient, gradients, start, drift, count, lr, momentum, factor, decay, mu, size,
        FACTOR: tl.constexpr, DECAY: tl.constexpr, GRADIENTS: tl.constexpr, MU: tl.constexpr,
        DRIFT: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        lane = tl.program_id(1).to(tl.int64)
        if tl.load(count + lane) > 0:
            inside = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) < size
            at = lane * size + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            here = tl.load(w + at, mask=inside)
            follow = tl.load(gradient + at, mask=inside)
            if FACTOR:
                follow *= tl.load(factor + lane)
            if DECAY:
                follow += tl.load(decay + lane) * here
            if GRADIENTS:
                tl.store(gradients + at, tl.load(gradients + at, mask=inside) + follow, mask=inside)
            if MU:
                follow += tl.load(mu + lane) * (here - tl.load(start + at, mask=inside))
            if DRIFT:
                follow += tl.load(drift + at, mask=inside)
            speed = tl.load(momentum + lane) * tl.load(velocity + at, mask=inside) + follow
            tl.store(velocity + at, speed, mask=inside)
            tl.store(w + at, here - tl.load(lr + lane) * speed, mask=inside)

    return step
