"""Tables as owners have them, read in blocks of rows: CSV and Parquet files, data frames, dicts of columns and lists of
rows."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from accord.core.errors import AccordError
from accord.core.files import check_plain
from accord.data.cache import Progress
from accord.data.cells import CellColumn, is_nothing

BATCH = 1 << 14  # rows of a block
SEPARATORS = (",", ";", "\t")
SUFFIXES = (".csv", ".parquet", ".pq")


class Block(Protocol):
    """Some rows of a table."""

    def at(self, place: int, /) -> str:
        """Where one of its rows is."""
        ...

    def __len__(self) -> int: ...
    def texts(self, name: str) -> list[str]:
        """A column as it would stand in a CSV file; nothing is nothing there."""
        ...

    def feed(self, column: CellColumn) -> None:
        """Adds the cells of the column that has its name."""
        ...


class Sheet(Protocol):
    """A table: what it is called in sentences, its columns and its rows."""

    @property
    def where(self) -> str: ...
    @property
    def header(self) -> tuple[str, ...]: ...
    def blocks(self, progress: Progress | None = None) -> Iterator[Block]: ...


def open_sheet(source: Any, wanted: Sequence[str] = ()) -> Sheet:
    """The table in a file, or the one that is given. `wanted` columns help to tell how a CSV file separates its
    values."""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        check_plain(path)
        try:
            with path.open("rb") as file:
                begins = file.read(4)
        except OSError as error:
            raise AccordError(f"{path} cannot be read: {error.strerror}") from None
        parquet = begins == b"PAR1" or path.suffix.lower() in SUFFIXES[1:]
        return _sound(_Parquet(path) if parquet else _Csv(path, wanted))
    return _sound(_Memory(_columns_of(source)))


def _sound(sheet: Sheet) -> Sheet:
    for number, name in enumerate(sheet.header, start=1):
        # what pandas writes without being asked; it would become a feature
        if not name or name.startswith("__index_level_"):
            raise AccordError(
                f"column {number} of {sheet.where} has no name: name it, or write the file without an index"
                " (index=False)"
            )
        if name in sheet.header[: number - 1]:
            raise AccordError(f"{sheet.where} has two columns called {name}: each needs a name of its own")
    return sheet


# -------------------------------------------------------------------------------------------------------- CSV


@dataclass(frozen=True)
class _Lines:
    header: tuple[str, ...]
    rows: Sequence[tuple[int, tuple[str, ...]]]  # line number and values
    where: str

    def at(self, place: int) -> str:
        return f"line {self.rows[place][0]} of {self.where}"

    def __len__(self) -> int:
        return len(self.rows)

    def texts(self, name: str) -> list[str]:
        place = self.header.index(name)
        return [values[place] for _, values in self.rows]

    def feed(self, column: CellColumn) -> None:
        column.extend_texts(self.texts(column.name), self.at)


class _Csv:
    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self._path, self.where = path, str(path)
        self._separator = self._find_separator(wanted)
        self.header: tuple[str, ...] = next(self._lines())[1]
        if not self.header:
            raise AccordError(f"{path} is empty: its first line names the columns")

    def _find_separator(self, wanted: Sequence[str]) -> str:
        """The one that finds the wanted columns in the header, or else the most columns."""
        with self._path.open(encoding="utf-8-sig", errors="replace") as file:
            header = file.readline()

        def finds(separator: str) -> tuple[bool, int]:
            names = [name.strip().strip('"') for name in header.split(separator)]
            return all(name in names for name in wanted), len(names)

        return max(SEPARATORS, key=finds)

    def _lines(self, progress: Progress | None = None) -> Iterator[tuple[int, tuple[str, ...]]]:
        """(line number, values), the header first."""
        size, number = self._path.stat().st_size, 0
        try:
            with self._path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
                lines = csv.reader(file, delimiter=self._separator, strict=True)
                yield 1, tuple(name.strip() for name in next(lines, []))
                for count, line in enumerate(lines):
                    number = lines.line_num
                    if line:  # else an empty line
                        yield number, tuple(line)
                    if progress and count % BATCH == 0:
                        progress(f"reading {self._path.name}", raw.tell(), size)
                if progress:
                    progress(f"reading {self._path.name}", size, size)
        except UnicodeDecodeError as error:
            raise AccordError(
                f"{self._path} is not text in UTF-8 (it has a byte {error.object[error.start]:02x}): save it as CSV in"
                " UTF-8"
            ) from None
        except csv.Error as error:
            raise AccordError(f"line {lines.line_num} of {self._path} cannot be read as CSV: {error}") from None

    def _rows(self, progress: Progress | None) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The lines below the header, each with a value for every column."""
        for number, line in islice(self._lines(progress), 1, None):
            if len(line) != len(self.header):
                raise AccordError(
                    f"line {number} of {self._path} has {len(line)} values: the header names {len(self.header)} columns"
                )
            yield number, line

    def blocks(self, progress: Progress | None = None) -> Iterator[Block]:
        rows = self._rows(progress)
        while some := list(islice(rows, BATCH)):
            yield _Lines(self.header, some, self.where)


