"""Samples that are numbers: one that is not is named before it spoils a round."""

from collections.abc import Callable

from torch import Tensor

from accord.core.errors import AccordError

_AT_ONCE = 10_000  # samples: a mask of all may not fit in memory


def check_finite(x: Tensor, y: Tensor, whose: Callable[[int], str]) -> None:
    """Refuses NaN and infinities among samples and labels; `whose` says whose a row is."""
    for what, values in (("x", x), ("y", y)):
        if not values.is_floating_point():
            continue
        for first in range(0, len(values), _AT_ONCE):
            bad = ~values[first : first + _AT_ONCE].isfinite()
            if bad.any():
                row, *within = bad.nonzero()[0].tolist()
                column = "" if not within else f", column {', '.join(map(str, within))}"
                seen = values[first + row][tuple(within)].item() if within else values[first + row].item()
                raise AccordError(
                    f"{whose(first + row)} has {seen} in {what}, row {first + row}{column}: fill it in or leave the"
                    " row out (accord.data.table fills in tables)"
                )
