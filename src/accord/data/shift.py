"""Shifts: samples that look different by who owns them, on purpose, so that a model can be caught learning the look.

A shift has two halves. `tables` says what each owner's samples look like, once, on the CPU. `apply` is tensor code
without branches on data, so it runs on any device, under vmap and in a replayed CUDA graph; what it draws depends on
the seed, the owner and the sample alone, so a sample always looks the same, in whatever batch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.colours import binary, coloured, two_by_two


class Shift(Protocol):
    """Changes samples by who owns them."""

    @property
    def channels(self) -> int | None:
        """How many channels images have afterwards; None if as many as before."""

    def relabel(self, y: Tensor) -> Tensor:
        """The labels that the model learns, from the data set's own. Applied once, when the data is dealt."""

    def tables(self, owners: Sequence[str], classes: int, seed: int) -> dict[str, Tensor]:
        """What `apply` looks up. Row i of each table is that of `owners[i]`, the last row is the test set's.

        `classes` counts the labels after `relabel`. What an owner gets depends on its name, never on who else is there,
        except where a shift says that it goes by position.
        """

    def apply(self, x: Tensor, y: Tensor, owner: Tensor, sample: Tensor, tables: Mapping[str, Tensor]) -> Tensor:
        """Float32 pictures from 0 to 255, of pictures `x: [B, C, H, W]` from 0 to 255.

        `y: [B]` are labels after `relabel`, `owner: [B]` numbers of owners (their count stands for the test set),
        `sample: [B]` row numbers.
        """


@dataclass(frozen=True)
class rotated:
    """FedRotMNIST (the thesis): pictures rotated by angles in degrees, counter-clockwise; the test set is as it was.

    `by="class"` rotates class k by `angles[k]`, at every client. `by="client"` rotates all of a client's pictures by
    one angle, drawn for it. The thesis pads before it rotates and crops after it. That is rotation about the centre
    with black outside, which is done here.
    """

    angles: Sequence[float] = (10, -10, 20, -20, 30, -30, 40, -40, 50, -50)
    by: Literal["class", "client"] = "class"
    channels: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        fine = isinstance(self.angles, list | tuple) and len(self.angles) > 0
        if not fine or any(
            isinstance(a, bool) or not isinstance(a, int | float) or not math.isfinite(a) for a in self.angles
        ):
            raise AccordError(f"angles must be a list of numbers, in degrees, got {self.angles!r}")
        if self.by not in ("class", "client"):
            raise AccordError(
                f"by must be 'class' (an angle for each class) or 'client' (an angle for each client), got {self.by!r}"
            )
        object.__setattr__(self, "angles", tuple(self.angles))  # a list, as read from a file, has no hash

    def relabel(self, y: Tensor) -> Tensor:
        return y

    def tables(self, owners: Sequence[str], classes: int, seed: int) -> dict[str, Tensor]:
        """`turn: [owners + 1, classes, 2]`, cosine and sine."""
        if self.by == "class" and len(self.angles) < classes:
            raise AccordError(
                f"angles must have one angle for each of the {classes} classes, got {len(self.angles)}: "
                "give more, or take by='client', which draws one for each client"
            )
        if self.by == "class":
            degrees = [list(self.angles[:classes])] * len(owners)
        else:
            picks = [
                int(draws.uniform(1, seed, "shift", "angle", "client", name)[0] * len(self.angles)) for name in owners
            ]
            degrees = [[self.angles[pick]] * classes for pick in picks]
        turns = [[_turn(angle) for angle in row] for row in [*degrees, [0.0] * classes]]
        return {"turn": torch.tensor(turns, dtype=torch.float32)}

    def apply(self, x: Tensor, y: Tensor, owner: Tensor, sample: Tensor, tables: Mapping[str, Tensor]) -> Tensor:
        return rotate(x, tables["turn"][owner, y])


def _turn(degrees: float) -> tuple[float, float]:
    angle = math.radians(degrees)
    return round(math.cos(angle), 15), round(math.sin(angle), 15)  # so that a quarter turn is exactly that


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """`x: [B, C, H, W]` rotated about its centre by `turn: [B, 2]` (cosine, sine), bilinear, black outside; float32.

    Not `grid_sample`: its coordinates from -1 to 1 round, and a picture that is not rotated would come out changed.
    """
    samples, channels, height, width = x.shape
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2  # half pixels, exact in float32
    down = torch.arange(height, device=x.device)[:, None] - middle_y
    right = torch.arange(width, device=x.device)[None, :] - middle_x
    cosine, sine = turn[:, 0, None, None], turn[:, 1, None, None]
    # [B, H, W], where each pixel comes from. Whatever lies further out than one pixel is as black as that pixel.
    from_y = (sine * right + cosine * down + middle_y).clamp(-1, height)
    from_x = (cosine * right - sine * down + middle_x).clamp(-1, width)
    top, left = from_y.floor(), from_x.floor()
    # weights, [B, 1, H * W]
    below, beside = (from_y - top).flatten(1).unsqueeze(1), (from_x - left).flatten(1).unsqueeze(1)
    framed = F.pad(x.float(), (1, 2, 1, 2))  # so that all four neighbours exist
    wide = width + 3
    corner = (
        ((top + 1).long() * wide + (left + 1).long()).flatten(1).unsqueeze(1).expand(samples, channels, height * width)
    )
    pixels = framed.flatten(2)
    upper = pixels.gather(2, corner) * (1 - beside) + pixels.gather(2, corner + 1) * beside
    lower = pixels.gather(2, corner + wide) * (1 - beside) + pixels.gather(2, corner + wide + 1) * beside
    return (upper * (1 - below) + lower * below).view(x.shape)


SHIFTS: dict[str, Callable[..., Shift]] = {
    "coloured": coloured,
    "two-by-two": two_by_two,
    "binary": binary,
    "rotated": rotated,
}
