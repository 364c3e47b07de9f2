"""The papers' models. Each constructor draws its first weights from `seed` alone, whatever else used torch's generator
before."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.models.cnn import cnn
from accord.models.femnist import corrective_cnn, leaf_cnn
from accord.models.lenet import lenet
from accord.models.logistic import logistic, mlp
from accord.models.recipe import recipe_of as recipe_of
from accord.models.resnet import resnet18

__all__ = [
    "MODELS",
    "cnn",
    "corrective_cnn",
    "leaf_cnn",
    "lenet",
    "logistic",
    "mlp",
    "resnet18",
    "shaped",
    "warm_start",
]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "lenet": lenet,
    "cnn": cnn,
    "logistic": logistic,
    "mlp": mlp,
    "resnet18": resnet18,
    "leaf-cnn": leaf_cnn,
    "corrective-cnn": corrective_cnn,
}


def shaped(
    model: str | Callable[..., nn.Module], shape: Sequence[int], classes: int, seed: int, **options: Any
) -> nn.Module:
    """The model of that name, or by that constructor, for samples of that shape: numbers `(features,)` or pictures
    `(channels, size, size)`."""
    make = MODELS[model] if isinstance(model, str) else model
    if "features" in inspect.signature(make).parameters:
        return make(features=math.prod(shape), classes=classes, seed=seed, **options)
    if len(shape) != 3 or shape[1] != shape[2]:
        flat = [key for key, maker in MODELS.items() if "features" in inspect.signature(maker).parameters]
        name = next((key for key, maker in MODELS.items() if maker is make), make.__name__)
        raise AccordError(
            f"{name} reads square pictures, and the samples have shape {tuple(shape)}: choose {' or '.join(flat)}"
        )
    return make(channels=shape[0], size=shape[1], classes=classes, seed=seed, **options)


def warm_start(module: nn.Module, source: str | Path | Mapping[str, Tensor]) -> nn.Module:
    """A copy of the module with weights from a state dict or a safetensors file. Every tensor must fit by name and
    shape."""
    state = dict(source) if isinstance(source, Mapping) else _read(Path(source))
    mine = module.state_dict()
    for name in [*mine, *state]:
        if name not in state or name not in mine:
            raise AccordError(
                f"the weights to start from and the model differ: {name} is only in the"
                f" {'model' if name in mine else 'weights'}"
            )
        if state[name].shape != mine[name].shape:
            raise AccordError(
                f"{name} has shape {list(state[name].shape)} in the weights to start from and {list(mine[name].shape)}"
                " in the model"
            )
    fresh = copy.deepcopy(module)
    fresh.load_state_dict(state)
    return fresh


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise AccordError(f"there is no file {path} to start from") from None
    except (OSError, SafetensorError) as error:
        raise AccordError(f"{path} cannot be read as safetensors: {error}") from None
