"""What a person sees while a run goes on: a live bar on a terminal, plain lines anywhere else. All of it on standard
error."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from accord.core.reports import LOST
from accord.runs.rows import RoundRow
from accord.runs.run import Run
from accord.runs.text import in_short, in_words
from accord.training.hooks import Event


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


MOST_WARNINGS = 5  # rounds of one run: one that diverged has as many as it has rounds left


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
        return ["further such rounds are not told one by one: metrics.jsonl has them"] * once


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


class Lines:
    """One plain line per evaluation, and one at least every half minute, for logs. Of notes, those in `noted` have been
    printed."""

    def __init__(self, console: Console, noted: set[str] | None = None) -> None:
        self.console, self.title, self._printed, self._when = console, "", "", time.monotonic()
        self._noted = set() if noted is None else noted
        self._pack, self._warnings, self._stops = Pack(), Warnings(), Stops()

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._when = time.monotonic()

    def data(self, label: str, done: int, total: int | None) -> None:
        if label != self._printed:
            self._printed = label
            self._line(label)

    def start(self, title: str, rounds: int, reached: int) -> None:
        self._tell_stops()
        self.title = title
        self._line(f"{title}: {how_far(rounds, reached)}")

    def round(self, event: Event) -> None:
        for text in self._warnings.of(self.title, event):
            self._line(f"{self.title} · {text}")
        if event.row.evaluation is not None or time.monotonic() - self._when > 30:
            self._line(f"{self.title} · round {event.round}/{event.rounds} · {news(event.row)}")

    def note(self, text: str) -> None:
        if text not in self._noted:  # every run would say the same
            self._noted.add(text)
            self._line(text)

    def end(self, run: Run) -> None:
        if text := ending(run):
            self._line(f"{self.title} · {text}")

    def begin(self, title: str, runs: int, rounds: int, reached: int) -> None:
        self._tell_stops()
        self._pack = Pack(runs, rounds, reached)
        self._line(f"{title}: {how_far(rounds, reached)}")

    def step(self, title: str, event: Event) -> None:
        self._pack.reached += 1
        for text in self._warnings.of(title, event):
            self._line(f"{title} · {text}")
        if time.monotonic() - self._when > 30:
            self._line(str(self._pack))

    def leave(self, title: str, run: Run) -> None:
        self._pack.left(run)
        if run.stopped:
            self._stops.add(title, run)
            return
        latest = f" · {news(run.recorded[-1])}" if run.recorded else ""
        self._line(f"{title} · {ending(run) or f'done after round {run.rounds}'}{latest} · {self._pack}")

    def _tell_stops(self) -> None:
        for text in self._stops.take():
            self._line(f"{text} · {self._pack}")

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self._tell_stops()


class Bars:
    """A live bar per run: rounds, time left, and news of the last evaluation in what room there is. Of notes, those in
    `noted` have been printed."""

    def __init__(self, console: Console, noted: set[str] | None = None) -> None:
        whole, rest = Column(no_wrap=True), Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._progress = Progress(
            TextColumn("{task.description}", table_column=whole, markup=False),
            BarColumn(bar_width=10),
            MofNCompleteColumn(table_column=whole),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True, table_column=whole),
            TextColumn("{task.fields[news]}", table_column=rest, markup=False),
            console=console,
            expand=True,
        )
        self._task: Any = None
        self._fetch: dict[str, Any] = {}
        self._noted = set() if noted is None else noted
        self._last = self._title = ""
        self._pack, self._warnings, self._stops = Pack(), Warnings(), Stops()

    def data(self, label: str, done: int, total: int | None) -> None:
        if label not in self._fetch:
            self._fetch[label] = self._progress.add_task(label, total=total, news="")
        self._progress.update(self._fetch[label], completed=done, total=total)
        if total is not None and done >= total:
            self._progress.remove_task(self._fetch.pop(label))

    def start(self, title: str, rounds: int, reached: int) -> None:
        self._tell_stops()
        self._last = how_far(rounds, reached) if reached else ""
        self._new_task(title, rounds, reached)

    def _new_task(self, title: str, rounds: int, reached: int) -> None:
        self._title = title
        for task in self._fetch.values():
            self._progress.remove_task(task)
        self._fetch.clear()
        self._task = self._progress.add_task(title, total=max(rounds, reached), completed=reached, news=self._last)

    def round(self, event: Event) -> None:
        for text in self._warnings.of(self._title, event):
            self._progress.console.print(text, style="yellow", markup=False)
        if event.row.evaluation is not None:
            self._last = news(event.row)
        self._progress.update(self._task, completed=event.round, news=self._last or news(event.row))

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._progress.console.print(text, style="dim", markup=False, highlight=False)

    def end(self, run: Run) -> None:
        self._progress.update(self._task, completed=run.rounds, total=run.rounds if run.spared else None)
        if text := ending(run):
            self._progress.console.print(text, style="yellow" if run.stopped else "dim", markup=False, highlight=False)

    def begin(self, title: str, runs: int, rounds: int, reached: int) -> None:
        self._tell_stops()
        self._pack = Pack(runs, rounds, reached)
        self._last = f"0/{runs} runs done"
        self._new_task(title, rounds, reached)

    def step(self, title: str, event: Event) -> None:
        for text in self._warnings.of(title, event):
            self._progress.console.print(f"{title} · {text}", style="yellow", markup=False)
        self._progress.update(self._task, advance=1)

    def leave(self, title: str, run: Run) -> None:
        self._pack.left(run)
        if run.stopped:
            self._stops.add(title, run)
        elif text := ending(run):
            self._progress.console.print(f"{title} · {text}", style="dim", markup=False, highlight=False)
        latest = f" · {news(run.recorded[-1])}" if run.recorded else ""
        self._progress.update(
            self._task, total=self._pack.rounds, news=f"{self._pack.done}/{self._pack.runs} runs done{latest}"
        )

    def _tell_stops(self) -> None:
        for text in self._stops.take():
            self._progress.console.print(text, style="yellow", markup=False, highlight=False)

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tell_stops()
        self._progress.stop()


def watcher_for(console: Console, noted: set[str] | None = None) -> Bars | Lines:
    """Bars on a terminal, lines elsewhere. A note is printed once; several watchers of one command share what they have
    `noted`."""
    return Bars(console, noted) if console.is_terminal else Lines(console, noted)
