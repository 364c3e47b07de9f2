"""A linear layer of many lanes, each with weights of its own, and the ReLU after it, on CUDA: a kernel each forwards,
back to the weights and back to the input, with bias and ReLU on the way.

Batches are small, so reading weights and writing their gradients is what takes time; torch's batched products read and
write more than once. Products are of three TF32 parts each, which come to float32's precision, or of one where torch is
allowed TF32. How sums are cut depends on one lane's shape alone, so a lane's bits do not depend on the others.
"""

import functools
from types import SimpleNamespace

import torch
from torch import Tensor

_ROWS, _OUTPUTS, _INPUTS = 64, 64, 64  # of a program, at most


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """`[L, N, O]` of `x: [L, N, I]`, `weight: [L, O, I]` and `bias: [L, O]`; lanes of weights may lie apart."""
    lanes, rows, inputs = x.shape
    outputs = weight.shape[1]
    y = x.new_empty(lanes, rows, outputs)
    n, o, i = _block(rows, 32), _block(outputs, 32), _block(inputs, _INPUTS)
    _kernels().forward[lanes, -(-outputs // o), -(-rows // n)](
        *(x, weight, weight if bias is None else bias, y, weight.stride(0), 0 if bias is None else bias.stride(0)),
        *(rows, inputs, outputs, bias is not None, relu, _precision(), n, o, i),
    )
    return y


def weight_gradients(x: Tensor, y: Tensor | None, g: Tensor, into: Tensor, into_bias: Tensor | None) -> None:
    """Writes the gradients of weights and bias to places whose lanes may lie apart. `y` is the output, if a ReLU was
    applied to it."""
    lanes, rows, inputs = x.shape
    outputs = g.shape[2]
    n, o, i = _block(rows, 32), _block(outputs, _OUTPUTS), _block(inputs, _INPUTS)
    _kernels().weight_gradients[lanes, -(-outputs // o), -(-inputs // i)](
        *(x, g if y is None else y, g, into, into if into_bias is None else into_bias),
        *(into.stride(0), 0 if into_bias is None else into_bias.stride(0)),
        *(rows, inputs, outputs, into_bias is not None, y is not None, _precision(), n, o, i),
    )


def input_gradient(weight: Tensor, y: Tensor | None, g: Tensor) -> Tensor:
    """`[L, N, I]`."""
    (lanes, rows, outputs), inputs = g.shape, weight.shape[2]
    dx = g.new_empty(lanes, rows, inputs)
    n, o, i = _block(rows, 32), _block(outputs, _OUTPUTS), _block(inputs, 32)
    _kernels().input_gradient[lanes, -(-inputs // i), -(-rows // n)](
        *(weight, g if y is None else y, g, dx, weight.stride(0)),
        *(rows, inputs, outputs, y is not None, _precision(), n, o, i),
    )
    return dx


def _block(number: int, most: int) -> int:
    """A power of two that holds so many, but no more than `most` and no fewer than a matrix product takes."""
    return max(16, min(most, 1 << (number - 1).bit_length()))


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


@functools.cache
def _kernels() -> SimpleNamespace:
    import triton
    import triton.language as tl

    @triton.jit
    def forward(  # type: ignore[no-untyped-def]
        x, weight, bias, y, weight_lane, bias_lane, rows, inputs, outputs,
        BIAS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
        N: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
    ):  # fmt: skip
        lane = tl.program_id(0).to(tl.int64)
        o, n = tl.program_id(1) * OUT + tl.arange(0, OUT), tl.program_id(2) * N + tl.arange(0, N)
        x += lane * rows * inputs
        weight += lane * weight_lane
        total = tl.zeros((N, OUT), dtype=tl.float32)
        for first in range(0, inputs, IN):
            i = first + tl.arange(0, IN)
            here = (i < inputs)[None, :]
            seen = tl.load(x + n[:, None] * inputs + i[None, :], mask=(n < rows)[:, None] & here, other=0.0)
            w = tl.load(weight + o[:, None] * inputs + i[None, :], mask=(o < outputs)[:, None] & here, other=0.0)
            total = tl.dot(seen, tl.trans(w), total, input_precision=PRECISION)
        if BIAS:
            total += tl.load(bias + lane * bias_lane + o, mask=o < outputs, other=0.0)[None, :]
        if RELU:
            total = tl.where(total <= 0, 0.0, total)  # NaN stays NaN
        inside = (n < rows)[:, None] & (o < outputs)[None, :]
        tl.store(y + (lane * rows + n[:, None]) * outputs + o[None, :], total, mask=inside)

    @triton.jit
    def weight_gradients(  # type: ignore[no-untyped-def]
        x, y, g, into, into_bias, into_lane, bias_lane, rows, inputs, outputs,
        BIAS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
        N: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
    ):  # fmt: skip
        lane = tl.program_id(0).to(tl.int64)
        o, i = tl.program_id(1) * OUT + tl.arange(0, OUT), tl.program_id(2) * IN + tl.arange(0, IN)
        x += lane * rows * inputs
        total = tl.zeros((OUT, IN), dtype=tl.float32)
        summed = tl.zeros((OUT,), dtype=tl.float32)
        for first in range(0, rows, N):
            n = first + tl.arange(0, N)
            at = (lane * rows + n[:, None]) * outputs + o[None, :]
            inside = (n < rows)[:, None] & (o < outputs)[None, :]
            value = tl.load(g + at, mask=inside, other=0.0)
            if RELU:
                value = tl.where(tl.load(y + at, mask=inside, other=0.0) <= 0, 0.0, value)
            here = (n < rows)[:, None] & (i < inputs)[None, :]
            seen = tl.load(x + n[:, None] * inputs + i[None, :], mask=here, other=0.0)
            total = tl.dot(tl.trans(value), seen, total, input_precision=PRECISION)
            summed += tl.sum(value, 0)
        inside = (o < outputs)[:, None] & (i < inputs)[None, :]
        tl.store(into + lane * into_lane + o[:, None] * inputs + i[None, :], total, mask=inside)
        if BIAS and tl.program_id(2) == 0:
            tl.store(into_bias + lane * bias_lane + o, summed, mask=o < outputs)

    @triton.jit
    def input_gradient(  # type: ignore[no-untyped-def]
        weight, y, g, dx, weight_lane, rows, inputs, outputs,
        RELU: tl.constexpr, PRECISION: tl.constexpr, N: tl.constexpr, OUT: tl.constexpr, IN: tl.constexpr,
    ):  # fmt: skip
        lane = tl.program_id(0).to(tl.int64)
        i, n = tl.program_id(1) * IN + tl.arange(0, IN), tl.program_id(2) * N + tl.arange(0, N)
        weight += lane * weight_lane
        total = tl.zeros((N, IN), dtype=tl.float32)
        for first in range(0, outputs, OUT):
            o = first + tl.arange(0, OUT)
            at = (lane * rows + n[:, None]) * outputs + o[None, :]
            inside = (n < rows)[:, None] & (o < outputs)[None, :]
            value = tl.load(g + at, mask=inside, other=0.0)
            if RELU:
                value = tl.where(tl.load(y + at, mask=inside, other=0.0) <= 0, 0.0, value)
            here = (o < outputs)[:, None] & (i < inputs)[None, :]
            w = tl.load(weight + o[:, None] * inputs + i[None, :], mask=here, other=0.0)
            total = tl.dot(value, w, total, input_precision=PRECISION)
        here = (n < rows)[:, None] & (i < inputs)[None, :]
        tl.store(dx + (lane * rows + n[:, None]) * inputs + i[None, :], total, mask=here)

    kernels = (forward, weight_gradients, input_gradient)
    return SimpleNamespace(**{kernel.__name__: kernel for kernel in kernels})
