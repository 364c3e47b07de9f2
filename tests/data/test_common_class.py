"""When accuracy says little: one class has most of the samples."""

import pytest
import torch

from accord.data import from_arrays
from accord.data.common_class import caution_on_accuracy


def said(labels: list[int]) -> str | None:
    fed = from_arrays({"a": (torch.zeros(len(labels), 1), torch.tensor(labels))}, heldout=0)
    return caution_on_accuracy(fed, fed.train.values(), "the samples")


@pytest.mark.parametrize(
    ("labels", "begins"),
    [
        ([0] * 8 + [1] * 2, "80 % of the samples are of class 0,"),
        ([0] * 2999 + [1], "99.9 % of the samples are of class 0,"),  # 99.97 is not all of them
        ([1] * 5, "100 % of the samples are of class 1,"),
    ],
)
def test_the_share_of_the_most_common_class(labels: list[int], begins: str) -> None:
    text = said(labels)
    assert text is not None and text.startswith(begins)


def test_nothing_is_said_where_accuracy_will_do() -> None:
    assert said([0] * 79 + [1] * 21) is None


def test_nothing_is_said_of_numbers_of_a_class_for_every_pixel_or_of_no_rows() -> None:
    numbers = from_arrays({"a": (torch.zeros(9, 1), torch.zeros(9))}, heldout=0)
    pixels = from_arrays({"a": (torch.zeros(9, 1), torch.zeros(9, 4, dtype=torch.int64))}, heldout=0)
    for fed in (numbers, pixels):
        assert caution_on_accuracy(fed, fed.train.values(), "the samples") is None
    assert caution_on_accuracy(pixels, [], "the samples") is None
    whole = from_arrays({"a": (torch.zeros(9, 1), torch.zeros(9, dtype=torch.int64))}, heldout=0)
    assert caution_on_accuracy(whole, [], "the samples") is None
