"""Two sums over clients in one pass over their updates: the weighted sum and the votes on its sign."""

from torch import Tensor

from accord.kernels.block import takes
from accord.kernels.library import loaded


def sums(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """`x: [K, P]` and `weight: [K, 1]` to the sum of weight * x and the sum of sign(x), both `[P]`, with the bits of torch's addcmul and
    add. None where the compiled library was not chosen, is not there or cannot read these."""
    if x.ndim != 2 or weight.shape != (x.shape[0], 1) or x.requires_grad or weight.requires_grad or not takes(x, weight):
        return None
    if x.stride(1) != 1 and x.shape[1] > 1:
        return None
    library = loaded().functions
    assert library is not None
    out, tally, weight = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1]), weight.contiguous()
    library.accord_sums(x.data_ptr(), *x.shape, x.stride(0), weight.data_ptr(), out.data_ptr(), tally.data_ptr())
    return out, tally
