"""Convolution and bias of many lanes, and ReLU and 2 x 2 max-pool after them, as one operation on CUDA, each lane with
weights of its own.

By torch's own kernels a lane's convolution is a copy of every patch, a matrix product, and a pass over memory each for
bias, ReLU and pooling; backwards the same again. `lane_block.cu` has them in one kernel each: forwards, backwards to
the pictures, and backwards to the weights.
"""

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from accord.kernels.cuda import Int64, Kernels, fields_as_constants

_ROOM = 11_500  # floats of shared memory that a kernel takes: any device has 48 KiB
_MOST_TAPS = 49  # a thread's patch and sums are in registers
_MOST_OUTPUTS = 8  # of a thread at each of four pixels
_THREADS = 128  # of a program, about
_ADDED = 128  # coordinates whose parts one program adds up


@dataclass(frozen=True)
class Shape:
    """Of one block: images `[lanes, batch, channels, height, width]`, kernels `[lanes, kernels, channels, high,
    wide]`."""

    channels: int
    height: int
    width: int
    kernels: int
    high: int
    wide: int
    top: int  # rows of zeros above and below
    left: int
    relu: bool = True
    pool: bool = True

    @property
    def output(self) -> tuple[int, int]:
        """Rows and columns that come out."""
        rows, columns = self.height + 2 * self.top - self.high + 1, self.width + 2 * self.left - self.wide + 1
        return (rows // 2, columns // 2) if self.pool else (rows, columns)

    @property
    def taps(self) -> int:
        return self.high * self.wide

    @property
    def squares(self) -> tuple[int, int]:
        """Squares of 2 x 2 pixels of the convolution."""
        return self.output if self.pool else _halved(self.output)

    @property
    def squares_of_image(self) -> tuple[int, int]:
        return _halved((self.height, self.width))

    def reach(self, down: int, across: int) -> int:
        """Pixels that the taps at so many squares of 2 x 2 pixels see."""
        return (2 * down + self.high - 1) * (2 * across + self.wide - 1)

    @property
    def fits(self) -> bool:
        """Whether there are kernels for it: a channel with its zeros has to fit into shared memory, taps into
        registers."""
        if self.taps > _MOST_TAPS or min(self.output) < 1 or self.top >= self.high or self.left >= self.wide:
            return False
        seen = max(self.reach(*self.squares), self.reach(*self.squares_of_image))
        return seen + 2 * math.prod(self.output) <= _ROOM - _MOST_OUTPUTS * self.taps


def _halved(pixels: tuple[int, int]) -> tuple[int, int]:
    return -(-pixels[0] // 2), -(-pixels[1] // 2)


def aligned(x: Tensor, shape: Shape) -> Tensor:
    """The images in one piece of memory that begins where kernels can read it in groups of pixels."""
    x = x.contiguous()
    return x if x.data_ptr() % (4 * math.gcd(shape.width, 4)) == 0 else x.clone()


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> tuple[Tensor, Tensor]:
    """The output `[lanes, batch, kernels, *output]`, and which pixel of its window each value came from."""
    lanes, batch = x.shape[:2]
    assert x.data_ptr() == aligned(x, shape).data_ptr()
    out = x.new_empty(lanes, batch, shape.kernels, *shape.output)
    which = torch.empty_like(out, dtype=torch.uint8)
    cut = _forward_cut(shape)
    kernels(shape, x.device).launch(
        "forward",
        (lanes * -(-batch // cut.samples) * cut.tiles, -(-shape.kernels // cut.some)),
        cut.threads,
        *(x, weight, bias, out, which, Int64(weight.stride(0)), Int64(0 if bias is None else bias.stride(0)), batch),
    )
    return out, which


def image_gradient(weight: Tensor, g: Tensor, which: Tensor, shape: Shape) -> Tensor:
    """The gradient of the images, given that of the output and which pixels it came from."""
    lanes, batch = g.shape[:2]
    dx = g.new_empty(lanes, batch, shape.channels, shape.height, shape.width)
    cut = _backward_cut(shape)
    kernels(shape, g.device).launch(
        "image_gradient",
        (lanes * -(-batch // cut.samples) * cut.tiles, -(-shape.channels // cut.some)),
        cut.threads,
        *(weight, g, which, dx, Int64(weight.stride(0)), batch),
    )
    return dx


def weight_gradients(x: Tensor, g: Tensor, which: Tensor, shape: Shape, into: Tensor, into_bias: Tensor | None) -> None:
    """The gradients of weights and bias, written to tensors of their shapes, whose lanes may lie apart."""
    lanes, batch = x.shape[:2]
    cut = _weights_cut(shape)
    groups = -(-shape.kernels // cut.kernels) * (shape.channels // cut.channels)
    samples = max(2, -(-batch * groups // _PROGRAMS))
    parts = -(-batch // samples)
    size = shape.kernels * (shape.channels * shape.taps + 1)
    partial = x.new_empty(lanes, parts, size)
    compiled = kernels(shape, x.device)
    compiled.launch(
        "weight_gradients", (lanes * parts, groups), cut.threads, x, g, which, partial, batch, parts, samples
    )
    lane, bias_lane = Int64(into.stride(0)), Int64(0 if into_bias is None else into_bias.stride(0))
    compiled.launch("add_parts", (lanes, -(-size // _ADDED)), _ADDED, partial, into, into_bias, lane, bias_lane, parts)


# ------------------------------------------------------------------------------------------ how work is cut
# By the shape alone: a lane's bits must not depend on how many lanes there are.

_PROGRAMS = 32  # that share the weights of one lane, at most: ten lanes then keep a large device busy


@dataclass(frozen=True)
class _Cut:
    samples: int  # of a lane, for one program
    tiles: int  # that a sample's squares of 2 x 2 pixels are cut into
    threads: int
    some: int  # outputs of a thread at each of four pixels


def _cut(shape: Shape, squares: tuple[int, int], outputs: int) -> _Cut:
    some, count = _even(outputs, _MOST_OUTPUTS), math.prod(squares)
    if count > 2 * _THREADS:
        return _Cut(1, -(-count // _THREADS), _THREADS, some)
    fit = max(1, min(2 * _THREADS // count, (_ROOM - some * shape.taps) // shape.reach(*squares)))
    # the fewest samples that fill a program's threads well
    enough = [n for n in range(1, fit + 1) if n * count >= _THREADS and 10 * n * count >= 9 * _warps(n * count)]
    samples = min(enough, default=fit)
    return _Cut(samples, 1, _warps(samples * count), some)


def _forward_cut(shape: Shape) -> _Cut:
    return _cut(shape, shape.squares, shape.kernels)


def _backward_cut(shape: Shape) -> _Cut:
    return _cut(shape, shape.squares_of_image, shape.channels)


@dataclass(frozen=True)
class _WeightsCut:
    kernels: int
    channels: int
    turns: int  # threads that share the pixels of one kernel and channel
    threads: int


def _weights_cut(shape: Shape) -> _WeightsCut:
    pixels, plane = math.prod(shape.output), shape.reach(*shape.squares) | 1
    most = min(2 * _THREADS, _ROOM // 2 // (shape.taps + 1))  # kernels times channels
    fit = max(1, min(32, most, (_ROOM - 2 * pixels) // max(plane, shape.taps + 1)))
    channels = max(n for n in range(1, min(fit, shape.channels) + 1) if shape.channels % n == 0)
    # what threads come to takes the room that the channels had
    room = min((_ROOM - channels * plane) // (2 * pixels), _ROOM // (2 * pixels + channels * (shape.taps + 1)))
    kernels = _even(shape.kernels, max(1, min(most // channels, room)))
    room = (_ROOM - 2 * pixels * kernels) // (kernels * channels * (shape.taps + 1))
    turns = max(1, min(2 * _THREADS // (kernels * channels), pixels, room))
    return _WeightsCut(kernels, channels, turns, _warps(kernels * channels * turns))


def _even(number: int, most: int) -> int:
    """The size of the fewest equal groups that hold so many."""
    return -(-number // -(-number // most))


def _warps(threads: int) -> int:
    """So many threads, and those that fill up the last 32."""
    return -(-threads // 32) * 32


def constants(shape: Shape) -> dict[str, int]:
    """What `lane_block.cu` is compiled with."""
    ahead, back, weights = _forward_cut(shape), _backward_cut(shape), _weights_cut(shape)
    return {
        **fields_as_constants(shape),
        "ROOM": _ROOM,
        "FORWARD_SAMPLES": ahead.samples,
        "FORWARD_THREADS": ahead.threads,
        "SOME_KERNELS": ahead.some,
        "BACKWARD_SAMPLES": back.samples,
        "BACKWARD_THREADS": back.threads,
        "SOME_CHANNELS": back.some,
        "WEIGHT_KERNELS": weights.kernels,
        "WEIGHT_CHANNELS": weights.channels,
        "WEIGHT_THREADS": weights.threads,
        "TURNS": weights.turns,
    }


SOURCE = Path(__file__).with_suffix(".cu")


@functools.cache
def kernels(shape: Shape, device: torch.device) -> Kernels:
    """Compiled when they are first asked for."""
    with torch.cuda.device(device):
        return Kernels(SOURCE, constants(shape))
