"""The norm of every lane's update. A lane's bits must not depend on how many lanes there are, and the order in which
CUDA adds up a row by itself does."""

import functools
from typing import Any

import torch
from torch import Tensor

_BLOCK = 1024
_LONG = 1 << 20  # coordinates from which one program a lane would leave most of a device idle


def lane_norms(x: Tensor) -> Tensor:
    """`[L]` of `x: [L, P]`."""
    if not x.is_cuda or x.dtype != torch.float32 or x.shape[-1] > _LONG or _kernel() is None:
        return x.norm(dim=1)
    return by_kernel(x)


def by_kernel(x: Tensor) -> Tensor:
    """The same of float32 on CUDA, with Triton."""
    x = x.contiguous()
    out = x.new_empty(len(x))
    if len(x):
        with torch.cuda.device(x.device) if x.is_cuda else torch.no_grad():
            _kernel()[(len(x),)](x, out, x.shape[1], _BLOCK)
    return out


@functools.cache
def _kernel() -> Any:
    """The kernel, or None where there is no Triton."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    @triton.jit
    def norms(x, out, size, N: tl.constexpr):  # type: ignore[no-untyped-def]
        lane = tl.program_id(0).to(tl.int64)
        total = tl.zeros((N,), dtype=tl.float32)
        for first in range(0, size, N):
            at = first + tl.arange(0, N)
            value = tl.load(x + lane * size + at, mask=at < size, other=0.0)
            total += value * value
        tl.store(out + lane, tl.sqrt(tl.sum(total, 0)))

    return norms
