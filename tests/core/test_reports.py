"""Whether all numbers are finite, told by their sum where it says so."""

import pytest
import torch

from accord.core.reports import finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_not_finite_is_found(value: float) -> None:
    numbers = torch.ones(1000)
    numbers[7] = value
    assert not finite(numbers) and not finite(torch.tensor([value, -value]))


def test_a_sum_that_overflows_says_nothing() -> None:
    assert (
        finite(torch.full((4,), 3e38)) and finite(torch.zeros(0)) and finite(torch.tensor([1e308], dtype=torch.float64))
    )
