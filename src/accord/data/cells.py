"""Cells of a table as numbers. A column holds numbers, or categories by the number of their level; what is missing is
NaN in both."""

import datetime
import re
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError

LARGEST = float(np.finfo(np.float32).max)
# what pandas takes for missing too, and the question mark of older tables; `none` is an answer
BLANK = frozenset(["", "?", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "<NA>", "#N/A"])
LEVELS = 1000  # more are ids or free text, which tell a model nothing as categories
_TRUTH = {"true": 1.0, "false": 0.0}
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|\d{1,2}:\d{2}(:\d{2})?"
)
_NOTHING = ("NoneType", "NAType", "NaTType")  # pandas' own among them, by name: it need not be installed

At = Callable[[int], str]  # where the cell with this number is, such as `line 7 of patients.csv`


@dataclass(frozen=True, eq=False)
class Cells:
    """`values: [N, C]` float32, a column for each of `names`; `levels` of those that hold categories, in the order of
    their numbers."""

    names: tuple[str, ...]
    values: Tensor
    levels: Mapping[str, tuple[str, ...]]


class CellColumn:
    """A column as it is read, block after block. The first cell that is not missing says whether it holds numbers or
    categories, unless it is declared to hold categories, which may be numbers then. A column that a `trained` model
    reads holds what it was trained on: categories where it is declared, else numbers."""

    def __init__(self, name: str, declared: bool = False, trained: bool = False) -> None:
        self.name, self._declared, self._trained = name, declared, trained
        self._values = array("f")
        self._numbers: dict[str, int] = {}  # of the levels
        self._first: tuple[bool, str] | None = None  # whether the first cell is a number, and which one it is

    def extend_numbers(self, values: np.ndarray, at: At) -> None:
        """Further cells, all numbers or NaN."""
        if self._declared or (self._first is not None and not self._first[0]):
            self.extend(values.tolist(), at)
            return
        bad = np.flatnonzero(np.abs(values) > LARGEST)
        if bad.size:
            raise AccordError(self._infinite(at(int(bad[0])), values[bad[0]]))
        if self._first is None and (there := np.flatnonzero(~np.isnan(values))).size:
            self._first = True, f"{values[there[0]]:g} in {at(int(there[0]))}"
        self._values.frombytes(values.astype(np.float32).tobytes())

    def extend_texts(self, cells: Sequence[str], at: At) -> None:
        """Further cells of a file of text. Plain numbers, which most are, go the short way, which is several times as
        fast."""
        if not self._declared and (self._first is None or self._first[0]):
            try:
                values = np.array(list(map(float, cells)))
            except ValueError:
                pass
            else:
                if (np.abs(values) <= LARGEST).all() and "_" not in "".join(cells):
                    self.extend_numbers(values, at)
                    return
        self.extend(cells, at)

    def extend(self, cells: Sequence[Any], at: At) -> None:
        """Further cells of any kind."""
        for place, cell in enumerate(cells):
            level = self._numbers.get(cell) if isinstance(cell, str) else None
            self._values.append(self._value(cell, place, at) if level is None else level)

    def _value(self, cell: Any, place: int, at: At) -> float:
        read = self._read(cell, place, at)
        if read is None:
            return float("nan")
        if self._declared:
            return self._level(read if isinstance(read, str) else as_text(read))
        number = not isinstance(read, str)
        if self._trained and not number:
            raise AccordError(
                f"{at(place)} has {cell!r} in column {self.name}, where the model was trained on numbers: correct the"
                " cell, or leave it empty"
            )
        if self._first is None:
            self._first = number, f"{read!r} in {at(place)}" if not number else f"{read:g} in {at(place)}"
        if number != self._first[0]:
            raise AccordError(
                f"{at(place)} has {cell!r} in column {self.name}, but there is {self._first[1]}: a column holds"
                " numbers or categories; correct the cell, leave it empty, or name the column in `categories`"
            )
        if isinstance(read, str):
            if not any(map(str.isalpha, read)):
                raise AccordError(
                    f"{at(place)} has {read!r} in column {self.name}, which is no number: write 1000.5 without other"
                    " signs, or name the column in `categories`"
                )
            return self._level(read)
        if not abs(read) <= LARGEST:
            raise AccordError(self._infinite(at(place), cell))
        return read

    def _read(self, cell: Any, place: int, at: At) -> float | str | None:
        """A cell as a number or a text; None if it is missing."""
        if isinstance(cell, bytes):
            cell = cell.decode("utf-8", "replace")
        if isinstance(cell, str):
            text = cell.strip()
            if text in BLANK:
                return None
            number = _TRUTH.get(text.lower(), number_of(text))
            if number is None and _DATE.fullmatch(text):
                self.refuse_dates(f"{text!r} in {at(place)}")
            return text if number is None else number
        if is_nothing(cell):
            return None
        if isinstance(cell, datetime.date | datetime.time | datetime.timedelta | np.datetime64 | np.timedelta64):
            self.refuse_dates(f"{cell} in {at(place)}")
        try:
            number = float(cell)
        except (TypeError, ValueError):
            raise AccordError(
                f"{at(place)} has a {type(cell).__name__} in column {self.name}: a cell is a number or a text"
            ) from None
        return None if number != number else number

    def refuse_dates(self, example: str) -> NoReturn:
        """Of a column that holds dates, such as this one."""
        way_out = "turn them into numbers, such as days since another date, or name the column in `drop`"
        if self._trained:
            way_out = f"the model was trained on {'categories' if self._declared else 'numbers'}, so write these"
        raise AccordError(f"column {self.name} holds dates or times ({example}): {way_out}")

    def _infinite(self, at: str, cell: Any) -> str:
        return f"{at} has {str(cell).strip()} in column {self.name}: features are finite numbers"

    def _level(self, text: str) -> float:
        number = self._numbers.setdefault(text, len(self._numbers))
        if number >= LEVELS and not self._declared:
            raise AccordError(
                f"column {self.name} has more than {LEVELS:,} different texts: that is an id or free text and not a"
                " category, so name it in `drop`"
            )
        return number

    @property
    def levels(self) -> tuple[str, ...] | None:
        """Of a column of categories, in the order of their numbers."""
        return tuple(self._numbers) if self._numbers or self._declared else None

    def values(self) -> np.ndarray:
        return np.frombuffer(self._values, dtype=np.float32)


