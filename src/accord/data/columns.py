"""Columns of Hugging Face datasets as tensors: which hold the samples, which the label, and which says whose a row
is."""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.fields import Fields
from accord.data.finite import finite
from accord.data.token_columns import TOKENS, read_dense_labels, read_inputs

# what the samples belong to, the number of the first of them there, samples, labels
Block = tuple[str, int, Tensor, Tensor]

# Pillow's mode -> the mode read; other modes of bytes are read as RGB
_OF_BYTES = {"L": "L", "RGB": "RGB", "RGBA": "RGBA", "1": "L"}
_NUMBERS = ("whole numbers", "numbers")
_BESIDE = ("pictures", "arrays")  # a sample is one of these, or numbers of several columns


def library(name: str, extra: str) -> Any:
    """The library, imported now; `extra` is the option of accord's installation that brings it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise AccordError(
            f'{name} is needed to read these data and is not installed: pip install "accord-fl[{extra}]"'
        ) from None


@dataclass(frozen=True, eq=False)
class Columns:
    """Datasets whose rows are read one after another into the same tensor, and the columns that are read."""

    groups: Mapping[str, Any]  # what the rows belong to, for sentences -> datasets.Dataset
    features: tuple[str, ...]
    label: str
    classes: tuple[str, ...]

    @cached_property
    def _flat(self) -> tuple[dict[str, Tensor], Fields] | None:
        """Samples that are several inputs, or what a tokeniser made of a text, and what they are made of."""
        features = next(iter(self.groups.values())).features
        several = len(self.features) > 1 or self.features[0] == TOKENS[0]
        if not several or all(kind(features[column]) != "arrays" for column in self.features):
            return None
        return read_inputs(self.groups, self.features)

    @property
    def fields(self) -> Fields | None:
        """Of samples that are several tensors: what they are made of."""
        return None if self._flat is None else self._flat[1]

    @classmethod
    def of(
        cls, groups: Mapping[str, Any], features: str | Sequence[str] | None, label: str, without: str | None
    ) -> "Columns":
        """Checked and, where `features` are left out, chosen: never the label, nor the column `without`, which says
        whose a row is."""
        for who, data in groups.items():
            _check_dataset(who, data)
        who, data = next(iter(groups.items()))
        for column in (label, without):
            if column is not None:
                _check_column(who, data, column)
        kinds = {column: kind(feature) for column, feature in data.features.items()}
        chosen = _chosen(kinds, features, [label] if without is None else [label, without])
        for other, more in groups.items():
            for column in (*chosen, label):
                _check_column(other, more, column)
                mine, first = more.features[column], data.features[column]
                alike = (kind(mine) in _NUMBERS and kind(first) in _NUMBERS and column != label) or kind(mine) == kind(
                    first
                )
                if not alike or getattr(mine, "names", None) != getattr(first, "names", None):
                    raise AccordError(
                        f"column {column} of {other} is {mine}, but that of {who} {first}: they must be alike"
                    )
        return cls(groups, chosen, label, _classes(groups, label, data.features[label]))

    @property
    def rows(self) -> int:
        return sum(len(data) for data in self.groups.values())

    def owners(self, client: str) -> np.ndarray:
        """Whose each row of the first dataset is."""
        who, data = next(iter(self.groups.items()))
        feature = data.features[client]
        if kind(feature) not in ("text", "classes", "whole numbers"):
            raise AccordError(f"column {client} of {who} holds {kind(feature)}: a client is text or a whole number")
        values = _filled(who, data, client)
        return np.asarray([feature.names[value] for value in values] if kind(feature) == "classes" else values)

    def blocks(self, at_once: int) -> Iterator[Block]:
        """All samples and labels, `at_once` rows at a time; lists of numbers all at once."""
        dense = kind(next(iter(self.groups.values())).features[self.label]) == "arrays"
        every_place = read_dense_labels(self.groups, self.label) if dense else {}
        for who, data in self.groups.items():
            labels = every_place[who] if dense else self._labels(who, data)
            for first, samples in [(0, self._flat[0][who])] if self._flat else self._samples(who, data, at_once):
                yield who, first, samples, labels[first : first + len(samples)]

    def _samples(self, who: str, data: Any, at_once: int) -> Iterator[tuple[int, Tensor]]:
        column, what = self.features[0], kind(data.features[self.features[0]])
        view = data.select_columns(list(self.features))
        if what == "pictures":
            library("PIL", "huggingface")
            if not view.features[column].decode:
                view = view.cast_column(column, library("datasets", "huggingface").Image())
        # Arrow gives columns of numbers whole; the library's way to NumPy looks at each number, but knows arrays
        view = view.with_format({"pictures": None, "arrays": "numpy"}.get(what, "arrow"))
        for first in range(0, len(data), at_once):
            try:
                with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is found
                    rows = view[first : first + at_once]
                    if what in _BESIDE:
                        samples = stacked(who, first, rows[column])
                    else:
                        samples = torch.from_numpy(
                            np.stack([np.asarray(rows[name], dtype=np.float32) for name in self.features], 1)
                        )
            except OSError as error:
                raise AccordError(f"a picture in or after row {first:,} of {who} cannot be decoded: {error}") from None
            yield first, finite(samples if what == "pictures" else samples.float(), who, first, self.features)

    def _labels(self, who: str, data: Any) -> Tensor:
        values, what = _filled(who, data, self.label), kind(data.features[self.label])
        if what == "text":
            number = {name: place for place, name in enumerate(self.classes)}
            return torch.tensor([number[value] for value in values])
        if what == "numbers":
            return finite(torch.tensor(values, dtype=torch.float32), who, 0, [self.label])
        if (lowest := min(values)) < 0:
            row = values.index(lowest)
            raise AccordError(
                f"row {row:,} of {who} has label {lowest}: classes count from 0 on, and {lowest} often stands for no"
                " label"
            )
        return torch.tensor(values, dtype=torch.int64)


def kind(feature: Any) -> str:
    """What a column holds, by the class of its feature, so that no library is imported to ask."""
    name, dtype = type(feature).__name__, str(getattr(feature, "dtype", ""))
    if name in ("Image", "ClassLabel"):
        return {"Image": "pictures", "ClassLabel": "classes"}[name]
    if name == "Value":
        if dtype.startswith(("int", "uint", "bool")):
            return "whole numbers"
        return "numbers" if dtype.startswith("float") else "text" if "string" in dtype else dtype
    nested = kind(feature.feature) if hasattr(feature, "feature") else ""
    return "arrays" if nested in (*_NUMBERS, "arrays", "classes") or name.startswith("Array") else name


def stacked(who: str, first: int, values: Sequence[Any], each: str = "sample") -> Tensor:
    """Samples, or labels, as one tensor; `first` is the number of the first of them."""
    tensors = [tensor(f"{each} {first + place:,} of {who}", value) for place, value in enumerate(values)]
    for place, one in enumerate(tensors):
        check_alike(f"{each} {first + place:,} of {who}", one, tensors[0])
    return torch.stack(tensors)


def check_alike(what: str, one: Tensor, like: Tensor) -> None:
    if (one.shape, one.dtype) != (like.shape, like.dtype):
        raise AccordError(
            f"{what} holds {contents(one)}, but the first {contents(like)}: all must be alike, so resize or convert"
            " them first"
        )


def tensor(what: str, value: Any) -> Tensor:
    """A tensor of what a sample or label is made of; float64 becomes float32, a picture bytes [C, H, W]."""
    pillow = sys.modules.get("PIL.Image")  # there is no picture unless it is imported
    if pillow is not None and isinstance(value, pillow.Image):
        return _picture(what, value)
    try:
        if not isinstance(value, Tensor):
            array = np.array(value)
            value = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError, RuntimeError):
        raise AccordError(
            f"{what} is {'nothing' if value is None else type(value).__name__}, not numbers of one shape"
        ) from None
    value = value.detach().cpu()
    return value.float() if value.dtype == torch.float64 else value


def _picture(what: str, image: Any) -> Tensor:
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        raise AccordError(
            f"{what} is a picture of mode {image.mode}, whose pixels are not bytes: convert it to L or RGB first"
        )
    mode = _OF_BYTES.get(image.mode, "RGB")
    pixels = np.array(image if image.mode == mode else image.convert(mode))  # [H, W] or [H, W, C]
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def contents(sample: Tensor) -> str:
    """`3 x 32 x 32 uint8`."""
    return f"{' x '.join(str(size) for size in sample.shape) or 'one'} {str(sample.dtype).removeprefix('torch.')}"


def _check_dataset(who: str, data: Any) -> None:
    datasets = library("datasets", "huggingface")
    if isinstance(data, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        raise AccordError(
            f"{who} is a {type(data).__name__} of the splits {', '.join(data)}: pick one, such as"
            f" dataset[{next(iter(data))!r}]"
        )
    if isinstance(data, datasets.IterableDataset):
        raise AccordError(f"{who} is a stream, and clients are rows of a whole dataset: load it without streaming=True")
    if not isinstance(data, datasets.Dataset):
        raise AccordError(f"{who} must be a datasets.Dataset, got {type(data).__name__}")
    if not len(data):
        raise AccordError(f"{who} has no rows: at least one is needed")
    if data.format["type"] == "custom":
        raise AccordError(
            f"{who} has a transform, which is not applied when all is read at once: apply it with dataset.map first"
        )


def _check_column(who: str, data: Any, column: str) -> None:
    if column not in data.features:
        raise AccordError(f"{who} has no column {column}: its columns are {', '.join(data.features)}")


def _chosen(kinds: Mapping[str, str], features: str | Sequence[str] | None, taken: Sequence[str]) -> tuple[str, ...]:
    if features is None:
        free = {column: what for column, what in kinds.items() if column not in taken}
        beside = [column for column, what in free.items() if what in _BESIDE]
        if TOKENS[0] in beside:
            return tuple(column for column in TOKENS if column in beside)
        if len(beside) > 1:
            raise AccordError(f"features must say which column holds the samples: {' or '.join(beside)}")
        chosen = beside or [column for column, what in free.items() if what in _NUMBERS]
        if not chosen:
            raise AccordError(
                f"no column holds pictures, arrays or numbers beside {' and '.join(taken)}: the others are"
                f" {_listed(free)}"
            )
        return tuple(chosen)
    chosen = [features] if isinstance(features, str) else list(features)
    for column in chosen:
        if column not in kinds:
            raise AccordError(f"features names column {column}, which is not there: the columns are {', '.join(kinds)}")
        if column in taken:
            raise AccordError(
                f"features names column {column}, which is the label or the client: a model must not read it"
            )
        if kinds[column] not in (*_NUMBERS, "arrays") and (kinds[column] != "pictures" or len(chosen) > 1):
            raise AccordError(
                f"column {column} holds {kinds[column]}: features are columns of numbers or arrays, or one of pictures"
            )
    if not chosen or len(set(chosen)) < len(chosen):
        raise AccordError(f"features must name at least one column, and none twice, got {chosen}")
    return tuple(chosen)


def _listed(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{column} ({what})" for column, what in kinds.items()) or "none"


def _classes(groups: Mapping[str, Any], label: str, feature: Any) -> tuple[str, ...]:
    what = kind(feature)
    if what == "classes":
        return tuple(feature.names)
    if what == "text":
        return tuple(sorted({value for who, data in groups.items() for value in _filled(who, data, label)}))
    if what == "arrays" and kind(feature.feature) in ("classes", "whole numbers"):  # a class for each word of a text
        return tuple(getattr(feature.feature, "names", ()))
    if what not in _NUMBERS:
        raise AccordError(
            f"column {label} holds {what}: a label is a class (a whole number, text or a ClassLabel), a list of whole"
            " numbers, or a number"
        )
    return ()


def _filled(who: str, data: Any, column: str) -> list[Any]:
    """A column's values, none of which is missing."""
    values = data.select_columns([column]).with_format("arrow")[:].column(column).to_pylist()
    if None in values:
        raise AccordError(
            f"row {values.index(None):,} of {who} has nothing in column {column}: fill it in or leave the row out"
        )
    return values
