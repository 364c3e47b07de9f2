"""`combine`: averages by hand, precision, bad input."""

import pytest
import torch

from accord import AccordError, fedavg, gma, mean
from accord.rules.combine import combine

DELTAS = torch.tensor([[1.0, -1.0], [3.0, 1.0]])


def test_mean_by_samples_and_uniform_by_hand() -> None:
    assert combine(mean(), DELTAS, torch.tensor([1.0, 3.0])).update.tolist() == [2.5, 0.5]
    assert combine(mean("uniform"), DELTAS, torch.tensor([1.0, 3.0])).update.tolist() == [2.0, 0.0]
    assert combine(mean(), DELTAS).mask is None


def test_a_mask_keeps_the_average_and_ignores_the_weights() -> None:
    lowered = combine(gma(0.5), DELTAS, torch.tensor([1.0, 3.0]))
    assert lowered.update.tolist() == [2.5, 0.5]
    assert lowered.mask.tolist() == [1.0, 0.0]  # one vote each, however many samples


@pytest.mark.parametrize(
    ("dtype", "wide"), [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]
)
def test_sums_are_float32_or_wider(dtype: torch.dtype, wide: torch.dtype) -> None:
    deltas = torch.full((1000, 3), 0.01).to(dtype)
    update = combine(mean(), deltas).update
    assert update.dtype == wide
    assert torch.allclose(update, deltas[0].to(wide), rtol=1e-4)  # bfloat16 sums would have stuck at a fraction of it


def test_large_vectors_are_summed_in_blocks_of_coordinates() -> None:
    deltas = torch.randn(3, (1 << 19) + 77)
    lowered = combine(gma(0.4), deltas)
    assert torch.allclose(lowered.update, deltas.mean(0), atol=1e-6)
    assert torch.equal(lowered.mask == 1, deltas.sign().sum(0).abs() >= 2)


@pytest.mark.parametrize(
    ("deltas", "weights", "says"),
    [
        (torch.zeros(3), None, r"shape \[clients, parameters\].*got \(3,\)"),
        (torch.zeros(0, 4), None, "at least one of each"),
        (torch.zeros(2, 4, dtype=torch.int64), None, "floating-point"),
        (torch.zeros(2, 4), torch.ones(3), r"weights must have shape \[2\]"),
        (torch.zeros(2, 4), torch.tensor([1.0, 0.0]), "positive"),
        (torch.zeros(2, 4), torch.tensor([1.0, float("inf")]), "finite"),
    ],
)
def test_bad_input_is_a_sentence(deltas: torch.Tensor, weights: torch.Tensor | None, says: str) -> None:
    with pytest.raises(AccordError, match=says):
        combine(mean(), deltas, weights)


def test_a_client_that_is_not_finite_is_named() -> None:
    with pytest.raises(AccordError, match=r"deltas of clients \[1\] hold NaN or infinity"):
        combine(gma(), torch.tensor([[1.0, 1.0], [float("nan"), 1.0]]))
    with pytest.raises(AccordError, match="the sum of the deltas is not finite"):
        combine(mean(), torch.full((4, 1), 3e38))


def test_arrays_are_taken_too() -> None:
    assert combine(mean(), DELTAS.numpy()).update.tolist() == [2.0, 0.0]


def test_a_rule_must_be_a_rule() -> None:
    with pytest.raises(AccordError, match="rule must be an average or a mask, .* got 'gma'"):
        combine("gma", DELTAS)
    with pytest.raises(AccordError, match="mask must be None or a mask such as gma"):
        fedavg(mask=0.4)


def test_weighting_is_checked() -> None:
    with pytest.raises(AccordError, match="'samples' or 'uniform', got 'size'"):
        mean("size")