def joined(columns: Sequence[CellColumn], rows: int) -> Cells:
    """The columns of one table."""
    values = np.stack([column.values() for column in columns], axis=1) if rows else np.zeros((0, len(columns)), "f")
    levels = {column.name: column.levels for column in columns if column.levels is not None}
    return Cells(tuple(column.name for column in columns), torch.from_numpy(values), levels)


def as_text(value: float) -> str:
    """A number as a level: 1 and 1.0 are one."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def level_name(level: Any) -> str:
    """A level that the user names, as a cell that holds it is read."""
    text = str(level).strip()
    number = _TRUTH.get(text.lower(), number_of(text))
    return text if number is None else as_text(number)


def number_of(text: str) -> float | None:
    """The number a text is, exactly where it is whole; Python's own way of writing 1_000 does not count."""
    for kind in (int, float):
        try:
            return kind(text) if "_" not in text else None
        except ValueError:
            continue
    return None


def is_nothing(cell: Any) -> bool:
    """Whether a cell of a table in memory says by its type or as NaN that it is missing."""
    return type(cell).__name__ in _NOTHING or (isinstance(cell, float | np.floating) and bool(np.isnan(cell)))


def check_names(mine: Collection[str], theirs: Collection[str], who: str, whose: str, every: str = "owners") -> None:
    """Refuses columns of a table that another has not, or that it lacks."""
    for name in theirs:
        if name not in mine:
            raise AccordError(f"{who} has no column {name}, which {whose} has: all {every} need the same columns")
    for name in mine:
        if name not in theirs:
            raise AccordError(f"{who} has a column {name}, which {whose} has not: all {every} need the same columns")
