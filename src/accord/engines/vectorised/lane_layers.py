"""Layers that compute many lanes in few kernels, on CUDA; elsewhere they are the layers they were.

Under `torch.func.vmap` such a layer sees all lanes at once and computes them with the kernels of `accord.kernels`. The
gradients of its weights are written straight to where they are wanted (`placed`), which for large layers spares two
passes over memory.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.layout import Layout
from accord.engines.vectorised.convolve import edges
from accord.kernels import lane_block, lane_linear

_PLACE = "_place"  # a layer's buffer `weight_place` is where the gradient of its `weight` belongs, if anyone said so


def placed(module: nn.Module, layout: Layout) -> dict[int, str]:
    """The parameters, by their number in the layout, whose gradients the module's layers can write to a place that
    comes with the pass, and the buffers that the places are to be handed over as. A gradient that would have to be cast
    has no such place."""
    made = {name for name, part in module.named_modules() if isinstance(part, LaneLinear | LaneConv)}
    return {
        number: entry.name + _PLACE
        for number, entry in enumerate(layout.parameters)
        if entry.dtype == layout.dtype and entry.name.rpartition(".")[0] in made
    }


def _claimed(layer: nn.Module, parameter: str) -> Tensor | None:
    """Where this parameter's gradient may be written. Only the first use of a layer gets the place: others are added to
    it."""
    place = layer._buffers[parameter + _PLACE]
    layer._buffers[parameter + _PLACE] = None  # the place came with this pass alone
    return place


def turn_into(layer: nn.Module, kind: type[nn.Module]) -> None:
    """Turns a plain layer into one for lanes."""
    layer.__class__ = kind
    for parameter in ("weight", "bias"):
        layer.register_buffer(parameter + _PLACE, None, persistent=False)


def _with_lanes(x: Tensor) -> bool:
    return torch._C._functorch.is_batchedtensor(x) and x.is_cuda and x.dtype == torch.float32


def _lanes_first(values: Sequence[Tensor | None], in_dims: Sequence[int | None], lanes: int) -> list[Tensor | None]:
    """Every tensor with its lanes as the first dimension; one that all lanes share, repeated."""
    return [
        None if value is None else value.expand(lanes, *value.shape) if dim is None else value.movedim(dim, 0)
        for value, dim in zip(values, in_dims, strict=True)
    ]


# ---------------------------------------------------------------------------------------------- linear layers


class LaneLinear(nn.Linear):
    """A linear layer, and the ReLU after it where there is one."""

    relu = False

    def forward(self, input: Tensor) -> Tensor:
        if _with_lanes(input):
            places = _claimed(self, "weight"), _claimed(self, "bias")
            return _Linear.apply(input, self.weight, self.bias, *places, self.relu)
        output = F.linear(input, self.weight, self.bias)
        return F.relu(output) if self.relu else output


class _Linear(torch.autograd.Function):
    """One lane's layer, as `vmap` meets it: it hands all lanes on."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, into: Tensor | None, into_bias: Tensor | None, relu: bool
    ) -> Tensor:
        raise NotImplementedError("lanes only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> tuple[Tensor, int]:
        *tensors, relu = given
        x, weight, bias, *places = _lanes_first(tensors, in_dims[:5], info.batch_size)
        assert x is not None and weight is not None
        rows = x.reshape(len(x), -1, x.shape[-1])
        return _LanesOfLinear.apply(rows, weight, bias, *places, relu).view(*x.shape[:-1], weight.shape[1]), 0


class _LanesOfLinear(torch.autograd.Function):
    """`x: [L, N, I]`, `weight: [L, O, I]`, `bias: [L, O]`; gradients of weight and bias go `into` these places, where
    there are any."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        into: Tensor | None,
        into_bias: Tensor | None,
        relu: bool,
    ) -> Tensor:
        y = torch.bmm(x, weight.transpose(1, 2))
        if bias is not None or relu:
            lane_linear.finish_(y, bias, relu)
        ctx.save_for_backward(x, weight, y if relu else None)
        ctx.relu, ctx.bias = relu, None if bias is None else bias.shape
        ctx.places = into, into_bias
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        g, dx = g.contiguous(), None
        dw, db = _places(ctx, weight)
        if needs_bias or ctx.relu:
            g = lane_linear.gradient_before(y if ctx.relu else g, g, ctx.relu, db if needs_bias else None)
        if needs_weight:
            torch.bmm(g.transpose(1, 2), x, out=dw)
        if needs_x:
            dx = torch.bmm(g, weight)
        return dx, dw if needs_weight else None, db if needs_bias else None, None, None, None


def _places(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor | None]:
    """Where the gradients of weight and bias are written: where somebody said, or to new tensors."""
    into, into_bias = ctx.places
    dw = torch.empty_like(weight, memory_format=torch.contiguous_format) if into is None else into
    return dw, weight.new_empty(ctx.bias) if into_bias is None and ctx.bias is not None else into_bias


# ----------------------------------------------------------------------------------------------- convolutions


class LaneConv(nn.Conv2d):
    """A convolution, and the ReLU and the 2 x 2 max-pool after it where there are such."""

    relu = pool = False

    def forward(self, input: Tensor) -> Tensor:
        shape = _shape(self, input) if _with_lanes(input) else None
        if shape is not None and shape.fits:
            places = _claimed(self, "weight"), _claimed(self, "bias")
            return _Block.apply(input, self.weight, self.bias, *places, shape)
        output = super().forward(input)
        output = F.relu(output) if self.relu else output
        return F.max_pool2d(output, 2) if self.pool else output


def _shape(conv: LaneConv, input: Tensor) -> lane_block.Shape | None:
    """Of the block for one lane's input; None where it is no batch of images, or zeros on opposite sides differ."""
    zeros = edges(conv.padding, conv.kernel_size)
    if zeros is None or input.ndim != 4:
        return None
    (channels, height, width), (high, wide) = input.shape[1:], conv.kernel_size
    return lane_block.Shape(channels, height, width, conv.out_channels, high, wide, *zeros, conv.relu, conv.pool)


class _Block(torch.autograd.Function):
    """One lane's block, as `vmap` meets it: it hands all lanes on."""

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        into: Tensor | None,
        into_bias: Tensor | None,
        shape: lane_block.Shape,
    ) -> Tensor:
        raise NotImplementedError("lanes only")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> tuple[Tensor, int]:
        *tensors, shape = given
        return _LanesOfBlock.apply(*_lanes_first(tensors, in_dims[:5], info.batch_size), shape), 0


class _LanesOfBlock(torch.autograd.Function):
    """`x: [L, B, C, H, W]`, `weight: [L, K, C, h, w]`, `bias: [L, K]`, and places as above."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        into: Tensor | None,
        into_bias: Tensor | None,
        shape: lane_block.Shape,
    ) -> Tensor:
        x, weight = lane_block.aligned(x, shape), weight if weight[0].is_contiguous() else weight.contiguous()
        out, which = lane_block.forward(x, weight, bias, shape)
        ctx.save_for_backward(x, weight, which)
        ctx.shape, ctx.bias = shape, None if bias is None else bias.shape
        ctx.places = into, into_bias
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, which = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        g, dx = g.contiguous(), None
        dw, db = _places(ctx, weight)
        if needs_weight or needs_bias:
            lane_block.weight_gradients(x, g, which, ctx.shape, dw, db)
        if needs_x:
            dx = lane_block.image_gradient(weight, g, which, ctx.shape)
        return dx, dw if needs_weight else None, db if needs_bias else None, None, None, None
