"""Models for any flat list of numbers: logistic regression, for the papers' convex study and for tables, and one hidden
layer more."""

from torch import nn

from accord.models.recipe import named
from accord.models.seeded import seeded


@named("logistic")
def logistic(
    *, features: int | None = None, channels: int = 1, size: int = 28, classes: int = 10, seed: int = 0
) -> nn.Module:
    """One linear layer on the flattened sample, which has `features` numbers, or is a picture of that size."""
    with seeded(seed):
        return nn.Sequential(nn.Flatten(), nn.Linear(features or channels * size * size, classes))


@named("mlp")
def mlp(
    *,
    features: int | None = None,
    channels: int = 1,
    size: int = 28,
    classes: int = 10,
    hidden: int = 64,
    seed: int = 0,
) -> nn.Module:
    """One hidden layer of `hidden` units on the flattened sample."""
    with seeded(seed):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(features or channels * size * size, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )
