"""What torch must be told for a run to come out the same when it is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from accord.engines.speed import in_effect


@contextmanager
def steady(speed: frozenset[str] = frozenset()) -> Iterator[None]:
    """A convolution's algorithm may differ from call to call on CUDA unless told not to; a resumed run must not see
    that. The compiled kernel is chosen here too, where a run asks for it. Threads that an engine sets are the caller's
    again afterwards."""
    cudnn, threads = torch.backends.cudnn, torch.get_num_threads()
    flags = {"enabled": cudnn.enabled, "benchmark": False, "deterministic": True, "allow_tf32": cudnn.allow_tf32}
    try:
        with in_effect(speed), cudnn.flags(**flags):
            yield
    finally:
        torch.set_num_threads(threads)
