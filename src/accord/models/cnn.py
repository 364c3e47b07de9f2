"""A small CNN: two padded 3x3 convolutions, pooled, dropout, one hidden layer. For quick studies of dropout and
width."""

from torch import nn

from accord.core.errors import AccordError
from accord.models.block import Sequential
from accord.models.recipe import named
from accord.models.seeded import seeded


@named("cnn")
def cnn(
    *,
    channels: int = 1,
    size: int = 28,
    classes: int = 10,
    width: int = 16,
    hidden: int = 64,
    dropout: float = 0.25,
    norm: str = "none",
    seed: int = 0,
) -> nn.Module:
    """`width` and twice `width` channels; 105,866 parameters on 28x28x1 with the defaults. With the `norm` "batch" a
    BatchNorm follows each convolution."""
    if size < 4:
        raise AccordError(f"the small CNN needs images of at least 4x4 pixels, got size {size}")
    if not 0.0 <= dropout < 1.0:
        raise AccordError(f"dropout must be at least 0 and below 1, got {dropout}")
    if norm not in ("none", "batch"):
        raise AccordError(f"norm must be 'none' or 'batch' (BatchNorm), got {norm!r}")
    one, two = ([nn.BatchNorm2d(channels)] if norm == "batch" else [] for channels in (width, 2 * width))
    with seeded(seed):
        return Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            *one,
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            *two,
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * width * (size // 4) ** 2, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )
