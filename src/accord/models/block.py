"""A sequence of layers that runs convolution, ReLU and max-pool as one where `accord.native` was chosen."""

from collections.abc import Sequence
from typing import TypeGuard

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from accord import kernels


class Sequential(nn.Sequential):
    """torch's, with the same layers under the same names: weights, seeds, saved models and recorded runs stay what they
    were. That is also why it bears torch's name: a model's printed form is part of how a run is recognised."""

    def forward(self, input: Tensor) -> Tensor:
        if not kernels.takes(input) or _has_any_global_hook():
            return super().forward(input)
        layers, at = list(self), 0
        while at < len(layers):
            conv = fusable(layers[at : at + 3])
            if conv is None:
                input = layers[at](input)
                at += 1
            else:
                input = kernels.conv_relu_pool(input, conv.weight, conv.bias, conv.padding)
                at += 3
        return input


def fusable(layers: Sequence[nn.Module]) -> nn.Conv2d | None:
    """The convolution, if these are the three layers, set up as the kernels have them, and nobody hooked in between."""
    if len(layers) < 3:
        return None
    conv, relu, pool = layers
    if not ordinary(conv) or type(relu) is not nn.ReLU or type(pool) is not nn.MaxPool2d or any(map(hooked, layers)):
        return None
    asked = pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode, pool.return_indices
    return conv if asked == (2, 2, 0, 1, False, False) else None


def ordinary(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether it is a convolution that the kernels know: of every pixel, over all channels."""
    if type(layer) is not nn.Conv2d:
        return False
    return (layer.stride, layer.dilation, layer.groups, layer.padding_mode) == ((1, 1), (1, 1), 1, "zeros")


def hooked(module: nn.Module) -> bool:
    """Whether somebody wants to be told when this layer runs."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