# ---------------------------------------------------------------------------------------------------- Parquet


@dataclass(frozen=True)
class _Batch:
    rows: Any  # pyarrow.RecordBatch
    first: int
    where: str

    def at(self, place: int) -> str:
        return f"row {self.first + place} of {self.where}"

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def texts(self, name: str) -> list[str]:
        return [_text(value) for value in self.rows.column(name).to_pylist()]

    def feed(self, column: CellColumn) -> None:
        import pyarrow
        from pyarrow import types

        cells = self.rows.column(column.name)
        numeric = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
        if types.is_temporal(cells.type):
            column.refuse_dates(str(cells.type))
        if any(holds(cells.type) for holds in numeric):
            values = cells.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
            column.extend_numbers(np.asarray(values, dtype=np.float64), self.at)
        elif types.is_nested(cells.type) and not types.is_dictionary(cells.type):
            raise AccordError(f"column {column.name} of {self.where} holds {cells.type}: features are numbers or text")
        else:
            column.extend(cells.to_pylist(), self.at)


class _Parquet:
    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise AccordError(
                f'{path} is read with pyarrow, which is not installed: pip install "accord-fl[tables]"'
            ) from None
        self._path, self.where = path, str(path)
        self._errors = (OSError, ValueError, pyarrow.ArrowException)
        try:
            with parquet.ParquetFile(path) as file:
                self.header = tuple(file.schema_arrow.names)
        except self._errors as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> AccordError:
        return AccordError(f"{self._path} is damaged or no Parquet file: {' '.join(str(error).split())}")

    def blocks(self, progress: Progress | None = None) -> Iterator[Block]:
        from pyarrow import parquet

        done = 0
        try:
            with parquet.ParquetFile(self._path) as file:
                for rows in file.iter_batches(BATCH):
                    yield _Batch(rows, done + 1, self.where)
                    done += rows.num_rows
                    if progress:
                        progress(f"reading {self._path.name}", done, file.metadata.num_rows)
        except self._errors as error:
            raise self._damaged(error) from None


# --------------------------------------------------------------------------------------------------- in memory


@dataclass(frozen=True)
class _Memory:
    columns: Mapping[str, Any]
    where: str = "the table"

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(map(str, self.columns))

    def at(self, place: int) -> str:
        return f"row {place} of {self.where}"

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def blocks(self, progress: Progress | None = None) -> Iterator[Block]:
        if len(self):
            yield self

    def texts(self, name: str) -> list[str]:
        return [_text(value) for value in np.asarray(self.columns[name], dtype=object).tolist()]

    def feed(self, column: CellColumn) -> None:
        values = self.columns[column.name]
        array = values if isinstance(values, list) else np.asarray(values)
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiub":
            column.extend_numbers(array.astype(np.float64), self.at)
        else:
            column.extend(list(array), self.at)


def _columns_of(source: Any) -> dict[str, Any]:
    """The columns of a data frame (pandas, polars), of a dict of columns, or of a list with a dict for each row."""
    if isinstance(source, list | tuple) and source and all(isinstance(row, Mapping) for row in source):
        names = list(dict.fromkeys(name for row in source for name in row))
        return {str(name): [row.get(name) for row in source] for name in names}
    if isinstance(source, Mapping):
        columns = {str(name): values for name, values in source.items()}
    elif hasattr(source, "columns") and hasattr(source, "__getitem__"):
        columns = {str(name): source[name] for name in source.columns}
    else:
        raise AccordError(
            "a table is a path of a CSV or Parquet file, a data frame, a dict of columns or a list with a dict for each"
            f" row, got {type(source).__name__}"
        )
    names = list(map(str, source if isinstance(source, Mapping) else source.columns))
    if twice := [name for name in columns if names.count(name) > 1]:
        raise AccordError(f"the table has two columns called {twice[0]}: each needs a name of its own")
    for name, values in columns.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise AccordError(f"column {name} of the table is {values!r}: a column has a cell for each row, in a list")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise AccordError(
            f"the columns of the table differ in length: {', '.join(f'{k} {n}' for k, n in lengths.items())}"
        )
    return columns


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if is_nothing(value) else str(value)
