"""Where each of the papers' numbers stands among the studies: its study, its cell or row, the table's rule, and the
data it takes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from accord.data import available as data_available
from accord.studies import Analysis, everything
from accord.studies.published import Printed, find


@dataclass(frozen=True)
class Place:
    """One printed number, and where ours stands."""

    printed: Printed
    study: str
    where: dict[str, Any]  # the axes' values of a cell, or what names the row and column of an analysis
    data: str

    @property
    def rule(self) -> str | None:
        """By which the number's rounds were chosen; None where the paper does not say."""
        return self.printed.rule

    @property
    def lacks(self) -> str | None:
        """The data set that is not on this machine, if it is not."""
        return None if data_available(self.data) else self.data


@cache
def places() -> tuple[Place, ...]:
    """Every place of every printed number. A number has several where several studies ask for its cell."""
    return tuple(_places())


def _places() -> Iterator[Place]:
    for name, study in everything().items():
        if isinstance(study, Analysis):
            for number in study.printed:
                if where := study.place(number):
                    yield Place(number, name, where, study.settings["data.name"])
            continue
        for cell in study.cells:
            for number in find(study.paper, study.table, cell.values):
                yield Place(number, name, cell.values, cell.settings["data.name"])
