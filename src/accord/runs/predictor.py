"""Predictions of a trained model for new rows: labels and probabilities by name, or values of a regression."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.data.cells import Cells
from accord.data.column_notes import notes_on_unknown_levels
from accord.data.finite import check_finite
from accord.data.from_arrays import as_tensor
from accord.data.inputs import flat_arrays, is_several
from accord.data.preparation import Preparation
from accord.data.readers.table import read_cells
from accord.engines.model_inputs import answer_of

_AT_ONCE = 1024  # samples; fixed, so that a row's prediction is the same in every process


@dataclass(frozen=True, eq=False)
class Predictions:
    """One prediction for each row, in order. `labels` and `probabilities: [N, classes]`, or `values: [N, ...]` of a
    regression. `ids` are what a table's rows go by: its columns that the training data's `drop` names, or else `row`,
    counted from 1. `ignored` columns of the table were not read; `notes` name categories that no training row had."""

    classes: tuple[str, ...] = ()
    probabilities: Tensor | None = None
    values: Tensor | None = None
    ignored: tuple[str, ...] = ()
    ids: Mapping[str, list[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """The most likely class of each row, by name."""
        if self.probabilities is None:
            raise AccordError("a regression has values and no labels: see .values")
        return [self.classes[place] for place in self.probabilities.argmax(1).tolist()]

    def __len__(self) -> int:
        return len(self.probabilities if self.probabilities is not None else self.values)  # type: ignore[arg-type]

    def columns(self) -> dict[str, list[Any]]:
        """As a table: what rows go by, `prediction`, and a column `p(class)` for each class."""
        if self.probabilities is None:
            assert self.values is not None
            return {**self.ids, "prediction": self.values.tolist()}
        named = {f"p({name})": column.tolist() for name, column in zip(self.classes, self.probabilities.T, strict=True)}
        return {**self.ids, "prediction": self.labels, **named}

    def to_pandas(self) -> Any:
        """The same as a data frame."""
        return frame(self.columns())

    def to_csv(self) -> str:
        """The same as the text of a CSV file."""
        text = io.StringIO(newline="")
        columns = self.columns()
        # the writer quotes no lone "\r", at which readers end a line
        odd = any("\r" in str(cell) for cells in (self.classes, self.ids, *self.ids.values()) for cell in cells)
        lines = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL)
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        columns = self.columns()
        return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))

    def __repr__(self) -> str:
        what = f"classes {', '.join(self.classes)}" if self.classes else "values of a regression"
        return f"<{len(self):,} predictions, {what}>"


def frame(columns: Mapping[str, Any]) -> Any:
    """Columns as a data frame of pandas."""
    try:
        import pandas
    except ImportError:
        raise AccordError("to_pandas() needs pandas, which is not installed: pip install pandas") from None
    return pandas.DataFrame(columns)


def predict(module: nn.Module, preparation: Preparation, data: Any) -> Predictions:
    """What the module says of rows that are prepared as its training data was."""
    rows = rows_of(preparation, data)
    with torch.no_grad():
        outputs = [_answer(module, preparation, block) for block in rows.x.split(_AT_ONCE) if len(block)]
    shape = () if preparation.regression else (len(preparation.names),)
    output = torch.cat(outputs) if outputs else torch.zeros(0, *shape)
    bad = output.isnan().flatten(1).any(1) if output.ndim > 1 else output.isnan()
    if bad.any():
        first = 1 + int(bad.nonzero()[0])  # as answers count them
        raise AccordError(f"the model answers NaN for {int(bad.sum())} of {len(bad)} rows, the first is row {first}")
    if preparation.regression:
        return Predictions(values=output, ignored=rows.ignored, ids=rows.ids, notes=rows.notes)
    return Predictions(preparation.names, output, ignored=rows.ignored, ids=rows.ids, notes=rows.notes)


def _answer(module: nn.Module, preparation: Preparation, x: Tensor) -> Tensor:
    if preparation.keeps_shape:  # first of all: numbers of another shape may be broadcast without a word
        _check_shape(x, preparation)
    read = preparation.scale(x)
    _check_shape(read, preparation)
    return answer(answer_of(module, preparation.fields, read), preparation)


def _check_shape(x: Tensor, preparation: Preparation) -> None:
    if tuple(x.shape[1:]) != preparation.shape:
        raise AccordError(f"the model reads samples of shape {preparation.shape}, and these have {tuple(x.shape[1:])}")


def answer(output: Tensor, preparation: Preparation) -> Tensor:
    """A model's outputs as probabilities, or as values of a regression."""
    classes = len(preparation.names)
    if preparation.regression:
        return output.squeeze(1) if output.ndim == 2 and output.shape[1] == 1 else output
    if output.ndim == 2 and output.shape[1] >= classes:
        return output.softmax(1)[:, :classes]
    if classes == 2 and output.shape[1:].numel() == 1:  # of two classes one logit says it all
        yes = output.reshape(-1).sigmoid()
        return torch.stack([1 - yes, yes], dim=1)
    raise AccordError(
        f"the model answers with shape {tuple(output.shape[1:])} a sample, and there are {classes} classes"
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as numbers, before scaling. Of a table: what they go by, columns that are not read, and what to know of
    them."""

    x: Tensor
    ids: dict[str, list[Any]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def rows_of(preparation: Preparation, data: Any) -> Rows:
    """The data as the model's preparation reads it."""
    if preparation.fields is not None:
        if not is_several(data):
            raise AccordError(
                f"the model takes {preparation.fields}: give a dict, or a tuple, of arrays, got {type(data).__name__}"
            )
        x, _ = flat_arrays("the data", data, preparation.fields)
        check_finite(x, x[:0], lambda row: "the data")
        return Rows(x)
    array = isinstance(data, Tensor | np.ndarray) or (isinstance(data, list) and not _is_rows(data))
    if not preparation.columns:
        if not array and hasattr(data, "to_numpy"):
            data, array = data.to_numpy(), True
        if not array:
            raise AccordError(
                f"this model was trained on arrays, whose columns have no names: give an array, not a"
                f" {type(data).__name__}"
            )
        x = as_tensor("the data", data)
        check_finite(x, x[:0], lambda row: "the data")
        return Rows(x)
    if array:
        return Rows(preparation.encode(_cells(preparation, as_tensor("the data", data))))
    wanted = {column.name: column.levels is not None for column in preparation.columns}
    taken = {"prediction", *(f"p({name})" for name in preparation.names)}  # by what the model answers
    cells, ids, ignored = read_cells(data, wanted, [name for name in preparation.dropped if name not in taken])
    notes = tuple(notes_on_unknown_levels(preparation.columns, cells))
    return Rows(preparation.encode(cells), ids, ignored, notes)


def _is_rows(data: list[Any]) -> bool:
    return bool(data) and isinstance(data[0], Mapping)


def _cells(preparation: Preparation, x: Tensor) -> Cells:
    """An array as the table that the model was trained on."""
    names = preparation.features
    kinds = [column.name for column in preparation.columns if column.levels is not None]
    if kinds:
        raise AccordError(f"an array cannot say which category a row is of ({', '.join(kinds)}): give a table by name")
    if x.ndim != 2 or x.shape[1] != len(names):
        raise AccordError(
            f"the array has shape {tuple(x.shape)}, and the model reads {len(names)} columns: {', '.join(names)}"
        )
    return Cells(names, x.float(), {})
