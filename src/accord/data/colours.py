"""Colours that go with the label, and that the test set breaks: FedCMNIST and the two coloured MNISTs of the workshop
paper.

Training colours and test colours are apart by construction. The hue circle is cut into cells of equal width. Training
colours lie in the even cells, at most a quarter of a cell from the centre; test colours are the centres of odd cells.
Nobody has to be compared with anybody, so a client's colours depend on the seed and its name alone.

Tables hold colours from 0 to 1, so that a pixel of 0 to 255 times a colour is a pixel again: a product, and no
division, which CPU and CUDA would round differently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError, check_whole

Tables = Mapping[str, Tensor]
BRIGHT, DARK = 1.0, 0.3  # of foregrounds, of backgrounds: on 0.4, blue digits are hard to see
FRESH = 10  # colours of two_by_two's test set, foreground and background each


class _Painted:
    """A shift that paints pictures in colours drawn from its tables, and leaves labels alone."""

    channels: ClassVar[int | None] = 3

    def relabel(self, y: Tensor) -> Tensor:
        return y

    def apply(self, x: Tensor, y: Tensor, owner: Tensor, sample: Tensor, tables: Tables) -> Tensor:
        return paint(x, *draw_colours(y, owner, sample, tables))


@dataclass(frozen=True)
class coloured(_Painted):
    """FedCMNIST (the thesis): a digit's colour goes with its class, and the test set has colours that no client has.

    `palette`: "client" gives every client colours of its own for each class, "shared" gives all clients the same;
    `palettes` lies between them, so many different palettes that clients take in turn, in the order of their names (1
    is "shared"). `colours`: how many a class has; which of them a sample gets is drawn. `background=True` replaces
    black by darker colours that go with the class too.
    """

    palette: Literal["client", "shared"] = "client"
    colours: int = 1
    background: bool = False
    palettes: int | None = None

    def __post_init__(self) -> None:
        if self.palette not in ("client", "shared"):
            raise AccordError(
                "palette must be 'client' (each client has its own colours) or 'shared' (all the same), got"
                f" {self.palette!r}"
            )
        if isinstance(self.colours, bool) or not isinstance(self.colours, int) or not 1 <= self.colours <= 4:
            raise AccordError(
                f"colours must be a whole number from 1 to 4, got {self.colours!r}: it counts the colours of a class"
            )
        if not isinstance(self.background, bool):
            raise AccordError(f"background must be true or false, got {self.background!r}")
        if self.palettes is not None:
            check_whole("palettes", self.palettes)
            if self.palette == "shared" and self.palettes > 1:
                raise AccordError(
                    f"palettes must be 1 with palette = 'shared', got {self.palettes}: leave out one of them"
                )
            if self.palettes == 1:  # one setting under two names is one run
                object.__setattr__(self, "palette", "shared")
                object.__setattr__(self, "palettes", None)

    def tables(self, owners: Sequence[str], classes: int, seed: int) -> dict[str, Tensor]:
        """Colours `[owners + 1, classes, colours, 3]`."""
        count = classes * self.colours
        parts = {"foreground": BRIGHT, "background": DARK} if self.background else {"foreground": BRIGHT}
        tables = {"key": sample_keys(owners, seed)}
        for part, brightness in parts.items():
            rows = [training_hues(count, count, seed, part, *path) for path in self._paths(owners)]
            rows.append(fresh_hues(count, count, seed, part))
            tables[part] = hsv(np.stack(rows), brightness).view(len(rows), classes, self.colours, 3)
        return tables

    def _paths(self, owners: Sequence[str]) -> list[tuple[str, ...]]:
        """What each owner's palette is drawn from: its name, or the number of the palette it shares."""
        if self.palette == "shared":
            return [("shared",)] * len(owners)
        if self.palettes is None:
            return [("client", name) for name in owners]
        place = np.argsort(np.argsort(owners))  # by name, so that as many clients as can be have each palette
        return [("palette", str(number % self.palettes)) for number in place]


