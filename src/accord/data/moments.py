"""Counts, sums and sums of squares of columns, exact: whole numbers, whatever the order that rows and owners come in.

A float32 is a whole number of 24 bits times a power of two, so sums of many are whole numbers of some hundred bits.
Added up over owners they are what the joined table has, to the last bit, and a mean or spread is rounded once, at the
end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError

_LOWEST = 148  # the smallest float32 is 2^-149, a half times 2^-148
_UNIT, _SQUARE_UNIT = (
    1 << (_LOWEST + 24),
    1 << 2 * (_LOWEST + 24),
)  # a sum, and one of squares, are multiples of 1 / unit
LIMB = 32  # bits of a whole number that travel as one number: sums over a million owners stay exact
_LIMBS = (2, 11, 20)  # of a count, a sum and a sum of squares of 2^32 numbers
WIDTH = sum(_LIMBS)


@dataclass(frozen=True)
class Moments:
    """Of numbers in columns: how many rows there are, and for each column how many have a number there, their sum and
    the sum of their squares, in units of their own."""

    rows: int
    counts: tuple[int, ...]
    sums: tuple[int, ...]
    squares: tuple[int, ...]

    @classmethod
    def of(cls, values: Tensor, numbers: Sequence[bool] | None = None) -> "Moments":
        """`values: [n, C]`, NaN where one is missing. Of columns that hold no `numbers` but categories, only what is
        there is counted."""
        table = values.detach().cpu().float().double().numpy()
        there = ~np.isnan(table)
        wanted = numbers or [True] * table.shape[1]
        pairs = [_exact(table[there[:, c], c]) if wanted[c] else (0, 0) for c in range(table.shape[1])]
        return cls(len(table), tuple(there.sum(0).tolist()), tuple(s for s, _ in pairs), tuple(q for _, q in pairs))

    def __add__(self, other: "Moments") -> "Moments":
        def each(mine: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a + b for a, b in zip(mine, theirs, strict=True))

        return Moments(
            self.rows + other.rows,
            each(self.counts, other.counts),
            each(self.sums, other.sums),
            each(self.squares, other.squares),
        )

    def mean(self, column: int) -> float:
        """Of the numbers that are there; 0 where none is."""
        return float(Fraction(self.sums[column], _UNIT * max(self.counts[column], 1)))

    def spread(self, column: int, fill: float = 0.0) -> tuple[float, float]:
        """Mean and standard deviation over all rows, with `fill` where a number is missing. The spread of a column of
        one value is 0."""
        rows, away = max(self.rows, 1), self.rows - self.counts[column]
        filled = Fraction(float(np.float32(fill)))  # as a model's input holds it
        mean = (Fraction(self.sums[column], _UNIT) + away * filled) / rows
        square = (Fraction(self.squares[column], _SQUARE_UNIT) + away * filled**2) / rows
        return float(mean), math.sqrt(square - mean**2)

    # ------------------------------------------------------------------------------------------ as it travels

    def limbs(self) -> Tensor:
        """As whole numbers of at most 32 bits, `[1 + C, WIDTH]` float64, which add up as moments do."""
        rows = [_cut(self.rows, _LIMBS[0]) + [0] * (WIDTH - _LIMBS[0])]
        for of_column in zip(self.counts, self.sums, self.squares, strict=True):
            rows.append([limb for value, most in zip(of_column, _LIMBS, strict=True) for limb in _cut(value, most)])
        return torch.tensor(rows, dtype=torch.float64)

    @classmethod
    def from_limbs(cls, limbs: Tensor) -> "Moments":
        """From a sum of limbs; what no numbers can have is refused."""
        if not bool(limbs.isfinite().all()) or bool((limbs != limbs.round()).any()):
            raise AccordError("its sums are not whole numbers")
        first, second = _LIMBS[0], _LIMBS[0] + _LIMBS[1]
        cuts = [(_joined(r[:first]), _joined(r[first:second]), _joined(r[second:])) for r in limbs.long().tolist()]
        (rows, *_), columns = cuts[0], cuts[1:]
        counts, sums, squares = (tuple(of[part] for of in columns) for part in range(3))
        for count, total, square in columns:
            if not 0 <= count <= rows or total * total > count * square:
                raise AccordError("its counts, sums and sums of squares cannot be those of any numbers")
        return cls(rows, counts, sums, squares)


def _exact(values: np.ndarray) -> tuple[int, int]:
    """The sum and the sum of squares of float32 numbers. Those of one power of two are added up in float64, which holds
    a sum of 2^29 numbers of 24 bits exactly."""
    fraction, power = np.frexp(values)
    place = power + _LOWEST
    square = fraction * fraction * 2.0**24
    high = np.floor(square)
    parts = (fraction * 2.0**24, high, (square - high) * 2.0**24)
    sums, highs, lows = (np.bincount(place, weights=part).tolist() for part in parts)
    total = sum(int(of) << at for at, of in enumerate(sums))
    return total, sum(
        ((int(hi) << 24) + int(lo)) << 2 * at for at, (hi, lo) in enumerate(zip(highs, lows, strict=True))
    )


def _cut(value: int, limbs: int) -> list[int]:
    size, sign = abs(value), -1 if value < 0 else 1
    return [sign * (size >> LIMB * place & (1 << LIMB) - 1) for place in range(limbs)]


def _joined(limbs: Sequence[int]) -> int:
    return sum(limb << LIMB * place for place, limb in enumerate(limbs))
