"""From what an owner has to what a model reads, and from what it answers to names: part of a run's folder
(`preparation.json`), so that a trained model can be used where its data is gone.

Means, levels and scales are those of the training clients' samples: neither unseen clients nor held-out rows count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.fields import Fields
from accord.core.jsonable import Json
from accord.core.names import in_order
from accord.data.cells import Cells
from accord.data.column_notes import notes_on_columns
from accord.data.federated import AsIs, Federation, Prepare, Scale
from accord.data.standardise import Standardise, fitted, follows_rows

MISSING = ("mean", "median", "zero", "refuse")  # what stands for a missing number, or nothing may be missing
_AS_IS = AsIs()
_SCALINGS: dict[str, Any] = {kind.__name__: kind for kind in (AsIs, Scale, Standardise)}


@dataclass(frozen=True)
class Column:
    """How a column of a table becomes inputs of a model: a number, or one input for each level of a category and one
    for all levels that training clients have not. If any of theirs are missing, a further input says so."""

    name: str
    levels: tuple[str, ...] | None = None  # of a category
    fill: float = 0.0  # in the place of a missing number
    indicator: bool = False
    missing: str = MISSING[0]

    @property
    def inputs(self) -> list[str]:
        """The names of what it becomes."""
        first = [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]
        other = [] if self.levels is None else [f"{self.name}=(other)"]
        return first + other + ([f"{self.name} missing"] if self.indicator else [])

    @property
    def flags(self) -> list[bool]:
        """Which of its inputs are 0 or 1, and so need no scaling."""
        return [self.levels is not None or place > 0 for place in range(len(self.inputs))]

    def encode(self, values: Tensor, levels: Sequence[str] | None) -> Tensor:
        """Cells as the model's inputs, `[N, len(inputs)]`. `levels` are those that the cells are numbers of."""
        away = values.isnan()
        if self.missing == "refuse" and away.any():
            row = int(away.nonzero()[0])
            raise AccordError(
                f'row {row} has no value in column {self.name}: with missing = "refuse" every row needs one'
            )
        mark = [away.float()[:, None]] if self.indicator else []
        if self.levels is None:
            return torch.cat([values.nan_to_num(nan=self.fill)[:, None], *mark], dim=1)
        width = len(self.levels) + 1
        place = {level: number for number, level in enumerate(self.levels)}
        known = torch.tensor([place.get(level, width - 1) for level in levels or ()] or [width - 1])
        numbers = known[values.nan_to_num(nan=0.0).long()]
        hot = torch.nn.functional.one_hot(numbers, width).float()
        # what is missing is a level of its own where training clients have it, else like a level they have not
        hot[away] = 0.0
        if not self.indicator:
            hot[away, width - 1] = 1.0
        return torch.cat([hot, *mark], dim=1)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Column":
        levels = form.get("levels")
        column = cls(**{**form, "levels": None if levels is None else tuple(levels)})
        texts = [column.name, column.missing, *(column.levels or ())]
        if not all(isinstance(text, str) for text in texts) or not isinstance(column.fill, int | float):
            raise TypeError(f"column {column.name!r} is not of names and numbers")
        return column


