"""Two sums over clients in one pass over their updates: the weighted sum and the votes on its sign."""

import functools

import torch
from torch import Tensor

from accord.kernels.block import takes
from accord.kernels.library import loaded


def sums(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """`x: [K, P]` and `weight: [K, 1]` to the sum of weight * x and the sum of sign(x), both `[P]`, with the bits of
    torch's addcmul and add. None where the compiled library was not chosen, is not there, cannot read these or does not
    round as torch does."""
    if (
        x.ndim != 2
        or weight.shape != (x.shape[0], 1)
        or x.requires_grad
        or weight.requires_grad
        or not takes(x, weight)
    ):
        return None
    if x.stride(1) != 1 and x.shape[1] > 1:
        return None
    return _sums(x, weight) if _rounds_as_torch() else None


def _sums(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    library = loaded().functions
    assert library is not None
    out, tally, weight = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1]), weight.contiguous()
    library.accord_sums(x.data_ptr(), *x.shape, x.stride(0), weight.data_ptr(), out.data_ptr(), tally.data_ptr())
    return out, tally


@functools.cache
def _rounds_as_torch() -> bool:
    """Whether both round a multiply-add once, or both twice. The compiler has all of the processor's instructions;
    torch may be held to fewer (`ATEN_CPU_CAPABILITY=default`), and then a masked sum would differ from an unmasked
    one."""
    x = torch.full((2, 67), 1 + 2.0**-12)  # its square has a digit more than float32; 67: whole vectors and a rest
    weight = torch.tensor([[-1.0], [1 + 2.0**-12]])
    theirs = x.new_zeros(67).addcmul_(x[0], weight[0]).addcmul_(x[1], weight[1])
    return torch.equal(_sums(x, weight)[0], theirs)
