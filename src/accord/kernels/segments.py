"""Sums over segments of rows, on CUDA: each in one program, in an order that depends on the segment's length alone."""

import functools
from typing import Any

import torch
from torch import Tensor

_BLOCK = 256


def segment_sums(values: Tensor, bounds: Tensor) -> Tensor:
    """`[..., G]` of `values: [..., N]`, float64: number g is the sum from `bounds[g]` to `bounds[g + 1]`."""
    rows, groups = values.contiguous(), len(bounds) - 1
    out = values.new_empty(*values.shape[:-1], groups)
    if out.numel():
        with torch.cuda.device(values.device) if values.is_cuda else torch.no_grad():
            _kernel()[groups, out.numel() // groups](rows, bounds, out, values.shape[-1], groups, _BLOCK)
    return out


@functools.cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def sums(values, bounds, out, length, groups, N: tl.constexpr):  # type: ignore[no-untyped-def]
        group, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
        begin, end = tl.load(bounds + group), tl.load(bounds + group + 1)
        total = tl.zeros((N,), dtype=tl.float64)
        for first in range(begin, end, N):
            at = first + tl.arange(0, N)
            total += tl.load(values + row * length + at, mask=at < end, other=0.0)
        tl.store(out + row * groups + group, tl.sum(total, 0))

    return sums
