"""Augmentation of training batches on the device: crops at drawn places and mirrored pictures.

Every draw is keyed by the caller's key and the sample's position in the batch, in tensor code without branches. So CPU,
CUDA, vmap and a replayed CUDA graph give the same bits, and rows that only fill a batch up change nothing for the rows
before them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError, check_whole


@dataclass(frozen=True)
class CropFlip:
    """Pads every picture by `pad` black pixels on each side, crops it back to its size at a place drawn for it, and
    mirrors it left to right with probability one half. `pad=0` crops nothing. For pixels as they are stored: scaled, 0
    need not be black."""

    pad: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        check_whole("pad", self.pad, 0)
        if not isinstance(self.flip, bool):
            raise AccordError(f"flip must be true or false, got {self.flip!r}")

    def __call__(self, x: Tensor, key: Tensor | int) -> Tensor:
        """`x: [B, C, H, W]` of any dtype, which the result keeps; `key`: a whole number or a scalar int64 tensor, fresh
        for every step."""
        if x.ndim != 4:
            raise AccordError(
                f"crops and flips need pictures of shape [samples, channels, height, width], got {list(x.shape)}"
            )
        samples, channels, height, width = x.shape
        position = torch.arange(samples, device=x.device)
        places = 2 * self.pad + 1
        up, left, mirror = (draws.splitmix64(key, 3 * position + i).unsqueeze(-1) for i in range(3))  # [B, 1] each
        # [B, H], where each pixel comes from
        row = torch.arange(height, device=x.device) + draws.below(up, places) - self.pad
        column = torch.arange(width, device=x.device)
        if self.flip:
            column = torch.where(draws.below(mirror, 2) == 1, width - 1 - column, column)
        column = column + draws.below(left, places) - self.pad  # [B, W]
        # [B, H, W]
        inside = ((row >= 0) & (row < height)).unsqueeze(-1) & ((column >= 0) & (column < width)).unsqueeze(-2)
        source = row.clamp(0, height - 1).unsqueeze(-1) * width + column.clamp(0, width - 1).unsqueeze(-2)
        pixels = x.flatten(2).gather(2, source.flatten(1).unsqueeze(1).expand(samples, channels, height * width))
        return pixels.view(x.shape).masked_fill(~inside.unsqueeze(1), 0)


def crop_flip(pad: int = 4) -> CropFlip:
    """Crops and mirrors, as is usual for CIFAR."""
    return CropFlip(pad)


def crop(pad: int = 4) -> CropFlip:
    """Crops alone: for digits and letters, which are not the same mirrored."""
    return CropFlip(pad, flip=False)


def flip() -> CropFlip:
    """Mirrors alone."""
    return CropFlip(0)


AUGMENTS: dict[str, Callable[..., CropFlip]] = {"crop-flip": crop_flip, "crop": crop, "flip": flip}
