"""All clients of a round, and all runs of a sweep, as lanes of one batched computation."""

from accord.engines.vectorised.batchable import CannotBatch
from accord.engines.vectorised.engine import Request, Vectorised, batched_if_possible
from accord.engines.vectorised.evaluation import Look

__all__ = ["CannotBatch", "Look", "Request", "Vectorised", "batched_if_possible"]
