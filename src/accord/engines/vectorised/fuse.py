"""A model with the layers that `lane_layers` has in the place of plain ones.

`fused(module)` gives linear layers and convolutions, with the ReLU and the 2 x 2 max-pool after them, a forward pass of
their own; the module's parameters, their names and what it computes stay the same.
"""

import copy
from collections import Counter
from collections.abc import Sequence

import torch
from torch import nn

from accord.data.federated import Federation
from accord.engines.vectorised.lane_layers import LaneConv, LaneLinear, turn_into
from accord.engines.vectorised.twin import difference
from accord.models.block import Sequential, fusable, hooked, ordinary

_ROUNDING = 1e-4  # between outputs of the same layers, relative to them


def made_for_lanes(module: nn.Module, fed: Federation) -> nn.Module:
    """The module with fused layers, or the module itself if that would change what it computes: its forward pass may
    pick single layers out of a sequence."""
    twin = fused(module)
    x, _ = fed.read(torch.zeros(2, dtype=torch.int64, device=fed.x.device))
    return twin if difference(twin, module, x) <= _ROUNDING else module


def fused(module: nn.Module) -> nn.Module:
    """A copy of the module in which layers that are made for lanes stand in for plain ones."""
    module = copy.deepcopy(module)
    uses = Counter(id(child) for part in module.modules() for child in part._modules.values())
    for part in list(module.modules()):
        if isinstance(part, nn.Sequential) and type(part) in (nn.Sequential, Sequential) and not hooked(part):
            _fuse_within(part, uses)
    for part in module.modules():
        if hooked(part) or not _single(part):
            continue
        if type(part) is nn.Linear:
            turn_into(part, LaneLinear)
        elif ordinary(part):
            turn_into(part, LaneConv)
    return module


def _fuse_within(sequence: nn.Sequential, uses: Counter[int]) -> None:
    """What a layer takes over from those after it is left to do for nobody. A layer that has other uses takes over
    nothing."""
    names, layers = list(sequence._modules), list(sequence)
    for at, layer in enumerate(layers):
        following = 0
        if uses[id(layer)] > 1 or not _single(layer):
            continue
        if fusable(layers[at : at + 3]) is not None:
            turn_into(layer, LaneConv)
            layer.relu = layer.pool = True  # type: ignore[assignment]
            following = 2
        elif not hooked(layer) and _is_relu(layers[at + 1 :]) and (type(layer) is nn.Linear or ordinary(layer)):
            turn_into(layer, LaneLinear if type(layer) is nn.Linear else LaneConv)
            layer.relu, following = True, 1  # type: ignore[assignment]
        for name in names[at + 1 : at + 1 + following]:
            sequence._modules[name] = nn.Identity()


def _is_relu(layers: Sequence[nn.Module]) -> bool:
    return bool(layers) and type(layers[0]) is nn.ReLU and not hooked(layers[0])


def _single(layer: nn.Module) -> bool:
    """In the precision that the kernels compute in."""
    return all(p.dtype == torch.float32 for p in layer.parameters()) and not layer._buffers