@dataclass(frozen=True)
class two_by_two(_Painted):
    """Multi-class coloured MNIST (the workshop paper): every class has two foreground and two background colours, the
    same for all clients. A test sample has one of ten fresh foregrounds and one of ten fresh backgrounds, whatever its
    class."""

    def tables(self, owners: Sequence[str], classes: int, seed: int) -> dict[str, Tensor]:
        """Colours `[owners + 1, classes, 10, 3]`: a class's two colours fill five places each, the test set's ten are
        every class's."""
        cells = max(2 * classes, FRESH)
        tables = {"key": sample_keys(owners, seed)}
        for part, brightness in (("foreground", BRIGHT), ("background", DARK)):
            pairs = hsv(training_hues(2 * classes, cells, seed, part, "shared"), brightness).view(classes, 2, 3)
            fresh = hsv(fresh_hues(FRESH, cells, seed, part), brightness)
            ours = pairs.repeat_interleave(FRESH // 2, dim=1).expand(len(owners), classes, FRESH, 3)
            tables[part] = torch.cat([ours, fresh.expand(1, classes, FRESH, 3)])
        return tables


@dataclass(frozen=True)
class binary:
    """Binary coloured MNIST (the workshop paper, after Arjovsky et al., 2019, without their label noise): is the digit
    at least 5?

    Digits below 5 are red and the others green, but flipped with a probability that goes evenly from `flip_low` at the
    first client, by name, to `flip_high` at the last, and is `flip_test` in the test set: there colour tells the wrong
    label.
    """

    flip_low: float = 0.1
    flip_high: float = 0.2
    flip_test: float = 0.9
    channels: ClassVar[int | None] = 3

    def __post_init__(self) -> None:
        for name in ("flip_low", "flip_high", "flip_test"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                raise AccordError(
                    f"{name} must be between 0 and 1, got {value!r}: it is the share of samples in the other label's"
                    " colour"
                )

    def relabel(self, y: Tensor) -> Tensor:
        return (y >= 5).to(y.dtype)

    def tables(self, owners: Sequence[str], classes: int, seed: int) -> dict[str, Tensor]:
        """`flip: [owners + 1]`, in 2^-53: draws are compared with it as whole numbers."""
        # by name: `owners` has the unseen ones last, and theirs must not be the highest rates
        place = np.argsort(np.argsort(owners))
        rates = [*np.linspace(self.flip_low, self.flip_high, len(owners))[place], self.flip_test]
        return {"key": sample_keys(owners, seed), "flip": torch.tensor([round(float(rate) * 2**53) for rate in rates])}

    def apply(self, x: Tensor, y: Tensor, owner: Tensor, sample: Tensor, tables: Tables) -> Tensor:
        bits = draws.splitmix64(tables["key"][owner], sample)
        flipped = ((bits >> 11) & ((1 << 53) - 1)) < tables["flip"][owner]
        green = ((y == 1) ^ flipped).float()
        return paint(x, torch.stack([1.0 - green, green, torch.zeros_like(green)], dim=-1))


# ------------------------------------------------------------------------------------------- on the CPU, once


def training_hues(count: int, cells: int, seed: int, *path: str) -> np.ndarray:
    """`count` hues in different even cells of 2 * `cells`, in a drawn order, each up to a quarter of a cell off the
    centre."""
    order = draws.permutation(cells, seed, "shift", "cells", *path)[:count]
    jitter = (draws.uniform(count, seed, "shift", "jitter", *path) - 0.5) / 2
    return (2 * order + 0.5 + jitter) / (2 * cells)


def fresh_hues(count: int, cells: int, seed: int, part: str) -> np.ndarray:
    """`count` hues that are the centres of different odd cells of 2 * `cells`, in a drawn order."""
    order = draws.permutation(cells, seed, "shift", "cells", part, "test")[:count]
    return (2 * order + 1.5) / (2 * cells)


def hsv(hue: np.ndarray, value: float) -> Tensor:
    """Saturated colours, red, green and blue from 0 to 1: `[..., 3]` of hues `[...]` from 0 (red) over 1/3 (green) and
    2/3 to 1."""
    # 3 at the channel's own hue, 0 opposite of it
    away = np.abs((6.0 * hue[..., None] + np.array([0.0, 4.0, 2.0])) % 6.0 - 3.0)
    return torch.from_numpy(value * np.clip(away - 1.0, 0.0, 1.0)).float()


def sample_keys(owners: Sequence[str], seed: int) -> Tensor:
    """Each owner's key for the draws of its samples, the test set's last."""
    keys = [draws.device_key(seed, "shift", "samples", "client", name) for name in owners]
    return torch.tensor([*keys, draws.device_key(seed, "shift", "samples", "test")])


# ---------------------------------------------------------------------------------------------- on the device


def draw_colours(y: Tensor, owner: Tensor, sample: Tensor, tables: Tables) -> list[Tensor]:
    """A foreground and, where the tables have any, a background `[B, 3]` for each sample, drawn independently of each
    other."""
    key = tables["key"][owner]
    chosen = []
    for i, part in enumerate(part for part in ("foreground", "background") if part in tables):
        slot = draws.below(draws.splitmix64(key, 2 * sample + i), tables[part].shape[-2])
        chosen.append(tables[part][owner, y, slot])
    return chosen


def paint(x: Tensor, foreground: Tensor, background: Tensor | None = None) -> Tensor:
    """`x: [B, 1, H, W]` from 0 to 255 in colours `[B, 3]` from 0 to 1: foreground * x + background * (255 - x)."""
    if x.shape[1] != 1:
        raise AccordError(
            f"only grey pictures can be coloured, and these have {x.shape[1]} channels: take data with one channel"
        )
    grey = x.float()
    picture = foreground[:, :, None, None] * grey
    return picture if background is None else picture + background[:, :, None, None] * (255.0 - grey)
