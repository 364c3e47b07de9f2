"""What a person should know of a table's columns before a model is trained on them or predicts, a line each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from accord.data.cells import Cells

if TYPE_CHECKING:
    from accord.data.preparation import Column

_ROWS = 10  # of fewer training rows, values that all differ say little
_VALUES = 3  # that a line quotes
_LONGEST = 40  # characters of a value that is quoted


def notes_on_columns(columns: "Sequence[Column]", values: Mapping[str, Tensor], rows: Tensor) -> Iterator[str]:
    """`values` are the cells by column, and `rows` those of training clients: unseen ones are not looked at."""
    kinds = [column.name for column in columns if column.levels is not None]
    counts = {column.name: int(values[column.name][rows].isnan().sum()) for column in columns if column.indicator}
    if kinds:
        yield (
            f"categories, an input for each level: {', '.join(kinds)} (a level that no training row has keeps the"
            " weight that the model began with)"
        )
    if counts:
        how = {"zero": "0"}.get(columns[0].missing, f"the training clients' {columns[0].missing}")
        listed = ", ".join(f"{name} ({count} of {len(rows)})" for name, count in counts.items())
        none = ", of categories none of the levels" if any(name in kinds for name in counts) else ""
        yield f"missing values become {how}{none}, and a further input says where: {listed}"
    for column in columns:
        cells = values[column.name][rows]
        there = cells[~cells.isnan()]
        different = len(there.unique())
        if different <= 1 and not column.indicator:
            yield f"column {column.name} has one value in all training data, so it tells the model nothing"
        elif different == len(there) >= _ROWS and (column.levels is not None or bool((there == there.round()).all())):
            yield f"column {column.name} has another value in every training row: if it is an id, name it in `drop`"


def notes_on_unknown_levels(columns: "Sequence[Column]", cells: Cells) -> Iterator[str]:
    """Of new rows: which categories they have that training rows had not, and what is done with them."""
    known = {column.name: set(column.levels) for column in columns if column.levels is not None}
    for name, values in zip(cells.names, cells.values.unbind(1), strict=True):
        levels = cells.levels.get(name, ()) if name in known else ()
        unknown = {number: level for number, level in enumerate(levels) if level not in known[name]}
        if unknown:
            rows = int(torch.isin(values, torch.tensor(list(unknown), dtype=values.dtype)).sum())
            more = f" and {len(unknown) - _VALUES} more" if len(unknown) > _VALUES else ""
            quoted = ", ".join(_quoted(level) for level in list(unknown.values())[:_VALUES])
            yield (
                f"column {name}: {rows:,} of {len(values):,} rows have values that no training row had"
                f" ({quoted}{more}); they are encoded as {name}=(other), whose weights were not trained"
            )


def _quoted(level: str) -> str:
    return repr(level if len(level) <= _LONGEST else f"{level[:_LONGEST]}...")
