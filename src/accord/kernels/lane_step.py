"""The step of SGD with momentum, or of Adam, for many lanes in one pass over memory, on CUDA: whatever a lane's rule
adds to its gradient included."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_BLOCK = 1024  # coordinates per program

# w, start, drift, gradients and what the optimiser keeps, all `[L, P]`: a `Piece` of `accord.engines.local_step`
Matrices = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Sequence[Tensor]]


def sgd_(gradient: Tensor, piece: Matrices, *, lr: Tensor, momentum: Tensor, **rest: Any) -> None:
    """As `accord.engines.vectorised.lanes.lanes_step_` with SGD, and `accord.engines.local_step.step_` says what each
    of these is. All columns are `[L, 1]`."""
    (velocity,) = piece[4]
    _launch(gradient, piece, (velocity, velocity), [lr, momentum, lr, lr, lr, lr], False, **rest)


def adam_(
    gradient: Tensor,
    piece: Matrices,
    *,
    new: Tensor,
    beta: Tensor,
    new_square: Tensor,
    keep: Tensor,
    size: Tensor,
    eps: Tensor,
    **rest: Any,
) -> None:
    """The same with Adam: `accord.rules.local.step.adam_` says what its numbers are."""
    mean, square = piece[4]
    _launch(gradient, piece, (mean, square), [size, new, beta, new_square, keep, eps], True, **rest)


def _launch(
    gradient: Tensor,
    piece: Matrices,
    kept: tuple[Tensor, Tensor],
    numbers: list[Tensor],
    adam: bool,
    count: Tensor,
    factor: Tensor | None = None,
    weight_decay: Tensor | None = None,
    mu: Tensor | None = None,
) -> None:
    w, start, drift, gradients, _ = piece
    lanes, size = w.shape
    matrices = [w if matrix is None else matrix for matrix in (gradients, start, drift)]
    columns = [count if column is None else column for column in (factor, weight_decay, mu)]
    given = [value is not None for value in (factor, weight_decay, gradients, mu, drift)]
    with torch.cuda.device(w.device) if w.is_cuda else torch.no_grad():
        _kernel()[-(-size // _BLOCK), lanes](
            w, *kept, gradient, *matrices, count, *numbers, *columns, size, *given, adam, _BLOCK
        )


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def step(  # type: ignore[no-untyped-def]
        w, first, second, gradient, gradients, start, drift, count, lr, share, beta, new, keep, eps, factor, decay, mu,
        size, FACTOR: tl.constexpr, DECAY: tl.constexpr, GRADIENTS: tl.constexpr, MU: tl.constexpr,
        DRIFT: tl.constexpr, ADAM: tl.constexpr, BLOCK: tl.constexpr,
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
            if ADAM:
                mean = tl.load(first + at, mask=inside)
                mean += tl.load(share + lane) * (follow - mean)
                tl.store(first + at, mean, mask=inside)
                square = tl.load(beta + lane) * tl.load(second + at, mask=inside)
                square += tl.load(new + lane) * follow * follow
                tl.store(second + at, square, mask=inside)
                way = mean / (tl.sqrt(square) + tl.load(eps + lane))
                tl.store(w + at, here * tl.load(keep + lane) - tl.load(lr + lane) * way, mask=inside)
            else:
                speed = tl.load(share + lane) * tl.load(first + at, mask=inside) + follow
                tl.store(first + at, speed, mask=inside)
                tl.store(w + at, here - tl.load(lr + lane) * speed, mask=inside)

    return step