@dataclass(frozen=True)
class Preparation:
    """What a model reads and what its outputs mean."""

    shape: tuple[int, ...]  # of a sample as the model reads it
    outputs: int
    regression: bool = False
    classes: tuple[str, ...] = ()  # names; by number where there are none
    columns: tuple[Column, ...] = ()  # of a table
    scaling: Prepare | None = _AS_IS  # None: a function of the user's, which the folder does not hold
    fields: Fields | None = None  # of samples that are several tensors
    dropped: tuple[str, ...] = ()  # columns of the table that the model does not read: predictions go by them

    @classmethod
    def of(cls, fed: Federation) -> "Preparation | None":
        """How a federation's samples are prepared. The server of a deployment has none, and knows what its nodes agreed
        on."""
        if not len(fed.y):
            return fed.agreed
        scaling = fed.prepare if fed.applied is None else fed.applied
        known = (fed.shape, fed.outputs, fed.y.is_floating_point(), fed.classes, fed.columns)
        return cls(*known, scaling, fed.fields, fed.dropped)

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of the table, where there is one."""
        return tuple(column.name for column in self.columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the model's inputs, where it reads a table."""
        return tuple(name for column in self.columns for name in column.inputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The classes' names, or their numbers where they have none."""
        return self.classes or tuple(map(str, range(self.outputs)))

    def encode(self, cells: Cells) -> Tensor:
        """The cells of a table, whatever order it is in, as a model reads them, but for the scaling."""
        by_name = dict(zip(cells.names, cells.values.unbind(1), strict=True))
        return encoded(self.columns, by_name, cells.levels)

    @property
    def keeps_shape(self) -> bool:
        """Whether scaling is accord's own, which leaves the shape of samples as it is; a user's may not."""
        return type(self.scaling) in _SCALINGS.values()

    def scale(self, x: Tensor) -> Tensor:
        if self.scaling is None:
            raise AccordError(
                "this run scaled its samples by a function that its folder does not hold: give it to"
                " accord.load(folder, prepare=...)"
            )
        return self.scaling(x)

    def to_json(self) -> Json:
        return {
            "shape": list(self.shape),
            "outputs": self.outputs,
            "regression": self.regression,
            "classes": list(self.classes),
            "columns": [{f.name: getattr(column, f.name) for f in fields(column)} for column in self.columns],
            "scaling": {"name": type(self.scaling).__name__, **vars(self.scaling)} if self.keeps_shape else None,
            **({} if self.fields is None else {"fields": self.fields.to_json()}),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> "Preparation":
        """As `to_json` writes it; anything else is refused by a TypeError, a KeyError or a ValueError."""
        scaling = dict(form["scaling"] or {})
        make = _SCALINGS.get(scaling.pop("name", ""))
        numbers = [*form["shape"], form["outputs"]]
        if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
            raise ValueError("its shape and outputs must be whole numbers")
        if not all(isinstance(value, int | float) for values in scaling.values() for value in values):
            raise TypeError("its scaling must be numbers")
        if not all(isinstance(name, str) for name in [*form["classes"], *form.get("dropped", ())]):
            raise TypeError("its classes and dropped columns must be text")
        return cls(
            tuple(form["shape"]),
            form["outputs"],
            form["regression"],
            tuple(form["classes"]),
            tuple(map(Column.from_json, form["columns"])),
            None if make is None else make(**{name: tuple(values) for name, values in scaling.items()}),
            Fields.from_json(form["fields"]) if "fields" in form else None,
            tuple(form.get("dropped", ())),
        )


def encoded(columns: Sequence[Column], values: Mapping[str, Tensor], levels: Mapping[str, Sequence[str]]) -> Tensor:
    return torch.cat([column.encode(values[column.name], levels.get(column.name)) for column in columns], dim=1)


# ------------------------------------------------------------------------------------------------------ fitting


def fit_columns(
    fed: Federation,
    cells: Cells,
    missing: str,
    declared: Mapping[str, Sequence[str]],
    like: Sequence[Column] = (),
) -> Federation:
    """The federation over a table's cells with its samples as numbers that a model can read, by the clients that train.
    Inputs are those of the columns it should be `like`, where there are any."""
    rows = torch.cat([torch.zeros(0, dtype=torch.int64), *fed.train.values()])
    by_name = dict(zip(cells.names, cells.values.unbind(1), strict=True))
    if missing == "refuse":
        _refuse_missing(fed, cells)
    columns = tuple(
        _column_by(name, values[rows], cells.levels.get(name), missing, declared.get(name))
        for name, values in by_name.items()
    )
    if like:
        pairs = zip(columns, like, strict=True)
        columns = tuple(replace(column, levels=other.levels, indicator=other.indicator) for column, other in pairs)
    x, notes = encoded(columns, by_name, cells.levels), tuple(notes_on_columns(columns, by_name, rows))
    return replace(fed, x=x, columns=columns, notes=notes, refit=Refit(cells, missing, declared, columns))


@dataclass(frozen=True, eq=False)
class Refit:
    """A table's cells as they were read, with its settings: what its inputs are made of anew."""

    cells: Cells
    missing: str
    declared: Mapping[str, Sequence[str]]  # levels that the user names
    like: Sequence[Column]

    def __call__(self, fed: Federation) -> Federation:
        return fit_columns(fed, self.cells, self.missing, self.declared, self.like)


def refitted(fed: Federation, before: Federation) -> Federation:
    """A federation whose clients were others before, prepared by those that train now. Where its samples are of a table
    it keeps the number of its inputs, so that one model reads both."""
    scaled = follows_rows(before)
    if fed.refit is not None:
        fed = fed.refit(with_known_classes(fed))
    return replace(fed, prepare=fitted(fed)) if scaled else fed


def _column_by(
    name: str, values: Tensor, levels: Sequence[str] | None, missing: str, declared: Sequence[str] | None
) -> Column:
    """A column by the training clients' cells of it."""
    there = values[~values.isnan()]
    indicator = len(there) < len(values)
    if levels is not None:
        seen = {levels[int(number)] for number in there.unique()}
        return Column(name, tuple(declared or in_order(seen)), indicator=indicator, missing=missing)
    fill = 0.0
    if missing == "mean" and len(there):
        fill = float(there.double().mean())
    elif missing == "median" and len(there):
        fill = float(np.median(there.numpy().astype(np.float64)))
    return Column(name, None, fill, indicator, missing)


def _refuse_missing(fed: Federation, cells: Cells) -> None:
    for _, client, rows in fed.groups():
        for place, name in enumerate(cells.names):
            away = cells.values[rows, place].isnan()
            if away.any():
                raise AccordError(
                    f"the client {client} has no value in column {name} in {int(away.sum())} of {len(rows)} rows, the"
                    f' first is row {int(rows[away][0]) + 1} of the table: fill it in, or choose missing = "mean"'
                )


def with_known_classes(fed: Federation) -> Federation:
    """The federation with the classes that participating clients have, and no others."""
    if fed.y.is_floating_point() or not fed.classes:
        return fed
    taking_part = torch.cat([*fed.train.values(), *fed.heldout.values()])
    known = fed.y[taking_part].unique()
    for client, rows in fed.unseen.items():
        alone = ~torch.isin(fed.y[rows], known)
        if alone.any():
            label = fed.classes[int(fed.y[rows][alone][0])]
            raise AccordError(
                f"the unseen client {client} has label {label!r} in {int(alone.sum())} of its rows, and no client that"
                " takes part has it, so no model can learn it: leave these rows out, or let such a client take part"
            )
    if len(known) == len(fed.classes):
        return fed
    number = torch.full((len(fed.classes),), -1).index_copy(0, known, torch.arange(len(known)))
    return replace(fed, y=number[fed.y], classes=tuple(fed.classes[place] for place in known.tolist()))
