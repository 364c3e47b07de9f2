"""Convolution of many lanes as matrix products.

Under vmap a convolution whose weights differ by lane becomes a grouped one, which cuDNN computes group by group, in its
own memory layout and back. For the small convolutions of small models it is faster to lay every patch out as a row and
multiply.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class Unfolded(TorchFunctionMode):
    """Within it ordinary 2-D convolutions of batches are matrix products; other ones stay what they are."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.conv2d:
            return convolve(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def convolve(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | str = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.conv2d`, its arguments and its result."""
    size = weight.shape[-2:]
    step, edge = _pair(stride), edges(padding, size)
    if (
        input.ndim != 4
        or groups != 1
        or _pair(dilation) != (1, 1)
        or edge is None
        or (padding == "same" and step != (1, 1))
    ):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    if any(edge):
        input = F.pad(input, (edge[1], edge[1], edge[0], edge[0]))
    patches = input.unfold(2, size[0], step[0]).unfold(3, size[1], step[1])  # [B, C, H, W, k, k]
    batch, channels, height, width = patches.shape[:4]
    rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(batch, height * width, channels * size[0] * size[1])
    # The weights are repeated for every sample so that their gradient is a product for each, then a sum: as a single
    # product it would be one long row of additions, with nothing for most of the device to do.
    output = torch.bmm(rows, weight.flatten(1).t().expand(batch, -1, -1))
    if bias is not None:
        # Repeated too, so that its gradient is summed sample by sample: the order in which CUDA adds up a few long sums
        # depends on how many there are, and a lane's bits must not depend on the other lanes.
        output = output + bias.expand(batch, 1, -1)
    return output.view(batch, height, width, -1).permute(0, 3, 1, 2)


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def edges(padding: int | tuple[int, ...] | str, size: tuple[int, ...]) -> tuple[int, int] | None:
    """Rows and columns of zeros on each side; None where the sides would differ."""
    if padding == "valid":
        return 0, 0
    if padding == "same":
        return (size[0] // 2, size[1] // 2) if size[0] % 2 and size[1] % 2 else None
    return None if isinstance(padding, str) else _pair(padding)
