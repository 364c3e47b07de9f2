"""Engines: ways to run the same cohort. `sequential` is the readable reference."""

from collections.abc import Callable

import torch

from accord.engines.contract import Engine, Job
from accord.engines.sequential import Sequential
from accord.errors import AccordError

ENGINES: dict[str, Callable[[Job], Engine]] = {"auto": Sequential, "sequential": Sequential}


def make_engine(name: str, job: Job) -> Engine:
    """The engine of that name, ready to train; "auto" picks the best one there is for the job."""
    if name not in ENGINES:
        raise AccordError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")
    return ENGINES[name](job)


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
