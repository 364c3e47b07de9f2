"""Copies between host and device that neither waits for."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_SMALL = 1 << 16  # bytes that a copy to the device need not wait for


def sent(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device, in a copy that the host does not wait for: it has the next round to plan. Of few values
    CUDA keeps a copy of its own until they are sent."""
    if device.type == "cuda" and values.nbytes > _SMALL:
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def numbers_sent(values: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Row numbers as they are, other numbers in the model's precision."""
    numbers = torch.from_numpy(values)
    return sent(numbers if numbers.dtype == torch.int64 else numbers.to(dtype), device)


def fetched(values: Tensor) -> Callable[[], Tensor]:
    """The values on the host, once they are asked for: then the host waits for what the device was given before, and
    for nothing after."""
    if values.device.type != "cuda":
        return lambda: values
    here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    here.copy_(values, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def wait() -> Tensor:
        arrived.synchronize()
        return here

    return wait
