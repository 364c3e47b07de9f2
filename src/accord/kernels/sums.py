"""Two sums over clients in one pass over their updates: the weighted sum and the votes on its sign."""

import functools
import threading
from itertools import pairwise

import torch
from torch import Tensor

from accord.kernels.block import readable
from accord.kernels.library import available, enabled, functions, in_use, undecided

_WORTH_A_BUILD = 1 << 28  # numbers: they take half a second longer without it, and to build it takes two, once
_WORTH_A_THREAD = 1 << 20


def sums(x: Tensor, weight: Tensor, votes: bool = True) -> tuple[Tensor, Tensor | None] | None:
    """`x: [K, P]` and `weight: [K, 1]` to the sum of weight * x and, if asked, the sum of sign(x), both `[P]`, with the
    bits of torch's addcmul and add. None where the compiled library is not wanted, is not there, cannot read these or
    does not round as torch does."""
    if x.ndim != 2 or weight.shape != (x.shape[0], 1) or x.requires_grad or weight.requires_grad:
        return None
    if x.stride(1) != 1 and x.shape[1] > 1:
        return None
    return _sums(x, weight, votes) if _wanted(x) and readable(x, weight) and _rounds_as_torch() else None


def _wanted(x: Tensor) -> bool:
    """The bits are torch's, so it is used wherever nobody is against it: if it is there, or the sum is so large that
    building it pays at once."""
    return enabled() or (undecided() and (in_use() or x.numel() >= _WORTH_A_BUILD) and available())


def _sums(x: Tensor, weight: Tensor, votes: bool) -> tuple[Tensor, Tensor | None]:
    """Coordinates are shared out among torch's threads: each is added up by one."""
    library, (clients, size) = functions(), x.shape
    out, tally, weight = x.new_zeros(size), x.new_zeros(size) if votes else None, weight.contiguous()

    def add(start: int, end: int) -> None:
        there = (None if t is None else t.data_ptr() + 4 * start for t in (out, tally))
        library.accord_sums(x.data_ptr() + 4 * start, clients, end - start, x.stride(0), weight.data_ptr(), *there)

    count = max(1, min(torch.get_num_threads(), x.numel() // _WORTH_A_THREAD))
    bounds = [size * number // count for number in range(count + 1)]
    others = [threading.Thread(target=add, args=part) for part in pairwise(bounds[1:])]
    for other in others:
        other.start()
    add(0, bounds[1])
    for other in others:
        other.join()
    return out, tally


@functools.cache
def _rounds_as_torch() -> bool:
    """Whether both round a multiply-add once, or both twice. The compiler has all of the processor's instructions;
    torch may be held to fewer (`ATEN_CPU_CAPABILITY=default`), and then a masked sum would differ from an unmasked
    one."""
    # in float32, whatever torch's default is; the square has a digit more than that; 67: whole vectors and a rest
    x = torch.full((2, 67), 1 + 2.0**-12, dtype=torch.float32, device="cpu")
    weight = x.new_tensor([[-1.0], [1 + 2.0**-12]])
    theirs = x.new_zeros(67).addcmul_(x[0], weight[0]).addcmul_(x[1], weight[1])
    return torch.equal(_sums(x, weight, votes=False)[0], theirs)
