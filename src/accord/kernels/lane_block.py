"""Convolution, bias, ReLU and 2 x 2 max-pool of many lanes as one operation on CUDA, each lane with weights of its own.

By torch's own kernels a lane's convolution is a copy of every patch, a matrix product, and a pass over memory each for
bias, ReLU and pooling; backwards the same again. Here each is a matrix product whose operands are picked from the
images as they are needed. Products are of three TF32 parts each, which come to float32's precision. No program adds
over more than one lane, and how sums are cut depends on one lane's shapes alone, so a lane's bits do not depend on the
others. Triton comes with torch's CUDA builds.
"""

import functools
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor

# terms of a matrix product taken at a time; with half as many for the weights' gradients, other sizes were slower
_DEPTH = 32
# `num_stages=1`: loading the next operands while a product is computed was slower, for the largest blocks three times


@dataclass(frozen=True)
class Sizes:
    """The shapes of one block: images `[lanes, batch, channels, height, width]`, kernels `[lanes, kernels, channels,
    high, wide]`."""

    lanes: int
    batch: int
    channels: int
    height: int
    width: int
    kernels: int
    high: int
    wide: int
    top: int  # rows of zeros above
    left: int

    @property
    def pooled(self) -> tuple[int, int]:
        return (self.height + 2 * self.top - self.high + 1) // 2, (self.width + 2 * self.left - self.wide + 1) // 2

    @property
    def spread(self) -> tuple[int, int]:
        """The convolution's pixels with a kernel's reach of zeros around them."""
        rows, columns = self.pooled
        return (
            max(2 * rows + 2 * self.high - 2, self.height + self.top + self.high - 1),
            max(2 * columns + 2 * self.wide - 2, self.width + self.left + self.wide - 1),
        )


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, s: Sizes) -> tuple[Tensor, Tensor]:
    """The pooled output `[lanes, batch, kernels, *pooled]`, and which pixel of its window each value came from."""
    out = x.new_empty(s.lanes, s.batch, s.kernels, *s.pooled)
    which = torch.empty_like(out, dtype=torch.uint8)
    pixels = s.pooled[0] * s.pooled[1]
    block_p, block_k = _block(pixels, 64), _block(s.kernels, 32)
    blocks = -(-s.batch * pixels // block_p)  # of a lane's samples one after another: few have pixels for whole blocks
    _kernels().forward[s.lanes * blocks, -(-s.kernels // block_k)](
        *(
            x,
            weight,
            weight if bias is None else bias,
            out,
            which,
            weight.stride(0),
            0 if bias is None else bias.stride(0),
        ),
        *(blocks, s.batch, s.channels, s.height, s.width, s.kernels, *s.pooled, s.top, s.left),
        *(s.high, s.wide, bool(s.top or s.left), bias is not None, block_p, block_k, _DEPTH),
        num_stages=1,
        num_warps=4 if block_p > 16 else 1,  # of a few pixels, one warp takes two fifths of the time that four take
    )
    return out, which


def spread(which: Tensor, g: Tensor, s: Sizes) -> Tensor:
    """The gradient before pooling and ReLU, `[lanes, batch, kernels, *s.spread]`: each value at the pixel that won,
    with zeros around, so that what reads it need not look for edges."""
    wide = g.new_empty(s.lanes, s.batch, s.kernels, *s.spread)
    pixels = s.spread[0] * s.spread[1]
    _kernels().spread[s.lanes * s.batch * s.kernels, -(-pixels // 256)](
        g, which, wide, *s.pooled, *s.spread, s.high, s.wide, 256
    )
    return wide


def weight_gradients(x: Tensor, wide: Tensor, s: Sizes, into: Tensor, into_bias: Tensor | None) -> None:
    """The gradients of weights and bias, written to tensors of their shapes, whose lanes may lie apart. `wide` is what
    `spread` gives."""
    taps, pixels = s.channels * s.high * s.wide, 4 * s.pooled[0] * s.pooled[1]
    # Each program adds up a few samples; a second kernel adds what they come to. More parts keep the device busy, fewer
    # take less memory.
    samples = max(1, (256 if s.kernels * taps <= 4096 else 2048) // pixels)
    parts = -(-s.batch // samples)
    partial = x.new_empty(s.lanes, parts, s.kernels * (taps + 1))  # the bias's gradients at the end
    block_k, block_t = _block(s.kernels, 64), _block(taps, 64)
    _kernels().weight_gradients[s.lanes * parts, -(-s.kernels // block_k), -(-taps // block_t)](
        *(x, wide, partial, parts, samples),
        *(s.batch, s.channels, s.height, s.width, s.kernels, *s.pooled, *s.spread, s.top, s.left),
        *(s.high, s.wide, bool(s.top or s.left), block_k, block_t, _DEPTH // 2),
        num_stages=1,
        num_warps=2,
    )
    _kernels().add_parts[s.lanes, -(-s.kernels * (taps + 1) // 512)](
        *(
            partial,
            into,
            into if into_bias is None else into_bias,
            into.stride(0),
            0 if into_bias is None else into_bias.stride(0),
        ),
        *(parts, s.kernels, taps, into_bias is not None, 512),
    )


def image_gradient(weight: Tensor, wide: Tensor, s: Sizes) -> Tensor:
    """The gradient of the images. `wide` is what `spread` gives."""
    dx = wide.new_empty(s.lanes, s.batch, s.channels, s.height, s.width)
    pixels = s.height * s.width
    block_p, block_c = _block(pixels, 64), _block(s.channels, 32)
    blocks = -(-s.batch * pixels // block_p)
    _kernels().image_gradient[s.lanes * blocks, -(-s.channels // block_c)](
        *(weight, wide, dx, weight.stride(0)),
        *(blocks, s.batch, s.channels, s.height, s.width, s.kernels, *s.spread, s.top, s.left),
        *(s.high, s.wide, block_p, block_c, _DEPTH),
        num_stages=1,
    )
    return dx


def _block(number: int, most: int) -> int:
    """A power of two that holds so many, but no more than `most` and no fewer than a matrix product takes."""
    return max(16, min(most, 1 << (number - 1).bit_length()))


@functools.cache
def _kernels() -> SimpleNamespace:
    import triton
    import triton.language as tl

    @triton.jit
    def forward(  # type: ignore[no-untyped-def]
        x, weight, bias, out, which, weight_lane, bias_lane,
        blocks, batch, channels, height, width, kernels, rows, columns, above, before,
        HIGH: tl.constexpr, WIDE: tl.constexpr, EDGE: tl.constexpr, BIAS: tl.constexpr,
        P: tl.constexpr, K: tl.constexpr, T: tl.constexpr,
    ):  # fmt: skip
        lane = (tl.program_id(0) // blocks).to(tl.int64)
        p = tl.program_id(0) % blocks * P + tl.arange(0, P)
        sample, pixel = p // (rows * columns), p % (rows * columns)
        k = tl.program_id(1) * K + tl.arange(0, K)
        real, there, taps = sample < batch, k < kernels, channels * HIGH * WIDE
        top, left = pixel // columns * 2 - above, pixel % columns * 2 - before
        corner = sample * (channels * height * width) + top * width + left
        x += lane * batch * channels * height * width
        weight += lane * weight_lane
        a = tl.zeros((K, P), dtype=tl.float32)
        b = tl.zeros((K, P), dtype=tl.float32)
        c = tl.zeros((K, P), dtype=tl.float32)
        d = tl.zeros((K, P), dtype=tl.float32)
        for first in range(0, taps, T):
            t = first + tl.arange(0, T)
            i, j = t // WIDE % HIGH, t % WIDE
            tap = t // (HIGH * WIDE) * height * width + i * width + j
            w = tl.load(weight + (k[:, None] * taps + t[None, :]), mask=there[:, None] & (t < taps)[None, :], other=0.0)
            inside = (t < taps)[:, None] & real[None, :]
            upper, lower, near, far = inside, inside, inside, inside
            if EDGE:
                row, column = i[:, None] + top[None, :], j[:, None] + left[None, :]
                upper, lower = inside & (row >= 0) & (row < height), inside & (row >= -1) & (row < height - 1)
                near, far = (column >= 0) & (column < width), (column >= -1) & (column < width - 1)
            at = x + (tap[:, None] + corner[None, :])
            a = tl.dot(w, tl.load(at, mask=upper & near, other=0.0), a, input_precision="tf32x3")
            b = tl.dot(w, tl.load(at + 1, mask=upper & far, other=0.0), b, input_precision="tf32x3")
            c = tl.dot(w, tl.load(at + width, mask=lower & near, other=0.0), c, input_precision="tf32x3")
            d = tl.dot(w, tl.load(at + width + 1, mask=lower & far, other=0.0), d, input_precision="tf32x3")
        if BIAS:
            more = tl.load(bias + lane * bias_lane + k, mask=there, other=0.0)[:, None]
            a += more
            b += more
            c += more
            d += more
        best, place = a, tl.zeros((K, P), dtype=tl.int32)
        take = (b > best) | (b != b)  # the first of equals wins, and NaN beats all: as torch has it
        best, place = tl.where(take, b, best), tl.where(take, 1, place)
        take = (c > best) | (c != c)
        best, place = tl.where(take, c, best), tl.where(take, 2, place)
        take = (d > best) | (d != d)
        best, place = tl.where(take, d, best), tl.where(take, 3, place)
        place = tl.where(best <= 0, 4, place)  # ReLU lets no gradient through
        best = tl.where(best <= 0, 0.0, best)
        at = ((lane * batch + sample)[None, :] * kernels + k[:, None]) * rows * columns + pixel[None, :]
        inside = there[:, None] & real[None, :]
        tl.store(out + at, best, mask=inside)
        tl.store(which + at, place.to(tl.uint8), mask=inside)

    @triton.jit
    def spread(g, which, wide, rows, columns, high, across, HIGH: tl.constexpr, WIDE: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
        plane = tl.program_id(0).to(tl.int64)
        n = tl.program_id(1) * N + tl.arange(0, N)
        y, z = n // across - (HIGH - 1), n % across - (WIDE - 1)
        inside = (y >= 0) & (y < 2 * rows) & (z >= 0) & (z < 2 * columns)
        at = plane * rows * columns + (y >> 1) * columns + (z >> 1)
        place = tl.load(which + at, mask=inside, other=4).to(tl.int32)
        value = tl.load(g + at, mask=inside, other=0.0)
        tl.store(
            wide + plane * high * across + n,
            tl.where(place == (y & 1) * 2 + (z & 1), value, 0.0),
            mask=n < high * across,
        )

    @triton.jit
    def weight_gradients(  # type: ignore[no-untyped-def]
        x, wide, partial, parts, samples,
        batch, channels, height, width, kernels, rows, columns, high, across, above, before,
        HIGH: tl.constexpr, WIDE: tl.constexpr, EDGE: tl.constexpr, K: tl.constexpr, T: tl.constexpr, Q: tl.constexpr,
    ):  # fmt: skip
        program = tl.program_id(0).to(tl.int64)
        lane, part = program // parts, (program % parts).to(tl.int32)
        k = tl.program_id(1) * K + tl.arange(0, K)
        t = tl.program_id(2) * T + tl.arange(0, T)
        taps, pixels = channels * HIGH * WIDE, rows * columns * 4
        i, j = t // WIDE % HIGH - above, t % WIDE - before
        tap = t // (HIGH * WIDE) * height * width + i * width + j
        total = tl.zeros((K, T), dtype=tl.float32)
        summed = tl.zeros((K,), dtype=tl.float32)
        blocks = tl.cdiv(pixels, Q)
        begin, end = part * samples, tl.minimum((part + 1) * samples, batch)
        for block in range(begin * blocks, end * blocks):  # the convolution's pixels, of one sample after another
            sample = lane * batch + block // blocks
            q = block % blocks * Q + tl.arange(0, Q)
            y, z = q // (columns * 2), q % (columns * 2)
            at = k[:, None] * (high * across) + ((y + HIGH - 1) * across + z + WIDE - 1)[None, :]
            plane = wide + sample * kernels * high * across
            value = tl.load(plane + at, mask=(k < kernels)[:, None] & (q < pixels)[None, :], other=0.0)
            inside = (t < taps)[:, None] & (q < pixels)[None, :]
            if EDGE:
                row, column = i[:, None] + y[None, :], j[:, None] + z[None, :]
                inside = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            image = x + sample * channels * height * width
            seen = tl.load(image + (tap[:, None] + (y * width + z)[None, :]), mask=inside, other=0.0)
            total = tl.dot(value, tl.trans(seen), total, input_precision="tf32x3")
            summed += tl.sum(value, 1)
        partial += program * kernels * (taps + 1)
        tl.store(partial + k[:, None] * taps + t[None, :], total, mask=(k < kernels)[:, None] & (t < taps)[None, :])
        if tl.program_id(2) == 0:
            tl.store(partial + kernels * taps + k, summed, mask=k < kernels)

    @triton.jit
    def add_parts(  # type: ignore[no-untyped-def]
        partial, into, into_bias, into_lane, bias_lane, parts, kernels, taps, BIAS: tl.constexpr, N: tl.constexpr
    ):
        lane = tl.program_id(0).to(tl.int64)
        n = tl.program_id(1) * N + tl.arange(0, N)
        size, weights = kernels * (taps + 1), kernels * taps
        total = tl.zeros((N,), dtype=tl.float32)
        for part in range(parts):
            total += tl.load(partial + (lane * parts + part) * size + n, mask=n < size, other=0.0)
        tl.store(into + lane * into_lane + n, total, mask=n < weights)
        if BIAS:
            tl.store(into_bias + lane * bias_lane + n - weights, total, mask=(n >= weights) & (n < size))

    @triton.jit
    def image_gradient(  # type: ignore[no-untyped-def]
        weight, wide, dx, weight_lane,
        blocks, batch, channels, height, width, kernels, high, across, above, before,
        HIGH: tl.constexpr, WIDE: tl.constexpr, P: tl.constexpr, C: tl.constexpr, U: tl.constexpr,
    ):  # fmt: skip
        lane = (tl.program_id(0) // blocks).to(tl.int64)
        p = tl.program_id(0) % blocks * P + tl.arange(0, P)
        sample, pixel = p // (height * width), p % (height * width)
        c = tl.program_id(1) * C + tl.arange(0, C)
        real, there = sample < batch, c < channels
        row, column = pixel // width + above + HIGH - 1, pixel % width + before + WIDE - 1
        corner = sample * (kernels * high * across) + row * across + column
        weight += lane * weight_lane
        wide += lane * batch * kernels * high * across
        total = tl.zeros((C, P), dtype=tl.float32)
        for first in range(0, kernels * HIGH * WIDE, U):  # every tap of every kernel
            u = first + tl.arange(0, U)
            k, tap = u // (HIGH * WIDE), u % (HIGH * WIDE)
            back = k * (high * across) - tap // WIDE * across - tap % WIDE
            value = tl.load(
                wide + (back[:, None] + corner[None, :]), mask=(k < kernels)[:, None] & real[None, :], other=0.0
            )
            at = (c * (HIGH * WIDE))[:, None] + (k * (channels * HIGH * WIDE) + tap)[None, :]
            w = tl.load(weight + at, mask=there[:, None] & (k < kernels)[None, :], other=0.0)
            total = tl.dot(w, value, total, input_precision="tf32x3")
        at = ((lane * batch + sample)[None, :] * channels + c[:, None]) * height * width + pixel[None, :]
        tl.store(dx + at, total, mask=there[:, None] & real[None, :])

    kernels = (forward, spread, weight_gradients, add_parts, image_gradient)
    return SimpleNamespace(**{kernel.__name__: kernel for kernel in kernels})
