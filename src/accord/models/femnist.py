"""Two CNNs for FEMNIST: two 5x5 convolutions (32 and 64 channels), each pooled, and 2048 hidden units. They differ in
the padding."""

from torch import nn

from accord.core.errors import AccordError
from accord.models.block import Sequential
from accord.models.recipe import named
from accord.models.seeded import seeded


@named("leaf-cnn")
def leaf_cnn(*, channels: int = 1, size: int = 28, classes: int = 62, seed: int = 0) -> nn.Module:
    """LEAF's network (Caldas et al., 2018): padded convolutions, 6,603,710 parameters on 28x28x1 with 62 classes."""
    if size < 4:
        raise AccordError(f"LEAF's CNN needs images of at least 4x4 pixels, got size {size}")
    return _build(channels, size // 2 // 2, classes, "same", seed)


@named("corrective-cnn")
def corrective_cnn(*, channels: int = 1, size: int = 28, classes: int = 62, seed: int = 0) -> nn.Module:
    """The network of the corrective gradient weights' public code: no padding, 2,278,334 parameters on 28x28x1 with 62
    classes."""
    if size < 16:
        raise AccordError(
            f"the corrective gradient weights' CNN needs images of at least 16x16 pixels, got size {size}"
        )
    return _build(channels, ((size - 4) // 2 - 4) // 2, classes, "valid", seed)


def _build(channels: int, side: int, classes: int, padding: str, seed: int) -> nn.Module:
    """`side`: pixels left on each side after the second pooling."""
    with seeded(seed):
        return Sequential(
            nn.Conv2d(channels, 32, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, 2048),
            nn.ReLU(),
            nn.Linear(2048, classes),
        )
