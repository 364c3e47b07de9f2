"""The device that a run computes on."""

import torch

from accord.core.errors import AccordError


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is a CUDA device if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise AccordError(f"there is no device {name!r}: choose auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise AccordError(f"accord runs on cpu and cuda, got device {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise AccordError(f"device {name!r} was asked for, but torch sees no CUDA device here: choose cpu or auto")
    return device
