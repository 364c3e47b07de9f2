"""Samples of several tensors, laid out flat and taken apart again."""

import pytest
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.fields import Fields

IDS, MASK = torch.tensor([[5, 7, 2**40 + 1], [1, 0, 3]]), torch.tensor([[True, True, False], [True, False, False]])
PICTURE = torch.arange(8.0).reshape(2, 2, 2)


@pytest.mark.parametrize(
    ("tensors", "dtype", "width"),
    [
        ({"ids": IDS, "mask": MASK}, torch.int64, 6),
        ({"picture": PICTURE, "age": torch.tensor([0.1, 0.2])}, torch.float32, 5),
        ({"ids": IDS, "picture": PICTURE}, torch.float64, 7),  # a large number, and a fraction, survive
        ((IDS, PICTURE / 3), torch.float64, 7),
        ((MASK,), torch.bool, 3),
    ],
)
def test_there_and_back(tensors: dict[str, Tensor] | tuple[Tensor, ...], dtype: torch.dtype, width: int) -> None:
    fields = Fields.of(tensors)
    x = fields.pack(tensors)
    assert (x.dtype, tuple(x.shape)) == (dtype, (2, width))
    args, kwargs = Fields.from_json(fields.to_json()).unpack(x)
    assert (len(args), len(kwargs)) == ((0, len(tensors)) if isinstance(tensors, dict) else (len(tensors), 0))
    for name, value in tensors.items() if isinstance(tensors, dict) else enumerate(tensors):
        got = kwargs[name] if isinstance(name, str) else args[name]
        assert got.dtype == value.dtype and torch.equal(got, value)


def test_order_of_names_does_not_matter() -> None:
    fields = Fields.of({"ids": IDS, "mask": MASK})
    assert torch.equal(fields.pack({"mask": MASK, "ids": IDS}), fields.pack({"ids": IDS, "mask": MASK}))


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"ids": IDS}, "a sample of client b has the inputs ids, but the first one has ids, mask"),
        ({"ids": IDS[:, :2], "mask": MASK}, "an input of client b holds ids: 2 int64, but the first ids: 3 int64"),
        ({"ids": IDS, "mask": MASK.float()}, "holds mask: 3 float32, but the first mask: 3 bool"),
    ],
)
def test_samples_that_differ(tensors: dict[str, Tensor], sentence: str) -> None:
    with pytest.raises(AccordError, match=sentence):
        Fields.of({"ids": IDS, "mask": MASK}).pack(tensors, "client b")
