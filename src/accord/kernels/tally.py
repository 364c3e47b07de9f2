"""The weighted sum of clients' updates and the votes on them, on CUDA, in one pass over memory.

Plain torch adds client after client, so every client's update is read twice, and the sums are read and written once for
each client. Here each program holds a block of coordinates in registers while it walks over the clients. Triton comes
with torch's CUDA builds.
"""

import functools
from typing import Any

import torch
from torch import Tensor

_BLOCK = 1024  # coordinates per program


@functools.cache
def _kernel() -> Any:
    """The kernel, or None where there is no Triton."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    @triton.jit
    def tally(x, weight, total, votes, clients, size, VOTES: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        run = tl.program_id(1).to(tl.int64)
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < size
        summed = tl.zeros((BLOCK,), dtype=tl.float32)
        counted = tl.zeros((BLOCK,), dtype=tl.float32)
        for client in range(clients):
            row = run * clients + client
            value = tl.load(x + row * size + at, mask=inside, other=0.0)
            summed += tl.load(weight + row) * value
            if VOTES:
                counted += (value > 0).to(tl.float32) - (value < 0).to(tl.float32)
        tl.store(total + run * size + at, summed, mask=inside)
        if VOTES:
            tl.store(votes + run * size + at, counted, mask=inside)

    return tally


def tally(x: Tensor, weight: Tensor, votes: bool) -> tuple[Tensor, Tensor | None] | None:
    """The weighted sum over clients of `x: [..., K, P]`, `weight: [..., K, 1]`, and, if asked, that of their signs;
    None if it cannot."""
    if not x.is_cuda or x.dtype != torch.float32 or not x.shape[-1] or (kernel := _kernel()) is None:
        return None
    clients, size = x.shape[-2:]
    lead = x.shape[:-2]
    rows, weights = x.contiguous(), weight.to(torch.float32).expand(*lead, clients, 1).contiguous()
    total = x.new_empty(*lead, size)
    counted = torch.empty_like(total) if votes else None
    runs = total.numel() // size
    grid = (-(-size // _BLOCK), runs)
    with torch.cuda.device(x.device):
        kernel[grid](
            rows, weights, total, total if counted is None else counted, clients, size, VOTES=votes, BLOCK=_BLOCK
        )
    return total, counted
