"""First weights from a seed, without touching torch's global generator."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it torch draws from `seed`; after it, from where it was before."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed CUDA too, and nothing would put that back
        torch.default_generator.manual_seed(seed)
        yield
