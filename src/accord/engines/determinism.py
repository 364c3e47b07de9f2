"""What torch must be told for a run to come out the same when it is repeated."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from accord import kernels
from accord.core.errors import AccordError
from accord.kernels.library import chosen_within


@contextmanager
def steady(speed: frozenset[str] = frozenset()) -> Iterator[None]:
    """A convolution's algorithm may differ from call to call on CUDA unless told not to; a resumed run must not see
    that. The compiled kernel and TF32 are chosen here too, where a run asks for them; without that, whatever the
    environment and the caller say. Threads that an engine sets are the caller's again afterwards."""
    native = "native" in speed
    if native and not kernels.available():
        raise AccordError(f"the compiled kernel was asked for, but {kernels.why_not()}")
    cudnn, products, threads = torch.backends.cudnn, torch.backends.cuda.matmul, torch.get_num_threads()
    rough = products.allow_tf32
    flags = {"enabled": cudnn.enabled, "benchmark": False, "deterministic": True, "allow_tf32": cudnn.allow_tf32}
    if "tf32" in speed and (not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0)):
        warnings.warn("speed 'tf32' changes nothing here: it takes an NVIDIA card of 2020 or later", stacklevel=3)
    try:
        products.allow_tf32 = rough or "tf32" in speed
        with chosen_within() if native else nullcontext(), cudnn.flags(**flags):
            yield
    finally:
        products.allow_tf32 = rough
        torch.set_num_threads(threads)
