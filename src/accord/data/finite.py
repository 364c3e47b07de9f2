"""Samples that are numbers: one that is not is named before it spoils a round."""

from collections.abc import Callable, Sequence

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


def finite(values: Tensor, who: str, first: int, columns: Sequence[str]) -> Tensor:
    """The same numbers, once they are seen to be numbers; what is missing has become NaN on its way here."""
    if values.is_floating_point() and not (good := values.isfinite()).all():
        row, *within = (~good).nonzero()[0].tolist()
        column = columns[within[0]] if within and len(columns) > 1 else columns[0]
        raise AccordError(
            f"row {first + row:,} of {who} has a number that is missing, infinite or NaN in column {column}: fill it in"
            " or leave the row out"
        )
    return values
