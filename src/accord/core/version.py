"""The version of accord that is installed, and the oldest torch it works with."""

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from accord.core.errors import AccordError

OLDEST_TORCH = (2, 6)

try:
    __version__ = version("accord-fl")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+source"


@cache
def check_torch() -> None:
    """Refuses a torch that lacks what accord calls, before anything fails on it; one look is enough. Imports none: a
    torch that is yet to load has metadata."""
    loaded = sys.modules.get("torch")
    try:
        installed = str(loaded.__version__) if loaded else version("torch")
    except (AttributeError, PackageNotFoundError):
        # Half-loaded, or a build that left no metadata: whoever imports it sees.
        return
    numbers = installed.split("+")[0].split(".")[:2]
    if all(number.isdecimal() for number in numbers) and tuple(map(int, numbers)) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise AccordError(
            f"PyTorch {oldest} or newer is needed, this is {installed}: pip install --upgrade 'torch>={oldest}'"
        )
