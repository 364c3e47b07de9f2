"""What the papers print: 746 numbers from their tables, in `published.csv` beside this file.

Sources: Tenison et al., Gradient masked averaging for federated learning (TMLR 2023) as `tmlr`; Tenison's thesis as `thesis`; the paper on
corrective gradient weights as `corrective`. A column that a table leaves open is empty.
"""

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("published.csv")


@dataclass(frozen=True)
class Printed:
    """One number of a table. `std` and `note` are empty where there is none."""

    columns: dict[str, str]
    value: float
    std: str
    note: str


@functools.cache
def numbers() -> tuple[Printed, ...]:
    with _FILE.open(newline="", encoding="utf-8") as file:
        return tuple(Printed(row, float(row["value"]), row["std"], row["note"]) for row in csv.DictReader(file))


def find(paper: str | None, table: str | None, values: Mapping[str, str]) -> list[Printed]:
    """The numbers of a table that belong to a cell: whose columns have the cell's values, as far as the table has such columns."""
    if paper is None:
        return []
    known = set(numbers()[0].columns)
    wanted = {"paper": paper, **({"table": table} if table else {}), **{key: value for key, value in values.items() if key in known}}
    return [number for number in numbers() if all(number.columns[key] == value for key, value in wanted.items())]
