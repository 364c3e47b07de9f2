"""Arrays that go to a device in one copy."""

import numpy as np
import pytest
import torch

from accord.engines.transfer import Parcel, in_precision


def test_a_parcel_holds_its_arrays_and_none_moves_another() -> None:
    arrays = {
        "rows": np.arange(30).reshape(2, 3, 5),
        "share": np.random.default_rng(0).random((2, 3, 5)).astype(np.float32),
        "odd": np.array([[1.5, -0.0, np.nan]]).T,
        "one": np.array([7]),
        "none": np.zeros((0, 4)),
        "turned": np.arange(6.0).reshape(2, 3).T,
    }
    parcel = Parcel.sent(arrays, torch.device("cpu"))
    for name, values in arrays.items():
        found = parcel.tensor(name)
        assert found.numpy().tobytes() == np.ascontiguousarray(values).tobytes() and found.shape == values.shape
        assert found.data_ptr() % 16 == 0 or not found.numel()
    with pytest.raises(KeyError):
        parcel.tensor("nothing")


def test_numbers_take_the_precision_of_the_model_and_row_numbers_stay_whole() -> None:
    assert in_precision(np.array([0.1]), torch.float32).dtype == np.float32
    assert in_precision(np.array([0.1]), torch.float64).dtype == np.float64
    assert in_precision(np.array([2**40 + 1]), torch.float32).tolist() == [2**40 + 1]
