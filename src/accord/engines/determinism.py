"""What torch must be told for a run to come out the same when it is repeated."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from accord import kernels
from accord.core.errors import AccordError
from accord.kernels.library import chosen_within


@contextmanager
def steady(speed: frozenset[str] = frozenset()) -> Iterator[None]:
    """A convolution's algorithm may differ from call to call on CUDA unless told not to; a resumed run must not see
    that. The compiled kernel is chosen here too, where a run asks for it; without that, whatever the environment says.
    Threads that an engine sets are the caller's again afterwards."""
    native = "native" in speed
    if native and not kernels.available():
        raise AccordError(f"the compiled kernel was asked for, but {kernels.why_not()}")
    cudnn, threads = torch.backends.cudnn, torch.get_num_threads()
    flags = {"enabled": cudnn.enabled, "benchmark": False, "deterministic": True, "allow_tf32": cudnn.allow_tf32}
    try:
        with chosen_within() if native else nullcontext(), cudnn.flags(**flags):
            yield
    finally:
        torch.set_num_threads(threads)
