"""What a linear layer of many lanes does beside its matrix products, on CUDA: bias and ReLU in one pass, and in one
pass back."""

import functools
from types import SimpleNamespace

from torch import Tensor

_ROWS, _COLUMNS = 16, 64


def finish_(y: Tensor, bias: Tensor | None, relu: bool) -> None:
    """Adds the bias `[L, O]` to `y: [L, N, O]`, and applies ReLU, in place."""
    lanes, rows, columns = y.shape
    grid = (lanes, -(-rows // _ROWS), -(-columns // _COLUMNS))
    _kernels().finish[grid](
        y,
        y if bias is None else bias,
        0 if bias is None else bias.stride(0),
        rows,
        columns,
        bias is not None,
        relu,
        _ROWS,
        _COLUMNS,
    )


def gradient_before(y: Tensor, g: Tensor, relu: bool, into_bias: Tensor | None) -> Tensor:
    """The gradient before ReLU, given the output and its gradient; the bias's is written to `into_bias`, whose lanes
    may lie apart."""
    lanes, rows, columns = y.shape
    before = g.new_empty(g.shape) if relu else g
    _kernels().gradient_before[lanes, -(-columns // _COLUMNS)](
        *(y, g, before, g if into_bias is None else into_bias, 0 if into_bias is None else into_bias.stride(0)),
        *(rows, columns, into_bias is not None, relu, _ROWS, _COLUMNS),
    )
    return before


@functools.cache
def _kernels() -> SimpleNamespace:
    import triton
    import triton.language as tl

    @triton.jit
    def finish(  # type: ignore[no-untyped-def]
        y,
        bias,
        bias_lane,
        rows,
        columns,
        BIAS: tl.constexpr,
        RELU: tl.constexpr,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
    ):
        lane = tl.program_id(0).to(tl.int64)
        row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
        at = (lane * rows + row[:, None]) * columns + column[None, :]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        value = tl.load(y + at, mask=inside)
        if BIAS:
            value += tl.load(bias + lane * bias_lane + column, mask=column < columns)[None, :]
        if RELU:
            value = tl.where(value <= 0, 0.0, value)  # NaN stays NaN
        tl.store(y + at, value, mask=inside)

    @triton.jit
    def gradient_before(  # type: ignore[no-untyped-def]
        y, g, before, into_bias, bias_lane, rows, columns,
        BIAS: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    ):  # fmt: skip
        lane = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for first in range(0, rows, ROWS):
            row = first + tl.arange(0, ROWS)
            at = (lane * rows + row[:, None]) * columns + column[None, :]
            inside = (row < rows)[:, None] & (column < columns)[None, :]
            value = tl.load(g + at, mask=inside, other=0.0)
            if RELU:
                value = tl.where(tl.load(y + at, mask=inside, other=0.0) <= 0, 0.0, value)
                tl.store(before + at, value, mask=inside)
            total += value
        if BIAS:
            tl.store(into_bias + lane * bias_lane + column, tl.sum(total, 0), mask=column < columns)

    return SimpleNamespace(finish=finish, gradient_before=gradient_before)
