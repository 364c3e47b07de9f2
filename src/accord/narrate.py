"""A line on standard error that tells how a run in Python goes. The command line has bars of its own."""

import sys
import time

from accord.evaluate import TITLES, primary_metric
from accord.loop import Event, Hook
from accord.tables import figure


def narrator() -> Hook:
    """A hook that rewrites one line: the round, the last figures, and the time that is left."""
    began, first, figures = time.monotonic(), 0, ""

    def tell(event: Event) -> None:
        nonlocal first, figures
        first = first or event.round - 1  # a resumed run begins later
        if "evaluation" in event.row:
            metric = primary_metric(event.row["evaluation"])
            splits = event.row["evaluation"]["splits"]
            figures = "".join(f" · {TITLES[name]} {figure(split[metric]['by_sample'], metric)}" for name, split in splits.items())
        left = (time.monotonic() - began) / (event.round - first) * (event.rounds - event.round)
        end = "\n" if event.round == event.rounds else ""
        print(f"\r\033[Kround {event.round}/{event.rounds}{figures} · {left:.0f} s left", end=end, file=sys.stderr, flush=True)

    return tell
