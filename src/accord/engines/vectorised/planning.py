"""The batches of many clients as rectangular arrays: step by step, lane by lane, filled up where a batch is short."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Order = tuple[np.ndarray, list[int]]  # the rows of a lane's batches, one after another, and the batches' sizes


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

    @property
    def share(self) -> np.ndarray:
        """`[S, L, B]`: 1 / count for what is real, 0 for the rest."""
        each = 1.0 / np.maximum(self.count, 1.0)[..., None]
        return np.where(np.arange(self.rows.shape[-1]) < self.count[..., None], each, 0.0)


def padded(orders: Sequence[Order], width: int = 1) -> Padded:
    """One array of all lanes' batches, `width` wide or as wide as the largest. Lanes of different runs may have one
    order, which is laid out once.

    >>> padded([(np.array([4, 5, 6]), [2, 1]), (np.array([7]), [1])]).rows.tolist()
    [[[4, 5], [7, 7]], [[6, 6], [7, 7]]]
    """
    different = {id(rows): (rows, sizes) for rows, sizes in orders}
    if len(different) < len(orders):
        place = dict(zip(different, range(len(different)), strict=True))
        which = np.array([place[id(rows)] for rows, _ in orders])
        once = padded(list(different.values()), width)
        return Padded(once.rows[:, which], once.count[:, which], once.number, once.steps)
    steps, width = (
        max(len(sizes) for _, sizes in orders),
        max(width, max(size for _, sizes in orders for size in sizes)),
    )
    rows = np.zeros((steps, len(orders), width), dtype=np.int64)
    count = np.zeros((steps, len(orders)))
    for lane, (own, sizes) in enumerate(orders):
        # batches up to here fill the width
        whole = next((i for i, size in enumerate(sizes) if size != width), len(sizes))
        rows[:whole, lane] = own[: whole * width].reshape(whole, width)
        rows[whole:, lane] = own[0]
        start = whole * width
        for step in range(whole, len(sizes)):
            # Where a batch is short its first row is repeated: a real sample, so that nothing infinite or undefined
            # comes of it.
            rows[step, lane] = own[start]
            rows[step, lane, : sizes[step]] = own[start : start + sizes[step]]
            start += sizes[step]
        count[: len(sizes), lane] = sizes
    return Padded(rows, count, np.arange(steps), steps)


def waves(plan: Padded, pads: bool) -> list[Padded]:
    """The plan in parts that can be run one after another. A model for which padding is harmless (`pads`) takes it
    whole. For others, such as those with BatchNorm, every part has batches of one size: where lanes differ, those of
    another size wait."""
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
    return [_of_size([step for step, _ in part], part[0][1], plan) for part in parts]


def _of_size(steps: list[int], size: int, plan: Padded) -> Padded:
    counts = plan.count[steps]
    return Padded(
        np.ascontiguousarray(plan.rows[steps, :, :size]),
        np.where(counts == size, float(size), 0.0),
        plan.number[steps],
        len(steps),
    )


def lengthened(plan: Padded) -> Padded:
    """The plan with idle steps at its end, so that plans of different lengths have few shapes."""
    more = (1 << (plan.steps - 1).bit_length()) - plan.steps
    if not more:
        return plan
    rows, number = (
        np.concatenate([values, np.repeat(values[-1:], more, axis=0)]) for values in (plan.rows, plan.number)
    )
    return Padded(rows, np.concatenate([plan.count, np.zeros((more, plan.count.shape[1]))]), number, plan.steps)
