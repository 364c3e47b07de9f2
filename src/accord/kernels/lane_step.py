"""The step of SGD with momentum, or of Adam, for many lanes in one pass over memory, on CUDA: whatever a lane's rule
adds to its gradient included."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accord.kernels.cuda import Kernels

SOURCE = Path(__file__).with_suffix(".cu")
_THREADS, _EACH = 256, 4  # of a program; coordinates of a thread

# w, start, drift, gradients and what the optimiser keeps, all `[L, P]`: a `Piece` of `accord.rules.local.step`
Matrices = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Sequence[Tensor]]


def sgd_(gradient: Tensor, piece: Matrices, *, lr: Tensor, momentum: Tensor, **rest: Any) -> None:
    """As `accord.engines.vectorised.lanes.lanes_step_` with SGD, and `accord.rules.local.step.step_` says what each of
    these is. All columns are `[L, 1]`."""
    (velocity,) = piece[4]
    _launch(gradient, piece, (velocity, None), [lr, momentum, None, None, None, None], **rest)


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
    _launch(gradient, piece, (mean, square), [size, new, beta, new_square, keep, eps], **rest)


def _launch(
    gradient: Tensor,
    piece: Matrices,
    kept: tuple[Tensor, Tensor | None],
    numbers: list[Tensor | None],
    count: Tensor,
    factor: Tensor | None = None,
    weight_decay: Tensor | None = None,
    mu: Tensor | None = None,
) -> None:
    w, start, drift, gradients, _ = piece
    matrices = [w, *kept, gradient, gradients, start, drift]
    assert all(matrix is None or matrix.is_contiguous() for matrix in matrices)
    assert all(matrix is None or matrix.data_ptr() % (4 * _EACH) == 0 for matrix in matrices)
    programs = -(-w.numel() // (_THREADS * _EACH))
    kernels(w.device).launch(
        "step", (programs, 1), _THREADS, *matrices, count, *numbers, factor, weight_decay, mu, *w.shape
    )


@functools.cache
def kernels(device: torch.device) -> Kernels:
    """Compiled when they are first asked for, which fails where nothing can be compiled."""
    with torch.cuda.device(device):
        return Kernels(SOURCE, {})
