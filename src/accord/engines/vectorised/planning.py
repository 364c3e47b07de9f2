"""The batches of many clients as rectangular arrays: step by step, lane by lane, filled up where a batch is short."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from accord.engines.contract import Order


@dataclass(frozen=True)
class Padded:
    """`rows: [S, L, B]`, filled up with a row of the lane's own; `count: [S, L]` says how many are real, 0 where a lane
    has nothing to do, in floats. `number: [S]` is the local step that each of the S is, for keyed draws. The first
    `steps` of them are real."""

    rows: np.ndarray
    count: np.ndarray
    number: np.ndarray
    steps: int

    @property
    def rests(self) -> bool:
        """Whether some lane has nothing to do in some step."""
        return bool((self.count[: self.steps] == 0).any())

    def share(self, dtype: np.dtype) -> np.ndarray:
        """`[S, L, B]`: 1 / count for what is real, 0 for the rest."""
        width = self.rows.shape[-1]
        share = np.full(self.rows.shape, 1.0 / width, dtype)
        short = self.count < width  # few of them are
        count = self.count[short][:, None]
        share[short] = np.where(np.arange(width) < count, 1.0 / np.maximum(count, 1.0), 0.0)
        return share


def padded(orders: Sequence[Order], width: int = 1, spare: bool = False) -> Padded:
    """One array of all lanes' batches, `width` wide or as wide as the largest; with `spare`, idle steps at its end make
    it as long as a power of two. Lanes of different runs may have one order, which is laid out once.

    >>> padded([(np.array([4, 5, 6]), [2, 1]), (np.array([7]), [1])]).rows.tolist()
    [[[4, 5], [7, 7]], [[6, 6], [7, 7]]]
    """
    different = {id(rows): (rows, sizes) for rows, sizes in orders}
    if len(different) < len(orders):
        place = dict(zip(different, range(len(different)), strict=True))
        which = np.array([place[id(rows)] for rows, _ in orders])
        once = padded(list(different.values()), width, spare)
        return Padded(once.rows[:, which], once.count[:, which], once.number, once.steps)
    steps, width = max(len(sizes) for _, sizes in orders), max(width, max(max(sizes) for _, sizes in orders))
    length = _length(steps, spare)
    count = np.zeros((length, len(orders)))
    count[:steps] = list(zip_longest(*(sizes for _, sizes in orders), fillvalue=0))
    rows = np.zeros((length, len(orders), width), dtype=np.int64)
    filled = np.logical_and.accumulate(count == width).sum(0).tolist()  # of each lane: batches before a shorter one
    for lane, ((order, sizes), whole) in enumerate(zip(orders, filled, strict=True)):
        rows[:whole, lane] = order[: whole * width].reshape(whole, width)
        if whole == steps:
            continue
        # Where a lane has nothing to do, or a batch is short, a row is repeated: a real sample, so that nothing
        # infinite or undefined comes of it.
        rows[whole:steps, lane] = order[0]
        start = whole * width
        for step in range(whole, len(sizes)):
            rows[step, lane] = order[start]
            rows[step, lane, : sizes[step]] = order[start : start + sizes[step]]
            start += sizes[step]
    return Padded(rows, count, np.minimum(np.arange(length), steps - 1), steps)


def waves(plan: Padded, pads: bool, spare: bool = False) -> list[Padded]:
    """The plan in parts that can be run one after another. A model for which padding is harmless (`pads`) takes it
    whole. For others, such as those with BatchNorm, every part has batches of one size: where lanes differ, those of
    another size wait. `spare` as in `padded`."""
    if pads:
        return [plan]
    sizes = [
        (step, size)
        for step, counts in enumerate(plan.count)
        for size in sorted({*counts.astype(int).tolist()} - {0}, reverse=True)
    ]
    parts: list[list[tuple[int, int]]] = []
    for step, size in sizes:
        if parts and parts[-1][-1][1] == size:
            parts[-1].append((step, size))
        else:
            parts.append([(step, size)])
    return [_of_size([step for step, _ in part], part[0][1], plan, spare) for part in parts]


def _of_size(steps: list[int], size: int, plan: Padded, spare: bool) -> Padded:
    idle = _length(len(steps), spare) - len(steps)
    chosen = steps + idle * steps[-1:]
    count = np.where(plan.count[chosen] == size, float(size), 0.0)
    count[len(steps) :] = 0.0
    return Padded(np.ascontiguousarray(plan.rows[chosen, :, :size]), count, plan.number[chosen], len(steps))


def _length(steps: int, spare: bool) -> int:
    """Steps that a plan is made for. With idle ones at their end, plans of different lengths have few shapes."""
    return 1 << (steps - 1).bit_length() if spare else steps
