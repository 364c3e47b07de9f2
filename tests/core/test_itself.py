"""A key that is equal to itself alone, whatever its object compares by."""

import torch

from accord.core.itself import Itself


def test_equal_objects_are_different_keys_and_one_object_is_one() -> None:
    rows, others = torch.arange(3), torch.arange(3)
    known = {Itself(rows): "rows", Itself(others): "others"}
    assert len(known) == 2 and known[Itself(rows)] == "rows" and known[Itself(others)] == "others"
    assert Itself([1]) != Itself([1]) and Itself(rows) != rows


def test_the_key_holds_its_object() -> None:
    """Else another object could come to stand at its address, and be taken for it."""
    known = {Itself(torch.full((2,), float(number))): number for number in range(100)}
    assert all(int(key.of[0]) == number for key, number in known.items()) and len(known) == 100
