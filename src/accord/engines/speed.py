"""Speed options that a run may ask for; each costs something: a compiler, a start, or precision."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError

SPEED = {
    "native": "compiled code for small CNNs and MLPs on the CPU, as auto has it; needs a C++ compiler",
    "compile": "torch.compile for models above 8 million parameters on CUDA; takes half a minute to start",
    "channels-last": "pictures with their channels innermost, for models above 8 million parameters on CUDA",
    "tf32": (
        "matrix products on CUDA from numbers of 11 bits, as convolutions of large models have them anyway;"
        " results differ, and so does the run's name"
    ),
    "bf16": (
        "passes through the model in bfloat16, weights and sums in float32; results differ, and so does the run's name"
    ),
}


def checked(speed: Iterable[str]) -> frozenset[str]:
    """The ways asked for, as a set."""
    asked = [speed] if isinstance(speed, str) else list(speed)
    for name in asked:
        if name not in SPEED:
            raise AccordError(f"unknown speed option {name!r}: choose one of {', '.join(SPEED)}")
    return frozenset(asked)


def precision_of(speed: Iterable[str]) -> dict[str, str]:
    """What of the options changes results, for the run's name."""
    changed = [name for name in ("bf16", "tf32") if name in speed]
    return {"precision": "+".join(changed)} if changed else {}


def precision(speed: frozenset[str], device: torch.device) -> AbstractContextManager[object]:
    """What a pass through the model is computed in. Casts are not kept: a captured graph would read those of another
    step."""
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if "bf16" in speed else nullcontext()


def widened(speed: frozenset[str], output: Tensor) -> Tensor:
    """What the model gave, in the precision that losses and metrics are computed in."""
    return output.float() if "bf16" in speed else output


def forward_pass(module: nn.Module, speed: frozenset[str]) -> Callable[[Tensor], Tensor]:
    """A pass through the model in the precision asked for: the model itself, or one with casts around it."""
    if "bf16" not in speed:
        return module

    def narrowed(x: Tensor) -> Tensor:
        with precision(speed, x.device):
            output: Tensor = module(x)
        return widened(speed, output)

    return narrowed
