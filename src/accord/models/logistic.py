"""Logistic regression: one linear layer, for the papers' convex study."""

from torch import nn

from accord.models.seeded import seeded


def logistic(*, channels: int = 1, size: int = 28, classes: int = 10, seed: int = 0) -> nn.Module:
    """One linear layer on the flattened image."""
    with seeded(seed):
        return nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, classes))
