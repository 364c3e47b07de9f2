"""What a person sees while a run goes on: a live bar on a terminal, plain lines anywhere else. All of it on standard
error."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from accord.console.news import Pack, Stops, Warnings, ending, how_far, news
from accord.runs.run import Run
from accord.training.hooks import Event

_SECONDS = 30.0  # after which the next round prints a line
_WIDEST = 48  # letters of a title beside a bar
_IN_FULL = 4  # runs one after another whose every evaluation has a line; of more a line each is enough


class Lines:
    """One plain line per evaluation, and one at least every half minute, for logs; of many runs in lockstep, that line
    alone, and of many runs one after another, from the fifth on, that line and one at their end. Of notes, those in
    `noted` have been printed."""

    def __init__(self, console: Console, noted: set[str] | None = None) -> None:
        self.console, self.title, self._when = console, "", time.monotonic()
        self._runs = 0
        self._noted = set() if noted is None else noted
        self._pack, self._warnings, self._stops = Pack(), Warnings(), Stops()

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._when = time.monotonic()

    @property
    def _is_due(self) -> bool:
        return time.monotonic() - self._when > _SECONDS

    def data(self, label: str, done: int, total: int | None) -> None:
        self.note(label)  # the parts of a command read the same again

    def start(self, title: str, rounds: int, reached: int) -> None:
        self._tell_stops()
        self.title = title
        self._runs += 1
        if self._runs <= _IN_FULL:
            self._line(f"{title}: {how_far(rounds, reached)}")

    def round(self, event: Event) -> None:
        for text in self._warnings.of(self.title, event):
            self._line(f"{self.title} · {text}")
        if (event.row.evaluation is not None and self._runs <= _IN_FULL) or self._is_due:
            self._line(f"{self.title} · round {event.round}/{event.rounds} · {news(event.row)}")

    def note(self, text: str) -> None:
        if text not in self._noted:  # every run would say the same
            self._noted.add(text)
            self._line(text)

    def end(self, run: Run) -> None:
        if self._runs > _IN_FULL:
            self._line(self._of_end(self.title, run))
        elif text := ending(run):
            self._line(f"{self.title} · {text}")

    def begin(self, title: str, runs: int, rounds: int, reached: int) -> None:
        self._tell_stops()
        self._pack = Pack(runs, rounds, reached)
        self._line(f"{title}: {how_far(rounds, reached)}")

    def step(self, title: str, event: Event) -> None:
        self._pack.reached += 1
        for text in self._warnings.of(title, event):
            self._line(f"{title} · {text}")
        if self._is_due:
            self._line(str(self._pack))

    def leave(self, title: str, run: Run) -> None:
        self._pack.left(run)
        if run.stopped:
            self._stops.add(title, run)
        elif not self._pack.few:
            if self._pack.over or self._is_due:
                self._line(str(self._pack))
        else:
            self._line(f"{self._of_end(title, run)} · {self._pack}")

    def _of_end(self, title: str, run: Run) -> str:
        latest = f" · {news(run.recorded[-1])}" if run.recorded else ""
        return f"{title} · {ending(run) or f'done after round {run.rounds}'}{latest}"

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
        short = title if len(title) <= _WIDEST else f"{title[: _WIDEST - 1]}…"
        self._task = self._progress.add_task(short, total=max(rounds, reached), completed=reached, news=self._last)

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
        elif self._pack.few and (text := ending(run)):
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
