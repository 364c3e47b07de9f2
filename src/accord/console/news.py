"""What is said of rounds and runs while they go on: a round in a few words, what did not go well in it, how a run
ended, and how far runs that go together have come."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field

from accord.core.reports import LOST
from accord.runs.rows import RoundRow
from accord.runs.run import Run
from accord.runs.text import in_short, in_words
from accord.training.hooks import Event

MOST_WARNINGS = 5  # rounds of one run: one that diverged has as many as it has rounds left
_FEW = 12  # runs in lockstep each of which has a line when it ends; of more it is only said how far they have come


def news(row: RoundRow) -> str:
    """A round in a few words: `train 92.10 · held-out 91.20 · unseen 90.10 · loss 0.412 · agreement 0.58`."""
    words = []
    if row.evaluation is not None:
        words += in_short(row.evaluation)
    if row.train_loss is not None and math.isfinite(row.train_loss):
        words.append(f"loss {row.train_loss:.3f}")
    if row.agreement is not None:
        words.append(f"agreement {row.agreement:.2f}")
    return " · ".join(words)


def how_far(rounds: int, reached: int) -> str:
    """What a run has before it: `40 rounds`, `40 rounds, going on after round 10`, `40 rounds, done already`."""
    done = "done already" if reached >= rounds else f"going on after round {reached}" if reached else ""
    return ", ".join(
        [f"{max(rounds, reached)} round{'' if max(rounds, reached) == 1 else 's'}", *([done] if done else [])]
    )


class Warnings:
    """What a person should know of rounds that did not go well, and of a run with many of them no more than that."""

    def __init__(self) -> None:
        self._rounds = Counter[str]()

    def of(self, title: str, event: Event) -> list[str]:
        """What is to be said of this round of the run called `title`."""
        texts = warnings(event)
        self._rounds[title] += bool(texts)
        if not texts or self._rounds[title] <= MOST_WARNINGS:
            return texts
        once = self._rounds[title] == MOST_WARNINGS + 1
        return ["further rounds like these are not reported here: metrics.jsonl has them"] * once


def warnings(event: Event) -> list[str]:
    """What did not go well in a round. Reports lost on the way are what the settings asked for: no news."""
    row, sentences = event.row, []
    bad = [f"{client} ({why})" for client, why in row.left_out.items() if why != LOST]
    if bad:
        sentences.append(
            f"round {event.round}: left out {', '.join(bad[:3])}"
            + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        )
    if row.skipped:
        sentences.append(f"round {event.round} was skipped: {row.skipped}")
    return sentences


def ending(run: Run) -> str | None:
    """Why a run ended, if it did so before its rounds."""
    if run.stopped:
        return f"stopped after round {run.rounds}: {run.stopped}"
    return None if run.flat is None else f"done after round {run.rounds}: {in_words(run.flat)}"


@dataclass
class Pack:
    """Runs that go together, and how far they have come; rounds are those of all of them."""

    runs: int = 0
    rounds: int = 0
    reached: int = 0
    done: int = 0
    stopped: int = 0
    since: float = field(default_factory=time.monotonic)
    first: int = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.reached

    def left(self, run: Run) -> None:
        """Counts a run that is over."""
        self.done, self.stopped = self.done + (run.stopped is None), self.stopped + (run.stopped is not None)
        self.rounds -= run.spared

    @property
    def few(self) -> bool:
        """Whether the end of each of them is worth a line."""
        return self.runs <= _FEW

    @property
    def over(self) -> bool:
        return self.done + self.stopped >= self.runs

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.runs} runs done", f"{self.reached:,}/{self.rounds:,} rounds"]
        if self.first < self.reached < self.rounds and not self.stopped:
            seconds = (time.monotonic() - self.since) / (self.reached - self.first) * (self.rounds - self.reached)
            parts.append(f"{seconds:,.0f} s left" if seconds < 120 else f"{seconds / 60:,.0f} min left")
        return " · ".join(parts)


class Stops:
    """Runs that were stopped together: what is said of them, once for each reason."""

    def __init__(self) -> None:
        self._runs: dict[str, list[tuple[str, Run]]] = {}

    def add(self, title: str, run: Run) -> None:
        self._runs.setdefault(run.stopped or "", []).append((title, run))

    def take(self) -> list[str]:
        """The lines that are due: `12 runs stopped after rounds 3 to 5: interrupted`, and of one run its title."""
        lines = []
        for why, runs in self._runs.items():
            rounds = sorted({run.rounds for _, run in runs})
            after = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"
            who = f"{runs[0][0]} ·" if len(runs) == 1 else f"{len(runs)} runs"
            lines.append(f"{who} stopped after {after}: {why}")
        self._runs.clear()
        return lines
