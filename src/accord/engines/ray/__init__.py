"""Clients spread over a Ray cluster (docs/how-to/ray.md): the driver hands out shards, every node sends on one
summed record."""

from accord.core.errors import AccordError

try:
    import ray  # noqa: F401
except ImportError as error:
    raise AccordError(f"engine ray needs Ray 2.55 or newer ({error}): pip install 'accord-fl[ray]'") from None

from accord.engines.ray.connect import connect
from accord.engines.ray.engine import Cluster

__all__ = ["Cluster", "connect"]
