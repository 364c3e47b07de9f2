"""Columns of lists, such as a tokeniser makes of texts: several of them are a sample's inputs, by name.

Texts are of different lengths. They are filled up with 0 to the longest, where an attention mask says what is text;
labels of every word are filled up with -100, which counts for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.fields import Fields
from accord.core.predicted import NO_LABEL

TOKENS = ("input_ids", "token_type_ids", "attention_mask")  # what a tokeniser makes, and a model takes


def read_inputs(groups: Mapping[str, Any], columns: Sequence[str]) -> tuple[dict[str, Tensor], Fields]:
    """All samples of each group, laid out flat, and what they are made of."""
    parts = {column: {who: _lists(who, data, column) for who, data in groups.items()} for column in columns}
    inputs = {}
    for column, of in parts.items():
        lengths = np.concatenate([part[1] for part in of.values()])
        if len(lengths) and lengths.min() < lengths.max() and TOKENS[2] not in columns:
            raise AccordError(
                f"the lists of column {column} have {lengths.min()} to {lengths.max()} numbers: fill them up to one"
                f" length, or name the column {TOKENS[2]} too, which says what is there"
            )
        inputs[column] = {who: filled_up(part, int(lengths.max(initial=0)), 0) for who, part in of.items()}
    fields = Fields.of({column: next(iter(of.values())) for column, of in inputs.items()})
    return {who: fields.pack({column: of[who] for column, of in inputs.items()}, who) for who in groups}, fields


def read_dense_labels(groups: Mapping[str, Any], column: str) -> dict[str, Tensor]:
    """A class for each place of a sequence, of each group, `[N, T]`."""
    parts = {who: _lists(who, data, column) for who, data in groups.items()}
    longest = max(int(lengths.max(initial=0)) for _, lengths in parts.values())
    for who, (values, _) in parts.items():
        if bad := sorted({int(value) for value in values if value < 0} - {NO_LABEL}):
            raise AccordError(
                f"column {column} of {who} has label {bad[0]}: classes count from 0 on, and {NO_LABEL} stands for none"
            )
    return {who: filled_up(part, longest, NO_LABEL) for who, part in parts.items()}


def filled_up(part: tuple[np.ndarray, np.ndarray], length: int, filling: int) -> Tensor:
    """Lists of different lengths as one tensor `[N, length]`; numbers alone as `[N]`."""
    values, lengths = part
    if not length:
        return torch.from_numpy(values)
    made = np.full((len(lengths), length), filling, dtype=values.dtype)
    made[np.arange(length) < lengths[:, None]] = values
    return torch.from_numpy(made)


def _lists(who: str, data: Any, column: str) -> tuple[np.ndarray, np.ndarray]:
    """A column's numbers one after another, and how many each row has; of a column that holds numbers, none."""
    import pyarrow
    import pyarrow.compute

    array = data.select_columns([column]).with_format("arrow")[:].column(column).combine_chunks()
    if isinstance(array, pyarrow.ChunkedArray):  # of no rows, or too many for one
        array = pyarrow.concat_arrays(array.chunks)
    missing = array.is_null()
    lengths = np.zeros(0, dtype=np.int64)
    types = pyarrow.types
    if types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type):
        lengths = pyarrow.compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        array = array.flatten()
    numbers = types.is_integer(array.type) or types.is_boolean(array.type)
    if missing.true_count or array.null_count:
        row = int(np.argmax(missing.to_numpy(zero_copy_only=False))) if missing.true_count else None
        where = "some row" if row is None else f"row {row:,}"
        raise AccordError(f"{where} of {who} has nothing in column {column}: fill it in or leave the row out")
    if not numbers and not types.is_floating(array.type):
        raise AccordError(f"column {column} of {who} holds lists of {array.type}: inputs are lists of numbers")
    values = array.to_numpy(zero_copy_only=False).astype(np.int64 if numbers else np.float32)
    return values, lengths
