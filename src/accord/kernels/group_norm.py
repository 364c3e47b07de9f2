"""GroupNorm of pictures whose channels lie innermost, with what is added to it and the ReLU after it, as one operation
on CUDA.

torch's own GroupNorm reads channels one after another, and so turns pictures around before and after each convolution
that has them innermost. `group_norm.cu` has one kernel each way.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from accord.kernels.cuda import Kernels, fields_as_constants

SOURCE = Path(__file__).with_suffix(".cu")
_THREADS = 1024  # of a block, at most
_EACH = 8  # pixels whose four channels a thread holds in registers
_TOGETHER = 4  # channels of a thread


@dataclass(frozen=True)
class Shape:
    """Of pictures `[batch, channels, height, width]`, channels innermost; `pixels` are those of one of them."""

    channels: int
    pixels: int
    groups: int
    relu: bool = False
    more: bool = False  # something is added before the ReLU
    narrow: bool = False  # pictures are bfloat16, else float32

    @property
    def across(self) -> int:
        """Threads that share a pixel."""
        return self.channels // self.groups // _TOGETHER

    @property
    def down(self) -> int:
        """Pixels that a block's threads are at, at a time."""
        return min(self.pixels, _THREADS // self.across)

    @property
    def fits(self) -> bool:
        """Whether there are kernels for it: channels are read by fours, and a group lies in a block's registers."""
        by_fours = self.channels % (self.groups * _TOGETHER) == 0 and self.across <= _THREADS
        return by_fours and self.pixels <= _EACH * self.down


def takes(x: Tensor) -> bool:
    """Whether pictures of this kind have kernels, if their shape fits."""
    return x.is_cuda and x.dtype in (torch.float32, torch.bfloat16)


def forward(
    x: Tensor, weight: Tensor, bias: Tensor, more: Tensor | None, eps: float, shape: Shape
) -> tuple[Tensor, Tensor]:
    """The output, and mean and 1 / deviation of every group, `[batch, groups, 2]`."""
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, more) if t is not None)
    y, statistics = torch.empty_like(x), torch.empty(len(x), shape.groups, 2, device=x.device)
    _launch("forward", shape, len(x), x, weight, bias, more, y, statistics, eps)
    return y, statistics


def backward(
    x: Tensor, y: Tensor, g: Tensor, weight: Tensor, statistics: Tensor, shape: Shape
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradients of the input, of what was added, and of weight and bias, `[2, channels]`."""
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, y, g))
    dx, dmore = torch.empty_like(x), torch.empty_like(x) if shape.more else None
    shares = torch.empty(len(x), 2, shape.channels, device=x.device)
    _launch("backward", shape, len(x), x, y, g, weight, statistics, dx, dmore, shares)
    return dx, dmore, shares.sum(0)


def _launch(name: str, shape: Shape, batch: int, first: Tensor, *given: Tensor | float | None) -> None:
    kernels(shape, first.device).launch(name, (batch * shape.groups, 1), shape.down * shape.across, first, *given)


def constants(shape: Shape) -> dict[str, int]:
    """What `group_norm.cu` is compiled with."""
    return {**fields_as_constants(shape), "DOWN": shape.down}


@functools.cache
def kernels(shape: Shape, device: torch.device) -> Kernels:
    """Compiled when they are first asked for."""
    with torch.cuda.device(device):
        return Kernels(SOURCE, constants(shape))
