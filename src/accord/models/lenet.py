"""LeNet as the papers use it: two unpadded 5x5 convolutions and three linear layers."""

from torch import nn

from accord.core.errors import AccordError
from accord.models.block import Sequential
from accord.models.recipe import named
from accord.models.seeded import seeded


@named("lenet")
def lenet(*, channels: int = 1, size: int = 28, classes: int = 10, seed: int = 0) -> nn.Module:
    """44,426 parameters on 28x28x1, 62,006 on 32x32x3."""
    side = ((size - 4) // 2 - 4) // 2
    if side < 1:
        raise AccordError(f"LeNet needs images of at least 16x16 pixels, got size {size}")
    with seeded(seed):
        return Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side * side, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, classes),
        )
