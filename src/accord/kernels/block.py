"""Convolution, bias, ReLU and max-pool as one differentiable operator: the compiled kernel where it fits, torch where
it does not."""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.kernels.library import enabled, functions

Padding = int | Sequence[int] | str


def conv_relu_pool(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding = 0, pool: int = 2) -> Tensor:
    """`max_pool2d(relu(conv2d(x, weight, bias, padding=padding)), pool)`, `x: [N, C, H, W]`, differentiable any number
    of times."""
    padding = padding if isinstance(padding, int | str) else tuple(padding)
    shapes = (tuple(x.shape), tuple(weight.shape), None if bias is None else tuple(bias.shape))
    sizes = block_sizes(*shapes, padding) if pool == 2 and takes(x, weight, bias) else None
    if sizes is None:
        return _plain(x, weight, bias, padding, pool)
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return _ConvReluPool.apply(x, weight, bias, padding, sizes)
    out, _ = _forward(x, weight, bias, sizes, places=False)
    return _plain(x, weight, bias, padding) if out is None else out


def takes(*tensors: Tensor | None) -> bool:
    """Whether the kernel was chosen and can read these: plain float32 tensors on the CPU, with nobody looking on who
    must see every step of the computation (vmap and its kin, the compiler, a tracer, autocast, a dispatch mode)."""
    return enabled() and readable(*tensors)


def readable(*tensors: Tensor | None) -> bool:
    """The same, whether or not it was chosen."""
    return not _watched() and all(t is None or _plain_floats(t) for t in tensors)


def _plain_floats(t: Tensor) -> bool:
    return (
        t.dtype is torch.float32
        and type(t) in (Tensor, torch.nn.Parameter)
        and t.is_cpu
        and t.layout is torch.strided
        and not t.is_neg()
    )


def _watched() -> bool:
    return bool(
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state()
        or torch.is_autocast_enabled("cpu")
        or torch.autograd.forward_ad._current_level >= 0
    )


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding, pool: int = 2) -> Tensor:
    return F.max_pool2d(F.relu(F.conv2d(x, weight, bias, padding=padding)), pool)


@functools.lru_cache(maxsize=1024)
def block_sizes(
    x: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...] | None, padding: int | str | tuple[int, ...]
) -> Any:
    """The kernel's view of the shapes, or None where torch has an error to tell or numbers do not fit."""
    if len(x) != 4 or len(weight) != 4 or x[1] != weight[1] or 0 in (*x[1:], *weight):
        return None
    (n, c, h, w), (k, _, kh, kw) = x, weight
    if bias is not None and bias != (k,):
        return None
    if padding == "same":
        # an even kernel has its odd line of padding below and on the right
        top, left, oh, ow = (kh - 1) // 2, (kw - 1) // 2, h, w
    else:
        sides = (padding, padding) if isinstance(padding, int) else (0, 0) if isinstance(padding, str) else padding
        if len(sides) != 2 or min(sides) < 0 or (isinstance(padding, str) and padding != "valid"):
            return None
        top, left = sides
        oh, ow = h + 2 * top - kh + 1, w + 2 * left - kw + 1
    if min(oh, ow) < 2 or k >= 2**16 or max((oh + kh) * (ow + kw) * c, k * kh * (kw * c + 16)) >= 2**31:
        return None
    return (ctypes.c_int64 * 11)(n, c, h, w, k, kh, kw, top, left, oh, ow)


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, sizes: Any, places: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The pooled output, and where in each window the maximum was. None for the output if something read was not
    finite."""
    x, weight, bias = x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous()
    n, k, height, width = sizes[0], sizes[4], sizes[9] // 2, sizes[10] // 2
    out = x.new_empty(n, k, height, width)
    which = torch.empty(n * height * width * (-(-k // 8) * 8), dtype=torch.uint8) if places else None
    odd = functions().accord_block_forward(sizes, *map(address, (x, weight, bias, out, which)))
    return (None, None) if odd else (out, which)


def address(tensor: Tensor | None) -> int | None:
    """Where a tensor begins, as the library takes it; nowhere, if there is none."""
    return None if tensor is None else tensor.data_ptr()


class _ConvReluPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding, sizes: Any) -> Tensor:
        out, which = _forward(x, weight, bias, sizes, places=True)
        ctx.save_for_backward(x, weight, bias, which)
        ctx.padding, ctx.sizes = padding, sizes
        return _plain(x, weight, bias, padding) if out is None else out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, which = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        gradients = None
        # a gradient to be differentiated is torch's
        if which is not None and not torch.is_grad_enabled() and takes(g, x, weight):
            gradients = _backward(x, weight, which, g, ctx.sizes, wanted)
        return (*(gradients or _by_torch(x, weight, bias, ctx.padding, g, wanted)), None, None)


def _backward(
    x: Tensor, weight: Tensor, which: Tensor, g: Tensor, sizes: Any, wanted: Sequence[bool]
) -> list[Tensor | None] | None:
    """The gradients of x, weight and bias that are wanted; None if `g` was not finite."""
    x, weight, g = x.contiguous(), weight.contiguous(), g.contiguous()
    dx = torch.empty_like(x) if wanted[0] else None
    dw, db = torch.empty_like(weight), weight.new_empty(weight.shape[0])
    odd = functions().accord_block_backward(sizes, *map(address, (x, weight, which, g, dx, dw, db)))
    return None if odd else [dx, dw if wanted[1] else None, db if wanted[2] else None]


def _by_torch(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding, g: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The same by torch, as part of the graph if one is being made."""
    graph = torch.is_grad_enabled()
    if not graph:
        x, weight = x.detach().requires_grad_(wanted[0]), weight.detach().requires_grad_(wanted[1])
        bias = None if bias is None else bias.detach().requires_grad_(wanted[2])
    asked = [t for t, need in zip((x, weight, bias), wanted, strict=True) if need and t is not None]
    with torch.enable_grad():
        gradients = iter(torch.autograd.grad(_plain(x, weight, bias, padding), asked, g, create_graph=graph))
    return [next(gradients) if need else None for need in wanted]
