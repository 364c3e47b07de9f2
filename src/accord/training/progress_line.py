"""How a run in Python goes, on standard error: one line that is rewritten on a terminal, a line per evaluation, and one
at least every half minute, in a file. The command line has bars of its own."""

import os
import sys
import time
from functools import cache

from accord.runs.text import in_short
from accord.training.hooks import Event, Hook

_SILENCE = 30.0  # seconds that a file goes without a line, if rounds take no longer


def narrator() -> Hook:
    """A hook that tells the round, the last figures, and the time that is left."""
    began, first, figures = time.monotonic(), 0, ""
    said = began
    # anything else would show the codes as they are
    rewrites = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def tell(event: Event) -> None:
        nonlocal first, figures, said
        if not first:
            first = event.round  # a resumed run begins later
            if rewrites:
                event.at_end(lambda _: say(""))
        if event.row.evaluation is not None:
            figures = "".join(f" · {words}" for words in in_short(event.row.evaluation))
        now = time.monotonic()
        left = (now - began) / (event.round - first + 1) * (event.rounds - event.round)
        line = f"round {event.round}/{event.rounds}{figures} · {left:.0f} s left"
        if rewrites:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif event.row.evaluation is not None or now - said > _SILENCE:
            said = now
            say(line)

    return tell


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


@cache
def say_once(text: str) -> None:
    """The same, unless it was said before: a script may train a hundred times."""
    say(text)
