"""Samples of several tensors, `{"input_ids": ..., "attention_mask": ...}` or `(picture, numbers)`, laid out flat: see
`accord.core.fields`."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from accord.core.errors import AccordError
from accord.core.fields import Fields
from accord.data.columns import tensor

_LABELS = ("labels", "label")  # what collators and tokenised data sets call the target
Who = TypeVar("Who")


def is_several(x: Any) -> bool:
    """Whether a sample, or all of them, is several tensors: by name, or a tuple of them. A list is one array."""
    if isinstance(x, tuple) and x:
        return all(isinstance(part, Tensor | np.ndarray) for part in x)
    return isinstance(x, Mapping)


def laid_flat(groups: Mapping[Who, Any]) -> tuple[dict[Who, Any], Fields | None]:
    """Groups, `(x, y)` or map-style Datasets of such pairs, with samples of several tensors laid out flat, and what
    they are made of; others stay as they are."""
    made, fields = dict(groups), None
    for who, data in groups.items():
        if isinstance(data, tuple | list):
            if len(data) == 2 and _are_several(*data):
                x, fields = flat_arrays(str(who), data[0], fields)
                made[who] = (x, data[1])
        elif isinstance(data, Dataset):
            made[who], fields = flat_dataset(str(who), data, fields)
    return made, fields


def _are_several(x: Any, y: Any) -> bool:
    """Of all samples at once. A tuple with an array for each sample is the samples."""
    return is_several(x) and not (isinstance(x, tuple) and len(x) == len(y))


def flat_arrays(who: str, x: Any, fields: Fields | None = None) -> tuple[Tensor, Fields]:
    """All samples at once: `x` holds arrays with a row for each sample."""
    named = x.items() if isinstance(x, Mapping) else enumerate(x)
    tensors = {name: tensor(f"input {name} of {who}", values) for name, values in named}
    lengths = {name: len(values) if values.ndim else 0 for name, values in tensors.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise AccordError(f"the inputs of {who} have different numbers of samples: {counts}")
    samples: Any = tensors if isinstance(x, Mapping) else list(tensors.values())
    fields = fields or Fields.of(samples)
    return fields.pack(samples, who), fields


def flat_dataset(who: str, data: Any, fields: Fields | None = None) -> tuple[Any, Fields | None]:
    """A Dataset whose items are pairs of a flat sample and its label, where the samples are several tensors. What is no
    map-style Dataset with samples stays as it is, for others to say so."""
    known = isinstance(data, TensorDataset | IterableDataset)
    if known or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or not len(data):
        return data, fields
    first = data[0]
    pair = _pair(first)
    if pair is not None and is_several(pair[0]):
        fields = fields or Fields.of(_of_one(f"sample 0 of {who}", pair[0]))
    return Looked(who, data, first, fields), fields


class Looked(Dataset[Any]):
    """A map-style Dataset whose first item was looked at, and is not asked for again; with its samples laid out flat,
    where they are several tensors."""

    def __init__(self, who: str, data: Any, first: Any, fields: Fields | None) -> None:
        self.who, self.data, self.first, self.fields = who, data, first, fields

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> Any:
        item = self.first if number == 0 else self.data[number]
        if self.fields is None:
            return item
        pair, what = _pair(item), f"sample {number:,} of {self.who}"
        if pair is None or not is_several(pair[0]):
            raise AccordError(f"{what} must be a pair (x, y) whose x is the inputs {self.fields}, as the first one is")
        return self.fields.pack(_of_one(what, pair[0]), what)[0], pair[1]


def _pair(item: Any) -> tuple[Any, Any] | None:
    """Sample and label; of a dictionary with a label among its entries, the others are the sample."""
    if isinstance(item, Mapping):
        label = next((name for name in _LABELS if name in item), None)
        if label is None:
            return None
        return {name: value for name, value in item.items() if name != label}, item[label]
    return (item[0], item[1]) if isinstance(item, tuple | list) and len(item) == 2 else None


def _of_one(what: str, x: Any) -> Any:
    """A sample's tensors, each as a batch of one."""
    if isinstance(x, Mapping):
        return {name: tensor(f"{name} of {what}", value)[None] for name, value in x.items()}
    return [tensor(what, value)[None] for value in x]
