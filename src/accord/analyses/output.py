"""An analysis on paper: a table that is printed and written, every point of the figure, and the figure."""

import csv
import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accord.analyses import style
from accord.core.errors import AccordError
from accord.core.files import write_text, write_whole
from accord.runs.text import Cells

Rows = Sequence[dict[str, Any]]  # all with the same keys, which name columns and their units


@dataclass(frozen=True)
class Result:
    """What an analysis found. `table` is printed; `points` is what the figure shows, seed by seed where there are
    seeds."""

    name: str
    table: Rows
    points: Rows
    draw: Callable[[], Any]  # a matplotlib figure
    notes: tuple[str, ...] = ()


def check_folder(out: Path) -> None:
    """Refuses a place where nothing can be written, before any work is done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AccordError(
            f"--out must be a folder that can be written to, got {str(out)!r}: {error.strerror}"
        ) from None


def write(result: Result, out: Path, kind: str) -> list[Path]:
    """NAME.csv, NAME-points.csv and, unless `kind` is none, the figure."""
    check_folder(out)
    tables = {f"{result.name}.csv": result.table, f"{result.name}-points.csv": result.points}
    for name, rows in tables.items():
        write_text(out / name, as_csv(rows))
    if kind == "none":
        return [out / name for name in tables]
    picture = out / f"{result.name}.{kind}"
    write_whole(picture, style.rendered(result.draw, kind))
    return [*(out / name for name in tables), picture]


def as_csv(rows: Rows) -> str:
    """Rows as CSV, with the columns of the first."""
    held = io.StringIO()
    writer = csv.DictWriter(held, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return held.getvalue()


def cells(rows: Rows) -> Cells:
    """Rows as text. Percentages get two decimals, other numbers four digits."""
    return [list(rows[0]), *([_shown(column, value) for column, value in row.items()] for row in rows)]


def _shown(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}" if "%" in column else f"{value:.4g}"


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation over seeds, if there is more than one."""
    if len(values) < 2:
        return None
    return statistics.stdev(values)
