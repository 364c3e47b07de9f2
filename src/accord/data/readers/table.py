"""The user's own table, a CSV or Parquet file with a row for each sample: whose it is, what it is, and numbers that
describe it."""

import csv
import difflib
import io
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.cache import Progress
from accord.data.readers.npz import in_order, owned
from accord.data.samples import Samples

LARGEST = float(np.finfo(np.float32).max)
BATCH = 1 << 14  # rows between two calls of progress
SEPARATORS = (",", ";", "\t")
TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, eq=False)
class Table(Samples):
    """Samples whose features have names."""

    features: tuple[str, ...] = ()


def read_table(
    path: str | Path, client: str = "client", label: str = "label", progress: Progress | None = None
) -> Table:
    """The samples of a table; its features are all columns but `client` and `label`, in the file's order.

    Labels that are text or whole numbers are classes; if all are numbers and one has a fraction, they are targets of a
    regression.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            begins = file.read(4)
    except OSError as error:
        raise AccordError(f"{path} cannot be read: {error.strerror}") from None
    read = _parquet if begins == b"PAR1" or path.suffix.lower() in (".parquet", ".pq") else _csv
    rows = read(path, client, label, progress)
    if not rows.labels:
        raise AccordError(f"{path} has a header but no rows: each sample is one row")
    owner, owners = owned(rows.clients)
    y, classes = _targets(rows)
    x = torch.from_numpy(np.frombuffer(rows.values, dtype=np.float32).reshape(len(y), -1).copy())
    return Table(x, y, owner=owner, owners=owners, classes=classes, features=rows.features)


# ------------------------------------------------------------------------------------------------- both kinds


@dataclass
class _Rows:
    features: tuple[str, ...]
    clients: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    values: "array[float]" = field(default_factory=lambda: array("f"))
    numbers: dict[str, float | None] = field(default_factory=dict)  # each label as a number, where it is one

    def add(self, client: str, label: str, client_column: str, label_column: str, at: str) -> None:
        """Whose a row is and what. `at` says where it is."""
        for value, column in ((client, client_column), (label, label_column)):
            if not value.strip():
                raise AccordError(_missing(at, column))
        if label not in self.numbers:
            number = self.numbers[label] = _number(label)
            if number is not None and not abs(number) <= LARGEST:
                raise AccordError(
                    f"{at} has {label.strip()} in column {label_column}: a label is text or a finite number"
                )
        self.clients.append(client.strip())
        self.labels.append(label)


def _missing(at: str, column: str) -> str:
    return f"{at} has no value in column {column}: every row needs one in every column"


def _number(text: str) -> float | None:
    """The number a text is, exactly where it is whole; Python's own way of writing 1_000 does not count."""
    for kind in (int, float):
        try:
            return kind(text) if "_" not in text else None
        except ValueError:
            continue
    return None


def _targets(rows: _Rows) -> tuple[Tensor, tuple[str, ...]]:
    """Labels, and the classes' names if they are classes."""
    numbers = {label: number for label, number in rows.numbers.items() if number is not None}
    if len(numbers) < len(rows.numbers):
        named = {label: label.strip() for label in rows.numbers}
    elif all(number == int(number) for number in numbers.values()):
        named = {label: str(int(number)) for label, number in numbers.items()}
    else:
        return torch.tensor([numbers[label] for label in rows.labels], dtype=torch.float32), ()
    classes = in_order(set(named.values()))
    place = {name: number for number, name in enumerate(classes)}
    return torch.tensor([place[named[label]] for label in rows.labels]), tuple(classes)


