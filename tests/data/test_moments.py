"""Sums of columns over owners, exact; and what owners agree on without showing a row."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from accord.data.moments import LIMB, Moments
from conftest import sentence

ANY = st.floats(width=32, allow_infinity=False)
TABLES = arrays.arrays(np.float32, st.tuples(st.integers(0, 12), st.just(2)), elements=ANY)


@given(TABLES, st.integers(0, 12))
def test_sums_of_parts_are_the_sums_of_the_whole_to_the_last_bit(table: np.ndarray, cut: int) -> None:
    values = torch.from_numpy(table)
    whole, parts = Moments.of(values), [Moments.of(values[:cut]), Moments.of(values[cut:])]
    assert parts[0] + parts[1] == parts[1] + parts[0] == whole
    assert Moments.from_limbs(parts[0].limbs() + parts[1].limbs()) == whole
    assert bool((whole.limbs().abs() < 2.0**LIMB).all())
    for column in range(2):
        numbers = [Fraction(float(cell)) for cell in table[:, column] if cell == cell]
        assert whole.counts[column] == len(numbers)
        assert Fraction(whole.sums[column], 1 << 172) == sum(numbers)
        assert Fraction(whole.squares[column], 1 << 344) == sum(number * number for number in numbers)


def test_a_mean_and_a_spread_that_float64_would_lose() -> None:
    """A million and a little: the difference of two large sums has no digit left in float64."""
    values = torch.tensor([1e6, 1e6 + 0.0625, 1e6 + 0.125])[:, None]
    moments = Moments.of(values)
    exact = values.double().numpy()
    assert moments.mean(0) == exact.mean() and moments.spread(0)[1] == pytest.approx(exact.std(), rel=1e-15)
    assert Moments.of(torch.full((7, 1), 0.1)).spread(0)[1] == 0.0


def test_what_is_missing_counts_as_what_stands_for_it() -> None:
    values = torch.tensor([[1.0], [float("nan")], [4.0]])
    mean, std = Moments.of(values).spread(0, fill=2.5)
    assert (mean, std) == pytest.approx((2.5, np.std([1.0, 2.5, 4.0])))
    assert Moments.of(values, [False]) == Moments(3, (2,), (0,), (0,))  # of levels nothing but their count is told


def test_sums_that_no_numbers_have() -> None:
    good = Moments.of(torch.tensor([[1.0], [2.0]])).limbs()
    for change, said in [
        ((1, 0, 5.0), "cannot be those of any numbers"),  # more numbers than rows
        ((1, 0, -1.0), "cannot be those of any numbers"),
        ((1, 12, 3.0), "cannot be those of any numbers"),  # a sum beyond the root of count times squares
        ((1, 0, 0.5), "not whole numbers"),
        ((1, 0, float("inf")), "not whole numbers"),
    ]:
        row, place, value = change
        bad = good.clone()
        bad[row, place] = value
        with sentence(said):
            Moments.from_limbs(bad)
