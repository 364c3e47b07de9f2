"""Columns that a tokeniser made, as they come: inputs by name, filled up; labels of every word."""

from typing import Any

import datasets
import pytest
import torch

from accord.core.errors import AccordError
from accord.data import from_huggingface

IDS = [[7, 8], [9], [3, 4, 5], [6, 1]]
MASK = [[1] * len(ids) for ids in IDS]


def texts(**columns: Any) -> datasets.Dataset:
    plain = {"text": ["a b", "c", "d e f", "g h"], "input_ids": IDS, "attention_mask": MASK, "label": [0, 1, 1, 0]}
    return datasets.Dataset.from_dict({name: of for name, of in {**plain, **columns}.items() if of is not None})


def test_what_a_tokeniser_made_goes_by_name_filled_up() -> None:
    for data in (texts(), texts(age=[1, 2, 3, 4]), texts().with_format("torch")):
        fed = from_huggingface(data, clients=2, heldout=0)
        assert fed.fields is not None and fed.x.dtype == torch.int64
        assert str(fed.fields) == "input_ids: 3 int64, attention_mask: 3 int64"
        assert fed.x.tolist() == [
            [7, 8, 0, 1, 1, 0],
            [9, 0, 0, 1, 0, 0],
            [3, 4, 5, 1, 1, 1],
            [6, 1, 0, 1, 1, 0],
        ]
        assert fed.y.tolist() == [0, 1, 1, 0]


def test_also_of_a_longer_test_set_and_of_a_part_of_the_rows() -> None:
    longer = texts(input_ids=[[1] * 5] * 4, attention_mask=[[1] * 5] * 4)
    fed = from_huggingface(texts().select([2, 0]), clients=2, heldout=0, test=longer)
    assert fed.x[:, :5].tolist() == [[3, 4, 5, 0, 0], [7, 8, 0, 0, 0], *[[1] * 5] * 4]
    assert fed.test is not None and fed.test.tolist() == [2, 3, 4, 5]


def test_lists_and_numbers_beside_each_other() -> None:
    data = texts(signal=[[0.5, 1.5]] * 4, age=[30, 40, 50, 60])
    fed = from_huggingface(data, features=["signal", "age"], clients=2, heldout=0)
    assert str(fed.fields) == "signal: 2 float32, age: one int64"
    assert fed.fields is not None
    args, named = fed.fields.unpack(fed.read(torch.tensor([1, 3]))[0])  # not scaled: it says which is what by its type
    assert not args and named["signal"].tolist() == [[0.5, 1.5]] * 2 and named["age"].tolist() == [40, 60]


def test_a_label_for_each_word() -> None:
    names = datasets.ClassLabel(names=["other", "place"])
    tags = datasets.List(names) if hasattr(datasets, "List") else datasets.Sequence(names)
    data = texts(label=None, tags=[[0, 1], [1], [0, 0, 1], [1, 0]]).cast_column("tags", tags)
    fed = from_huggingface(data, label="tags", clients=2, heldout=0)
    assert fed.y.tolist() == [[0, 1, -100], [1, -100, -100], [0, 0, 1], [1, 0, -100]]
    assert fed.classes == ("other", "place") and fed.outputs == 2


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (
            texts(attention_mask=None),
            {},
            "the lists of column input_ids have 1 to 3 numbers: fill them up to one length",
        ),
        (texts(input_ids=[[7], None, [1], [2]]), {}, "row 1 of the data has nothing in column input_ids"),
        (texts(label=[[0, -1], [1], [1, 1, 1], [0, 0]]), {}, "column label of the data has label -1: classes count"),
        (
            texts(picture=[[[1, 2]]] * 4),
            {"features": ["input_ids", "picture"]},
            "column picture of the data holds lists of list",
        ),
    ],
)
def test_bad_columns(data: datasets.Dataset, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AccordError, match=sentence):
        from_huggingface(data, clients=2, heldout=0, **options)
