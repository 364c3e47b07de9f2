"""Compiled code for small models on a CPU: convolution, bias, ReLU and 2x2 max-pool in one pass, whole chains of these
and linear layers, SGD's step, and sums over clients.

`engine="auto"` uses it where it is faster; `speed=["native"]`, `ACCORD_NATIVE=1` in the environment or
`accord.native.enable()` before a run choose it for any engine, `ACCORD_NATIVE=0` and `disable()` plain torch. The first
use compiles it with the C++ compiler that is there (some seconds, once per machine: the library is kept in accord's
cache folder). Without a compiler, and for whatever it does not take, torch computes the same in its own way, equal but
for the rounding of sums. `state()` says which of the two a run gets, and the run's `environment.json` keeps it. A
step uses one thread; where many cores share one model's step, torch may be faster. Sums use all of torch's.
"""

from accord.kernels.block import conv_relu_pool, takes
from accord.kernels.library import available, build, disable, enable, enabled, state, why_not
from accord.kernels.sums import sums
from accord.kernels.tally import tally

__all__ = [
    "available",
    "build",
    "conv_relu_pool",
    "disable",
    "enable",
    "enabled",
    "state",
    "sums",
    "takes",
    "tally",
    "why_not",
]
