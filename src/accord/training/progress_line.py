"""A line on standard error that tells how a run in Python goes. The command line has bars of its own."""

import sys
import time

from accord.runs.text import in_short
from accord.training.loop import Event, Hook


def narrator() -> Hook:
    """A hook that rewrites one line: the round, the last figures, and the time that is left."""
    began, first, figures = time.monotonic(), 0, ""

    def tell(event: Event) -> None:
        nonlocal first, figures
        first = first or event.round - 1  # a resumed run begins later
        if "evaluation" in event.row:
            figures = "".join(f" · {words}" for words in in_short(event.row["evaluation"]))
        left = (time.monotonic() - began) / (event.round - first) * (event.rounds - event.round)
        end = "\n" if event.round == event.rounds else ""
        print(f"\r\033[Kround {event.round}/{event.rounds}{figures} · {left:.0f} s left", end=end, file=sys.stderr, flush=True)

    return tell
