"""First weights from a seed, without touching torch's global generator."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from accord.core.errors import whole_seed


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it torch draws from `seed`; after it, from where it was before."""
    number = whole_seed(seed)
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed CUDA too, and nothing would put that back
        torch.default_generator.manual_seed(number if abs(number) < 2**63 else number % 2**64)
        yield
