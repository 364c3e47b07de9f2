"""What the papers print: 746 numbers from their tables, in `published.csv` beside this file.

Sources: Tenison et al., Gradient masked averaging for federated learning (TMLR 2023) as `tmlr`; Tenison's thesis as
`thesis`; the paper on corrective gradient weights as `corrective`. A column that a table leaves open is empty.
"""

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("published.csv")
_NOT_WHERE = ("paper", "table", "value", "std", "note")  # every other column says what the number is of


@dataclass(frozen=True)
class Printed:
    """One number of a table. `std` and `note` are empty where there is none."""

    columns: dict[str, str]
    value: float
    std: str
    note: str

    @property
    def rule(self) -> str | None:
        """How its rounds were chosen, by the name of a selection rule; None where the paper does not say."""
        window = self.columns["window"]
        rounds = re.fullmatch(r"rounds (\d+)-(\d+)", window)
        return f"window({rounds[1]},{rounds[2]})" if rounds else window or None

    @property
    def split(self) -> str:
        """What it was measured on: test or train."""
        return "train" if self.columns["metric"] == "train accuracy" else "test"

    @property
    def document(self) -> str:
        return f"{self.columns['paper']} {self.columns['table']}"

    @property
    def where(self) -> tuple[str, ...]:
        """What it is of, whoever printed it."""
        return tuple(value for name, value in self.columns.items() if name not in _NOT_WHERE)


@functools.cache
def numbers() -> tuple[Printed, ...]:
    with _FILE.open(newline="", encoding="utf-8") as file:
        return tuple(Printed(row, float(row["value"]), row["std"], row["note"]) for row in csv.DictReader(file))


@functools.cache
def _by_table() -> dict[tuple[str, str], list[Printed]]:
    by_table: dict[tuple[str, str], list[Printed]] = {}
    for number in numbers():
        by_table.setdefault((number.columns["paper"], number.columns["table"]), []).append(number)
    return by_table


def find(paper: str | None, table: str | None, values: Mapping[str, str]) -> list[Printed]:
    """The numbers of a table that belong to a cell: whose columns have the cell's values, as far as the table has such
    columns. Those on the test set come first."""
    if paper is None or table is None:
        return []
    known = set(numbers()[0].columns)
    wanted = {key: value for key, value in values.items() if key in known}
    of_table = _by_table().get((paper, table), [])
    matches = [number for number in of_table if all(number.columns[key] == value for key, value in wanted.items())]
    return sorted(matches, key=lambda number: number.split != "test")


def own_rules(paper: str | None, table: str | None) -> tuple[str, ...]:
    """The selection rules by which a table's numbers were made, the last rounds first; none where the paper does not
    say."""
    rules = {number.rule for number in find(paper, table, {})} - {None}
    return tuple(sorted(filter(None, rules), key=_last_round, reverse=True))


def _last_round(rule: str) -> int:
    return int((re.findall(r"\d+", rule) or ["0"])[-1])


def elsewhere(printed: Printed) -> list[Printed]:
    """What other documents print in the same place, where that is another value."""
    return [
        other
        for other in _by_where()[printed.where]
        if other.document != printed.document and other.value != printed.value
    ]


@functools.cache
def _by_where() -> dict[tuple[str, ...], list[Printed]]:
    places: dict[tuple[str, ...], list[Printed]] = {}
    for number in numbers():
        places.setdefault(number.where, []).append(number)
    return places
