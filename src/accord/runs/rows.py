"""A run's rounds: a row each, appended in blocks to `metrics.jsonl` and read back from there as they are needed, so
that a run of any length takes the same memory. A run without a folder keeps the same lines, compressed.

Nothing holds a file open between two blocks: hundreds of runs may go at once.
"""

import json
import math
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, overload

from accord.core.errors import AccordError
from accord.core.files import naming, plain
from accord.core.jsonable import Json, Jsonable
from accord.runs.checksums import check_record, lines_of, parsed, running
from accord.runs.evaluation import Evaluation

_STRICT = json.JSONEncoder(allow_nan=False)
_BLOCK = 64  # rows
_MOST = 1e300  # of a figure, so that there is a sum over seeds: infinities are written as null
_SECONDS = 1.0  # that rows of slow rounds wait at most, for whoever watches the file


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RoundRow(Jsonable):
    """One round, as in metrics.jsonl, where a number that is none, of a model that diverged, is null. What may be None
    from `attackers` on was then not measured, and is not written."""

    round: int
    invited: int = 0
    accepted: int = 0
    left_out: dict[str, str] = field(default_factory=dict)  # client -> why
    steps: int = 0
    samples: int = 0
    train_loss: float | None = None
    client_norm: float | None = None
    engine_fields: Mapping[str, Any] = field(default_factory=dict)  # what an engine adds: bytes sent, a penalty
    attackers: int | None = None
    update_norm: float | None = None
    step_norm: float | None = None
    agreement: float | None = None
    below_tau: float | None = None
    agreement_by_layer: dict[str, float] | None = None
    privacy: dict[str, float] | None = None
    skipped: str | None = None  # why it changed nothing
    evaluation: Evaluation | None = None
    off_schedule: bool = False  # evaluated only because the run was to end here

    def fields_in_json(self) -> Json:
        form: Json = {name: getattr(self, name) for name in _ALWAYS}
        form.update(self.engine_fields)
        for name in _SOMETIMES:
            if (value := getattr(self, name)) is not None:
                form[name] = value
        if self.evaluation is not None:
            form["evaluation"] = self.evaluation.fields_in_json()
        if self.off_schedule:
            form["off_schedule"] = True
        return form

    def numbers(self) -> dict[str, float]:
        """What is a number of its own, and finite."""
        numbers = {key: of for key, of in self.fields_in_json().items() if isinstance(of, int | float)}
        return {key: of for key, of in numbers.items() if not isinstance(of, bool) and math.isfinite(of)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "RoundRow":
        known = {key: value for key, value in form.items() if key in _KNOWN}
        known |= {key: math.nan for key in _SOMETIMES if key in form and form[key] is None}
        if "evaluation" in known:
            known["evaluation"] = Evaluation.from_json(known["evaluation"])
        return cls(**known, engine_fields={key: value for key, value in form.items() if key not in _KNOWN})


_KNOWN = frozenset(field.name for field in fields(RoundRow)) - {"engine_fields"}
_ALWAYS = ("round", "invited", "accepted", "left_out", "steps", "samples", "train_loss", "client_norm")
_SOMETIMES = tuple(
    field.name
    for field in fields(RoundRow)
    if field.name not in (*_ALWAYS, "engine_fields", "evaluation", "off_schedule")
)


_TABLES = ("left_out", "agreement_by_layer", "privacy")
_FIGURES = tuple(
    field.name
    for field in fields(RoundRow)
    if field.name not in (*_TABLES, "engine_fields", "skipped", "evaluation", "off_schedule")
)


def json_line(form: Mapping[str, Any]) -> str:
    """JSON on a line of its own. Almost no round has a NaN, so only those that do are walked through."""
    try:
        return _STRICT.encode(form) + "\n"
    except ValueError:
        return json.dumps(plain(form)) + "\n"


class Log:
    """Lines that are appended in blocks: to a file, or, without one, to memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._blocks: list[bytes] = []
        self.waiting: list[str] = []
        self._written = time.monotonic()
        self.restart([])

    def restart(self, lines: Iterable[bytes]) -> None:
        """Knows the lines that the file has by now."""
        self.count, self._checksum = 0, running()
        for line in lines:
            self._count_in(line)

    def _count_in(self, line: bytes) -> int:
        self.count += 1
        self._checksum.update(line)
        return zlib.crc32(line)

    @property
    def checksum(self) -> str:
        """Of all lines so far, written or waiting."""
        return str(self._checksum.hexdigest())

    def append(self, form: Mapping[str, Any], now: bool = False) -> int:
        """Adds a line, and gives a check of it. It is written with its block; if it is wanted now, or the block before
        it is a while ago, at once."""
        line = json_line(form)
        check = self._count_in(line.encode())
        self.waiting.append(line)
        in_a_hurry = self.path and (now or time.monotonic() - self._written > _SECONDS)
        if in_a_hurry or len(self.waiting) >= _BLOCK:
            self.flush()
        return check

    def flush(self, sync: bool = False) -> None:
        """Writes what waits; with `sync`, so that the whole file survives a power cut."""
        waiting, self.waiting = self.waiting, []  # first of all: an interrupt must not write them twice
        block = "".join(waiting).encode()
        if self.path is None:
            self._blocks += [zlib.compress(block, 1)] if block else []
        elif block or sync:
            with naming(self.path), self.path.open("ab") as handle:
                handle.write(block)
                if sync:
                    handle.flush()
                    os.fsync(handle.fileno())
        self._written = time.monotonic()

    def lines(self) -> Iterator[bytes]:
        """All lines so far."""
        if self.path is not None:
            yield from lines_of(self.path)
        for block in self._blocks:
            yield from zlib.decompress(block).splitlines(keepends=True)
        yield from (line.encode() for line in self.waiting)


def read_row(line: bytes, path: Path | None) -> RoundRow:
    """A row of a run's file, or a sentence that names the file."""
    try:
        row = RoundRow.from_json(parsed(line, path))
        for name in _TABLES:
            dict(getattr(row, name) or {})
        figures = [getattr(row, name) for name in _FIGURES] + list((row.agreement_by_layer or {}).values())
        if not all(isinstance(figure, int | float | None) for figure in figures):
            raise TypeError("text in place of a number")
        return row
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AccordError(f"{path} is damaged: a row is not what a round writes ({error})") from None


def read_rows(folder: Path) -> "Rows":
    """The rows that a run folder holds, if they are what was written."""
    check_record(folder)
    return Rows.read(Log(folder / "metrics.jsonl"))


def read_history(folder: Path) -> tuple[int, int, list[tuple[int, Evaluation]]]:
    """How many rounds a run folder tells of, how many of them were skipped, and the evaluated ones."""
    path, reached, skipped, history = folder / "metrics.jsonl", 0, 0, []
    for line in lines_of(path):
        form = parsed(line, path)
        reached, skipped = form["round"], skipped + ("skipped" in form)
        if "evaluation" in form:
            history.append((reached, Evaluation.from_json(form["evaluation"])))
    if len({metrics for _, evaluation in history for metrics in _measured(evaluation, path)}) > 1:
        raise AccordError(f"{path} is damaged: its evaluations are not of the same metrics")
    return reached, skipped, history


def _measured(evaluation: Evaluation, path: Path) -> set[tuple[str, ...]]:
    """The metrics of each split: the same in every round of a run. A split may be missing, of a deployment whose nodes
    did not answer."""
    rows = [*evaluation.splits.values(), *evaluation.tests.values()]
    for figure in (value for row in rows for of in row.metrics.values() for value in of):
        if not isinstance(figure, int | float | None):
            raise TypeError("text in place of a figure")
        if figure is not None and abs(figure) > _MOST:
            raise AccordError(f"{path} is damaged: {figure} is no figure")
    return {tuple(row.metrics) for row in rows}


class Rows(Sequence[RoundRow]):
    """The rows of a run, read as they are asked for. Some are `kept` as they are, by their place: a run that goes on
    later takes evaluations back that it got only because it was to end there."""

    def __init__(
        self,
        log: Log | None = None,
        count: int = 0,
        last: RoundRow | None = None,
        kept: Mapping[int, RoundRow] | None = None,
    ) -> None:
        self._log, self._count, self.last, self._kept = log or Log(), count, last, kept or {}

    @classmethod
    def read(cls, log: Log) -> "Rows":
        """The rows that are there."""
        count, last = 0, b""
        for line in log.lines():
            count, last = count + 1, line
        return cls(log, count, read_row(last, log.path) if count else None)

    def append(self, row: RoundRow) -> int:
        """Adds a row, and gives a check of its line."""
        check = self._log.append(row.fields_in_json(), now=row.evaluation is not None)
        self._count, self.last = self._count + 1, row
        return check

    def so_far(self, keep: bool = True) -> "Rows":
        """These rows, and none that are still to come. With `keep`, those before the last stay as they are, too."""
        lines = enumerate(islice(self._log.lines(), self._count)) if keep else ()
        kept = {place: self._row(line) for place, line in lines if b'"off_schedule"' in line}
        return Rows(self._log, self._count, self.last, kept)

    def history(self) -> list[tuple[int, Evaluation]]:
        """(round, evaluation) for every evaluated round."""
        return [(row.round, row.evaluation) for row in self if row.evaluation is not None]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RoundRow]:
        for place, line in enumerate(islice(self._log.lines(), max(0, self._count - 1))):
            yield self._kept.get(place) or self._row(line)
        if self.last is not None:
            yield self.last

    @overload
    def __getitem__(self, index: int) -> RoundRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[RoundRow]: ...
    def __getitem__(self, index: int | slice) -> RoundRow | list[RoundRow]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._count)[index]
        if place == self._count - 1 and self.last is not None:
            return self.last
        return self._kept.get(place) or self._row(next(islice(self._log.lines(), place, None)))

    def _row(self, line: bytes) -> RoundRow:
        return read_row(line, self._log.path)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"<{self._count} rows>"