def _features(path: Path, header: Sequence[str], client: str, label: str) -> tuple[str, ...]:
    """The columns that are neither client nor label, once the header is seen to be sound."""
    for number, name in enumerate(header, start=1):
        # what pandas writes without being asked; it would become a feature
        if not name or name.startswith("__index_level_"):
            raise AccordError(
                f"column {number} of {path} has no name: name it, or write the file without an index (index=False)"
            )
        if name in header[: number - 1]:
            raise AccordError(f"{path} has two columns called {name}: each needs a name of its own")
    for name, role in ((client, "client"), (label, "label")):
        if name not in header:
            close = difflib.get_close_matches(name, header, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"its columns are {', '.join(header[:20])}"
            raise AccordError(f"{path} has no column {name!r} for the {role}: {hint}")
    if client == label:
        raise AccordError(f"column {client!r} cannot be both client and label: name two columns")
    if len(header) == 2:
        raise AccordError(f"{path} has no column besides {client} and {label}: features are needed, too")
    return tuple(name for name in header if name not in (client, label))


# -------------------------------------------------------------------------------------------------------- CSV


def _csv(path: Path, client: str, label: str, progress: Progress | None) -> _Rows:
    size = path.stat().st_size
    try:
        with path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=_separator(path, client, label), strict=True)
            header = [name.strip() for name in next(lines, [])]
            if not header:
                raise AccordError(f"{path} is empty: its first line names the columns")
            rows = _Rows(_features(path, header, client, label))
            whose, what = header.index(client), header.index(label)
            others = [place for place in range(len(header)) if place not in (whose, what)]
            for number, line in enumerate(lines):
                if not line:
                    continue  # an empty line
                at = f"line {lines.line_num} of {path}"
                if len(line) != len(header):
                    raise AccordError(f"{at} has {len(line)} values: the header names {len(header)} columns")
                rows.add(line[whose], line[what], client, label, at)
                rows.values.extend(_numbers([line[place] for place in others], rows.features, at))
                if progress and number % BATCH == 0:
                    progress(f"reading {path.name}", raw.tell(), size)
            if progress:
                progress(f"reading {path.name}", size, size)
            return rows
    except UnicodeDecodeError as error:
        raise AccordError(
            f"{path} is not text in UTF-8 (it has a byte {error.object[error.start]:02x}): save it as CSV in UTF-8"
        ) from None
    except csv.Error as error:
        raise AccordError(f"line {lines.line_num} of {path} cannot be read as CSV: {error}") from None


def _separator(path: Path, client: str, label: str) -> str:
    """The one that finds both columns in the header, or else the most columns."""
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline()

    def finds(separator: str) -> tuple[bool, int]:
        names = [name.strip().strip('"') for name in header.split(separator)]
        return client in names and label in names, len(names)

    return max(SEPARATORS, key=finds)


def _numbers(texts: list[str], columns: Sequence[str], at: str) -> list[float]:
    """A row's features. Plain numbers, which most are, go the short way, which is several times as fast."""
    try:
        numbers = [float(text) for text in texts]
        if sum(map(abs, numbers)) <= LARGEST and "_" not in "".join(texts):
            return numbers
    except ValueError:
        pass
    return [_feature(text, column, at) for text, column in zip(texts, columns, strict=True)]


def _feature(text: str, column: str, at: str) -> float:
    number = TRUTH.get(text.strip().lower(), _number(text))
    if number is None:
        raise AccordError(
            f"{at} has {text.strip()!r} in column {column}: features are numbers"
            if text.strip()
            else _missing(at, column)
        )
    if not abs(number) <= LARGEST:
        raise AccordError(f"{at} has {text.strip()} in column {column}: features are finite numbers")
    return number


# ---------------------------------------------------------------------------------------------------- Parquet


def _parquet(path: Path, client: str, label: str, progress: Progress | None) -> _Rows:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise AccordError(
            f'{path} is read with pyarrow, which is not installed: pip install "accord-fl[tables]"'
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            rows = _Rows(_features(path, file.schema_arrow.names, client, label))
            for name in rows.features:
                kind = file.schema_arrow.field(name).type
                if not any(
                    getattr(pyarrow.types, f"is_{one}")(kind) for one in ("boolean", "integer", "floating", "decimal")
                ):
                    raise AccordError(f"column {name} of {path} holds {kind}: features are numbers")
            for batch in file.iter_batches(BATCH):
                done = len(rows.labels)
                whose, what = (batch.column(name).to_pylist() for name in (client, label))
                for number, (one, other) in enumerate(zip(whose, what, strict=True), start=done + 1):
                    rows.add(_text(one), _text(other), client, label, f"row {number} of {path}")
                columns = [
                    _floats(batch.column(name), pyarrow.float64(), name, path, done + 1) for name in rows.features
                ]
                rows.values.frombytes(np.stack(columns, axis=1).astype(np.float32).tobytes())
                if progress:
                    progress(f"reading {path.name}", len(rows.labels), file.metadata.num_rows)
            return rows
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise AccordError(f"{path} is damaged or no Parquet file: {' '.join(str(error).split())}") from None


def _text(value: Any) -> str:
    """A client's or a label's value as it would stand in a CSV file; nothing is nothing there."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)


def _floats(column: Any, double: Any, name: str, path: Path, first: int) -> np.ndarray:
    """A column's values of one batch, whose first row has this number."""
    if column.null_count:
        raise AccordError(_missing(f"row {first + column.is_null().to_pylist().index(True)} of {path}", name))
    values = column.cast(double, safe=False).to_numpy(zero_copy_only=False)
    if (bad := np.flatnonzero(~(np.abs(values) <= LARGEST))).size:
        raise AccordError(
            f"row {first + bad[0]} of {path} has {values[bad[0]]} in column {name}: features are finite numbers"
        )
    return values
