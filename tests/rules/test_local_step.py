"""The local step by hand, whole and in pieces; what a round is made of is held against it elsewhere."""

import pytest
import torch
from torch import nn

from accord.core.layout import Layout
from accord.rules.local import Training
from accord.rules.local.step import Piece, Steps, clipping, gradient_of, sgd_, step_


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_two_steps_by_hand() -> None:
    """w = 2, start = 1, gradient 4 clipped by a half: 2 + 0.1 * 2 + 0.5 * (2 - 1) + 3 = 5.7; then with momentum."""
    w, velocity, start = (number(value).expand(1).clone() for value in (2.0, 0.0, 1.0))
    drift, gradients = number(3.0).expand(1), torch.zeros(1, dtype=torch.float64)
    (step,) = Steps(Training(momentum=0.5, weight_decay=0.1).rule, number, mu=0.5).of_round(0.1, 1)
    piece = Piece(w, start, drift, gradients, [velocity])
    step([number(4.0).expand(1)], [piece], factor=number(0.5))
    assert (w.item(), velocity.item()) == pytest.approx((2.0 - 0.57, 5.7))
    assert gradients.item() == pytest.approx(2.2), "what the local rule adds is not summed"
    step([number(0.0).expand(1)], [piece], factor=number(0.5))
    along = 0.1 * 1.43 + 0.5 * 0.43 + 3.0
    assert velocity.item() == pytest.approx(0.5 * 5.7 + along)
    assert w.item() == pytest.approx(1.43 - 0.1 * (0.5 * 5.7 + along))


def test_pieces_lanes_and_one_vector_take_the_same_step() -> None:
    """Bit for bit: an element's step does not depend on how the vector is cut."""
    torch.manual_seed(0)
    layout = Layout.of(nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3, bias=False)))
    vectors = [torch.randn(layout.size) for _ in range(5)]
    gradient = torch.randn(layout.size)
    rates = {name: torch.tensor(value) for name, value in (("lr", 0.1), ("momentum", 0.9), ("weight_decay", 0.01))}
    rates["mu"], rates["factor"] = torch.tensor(0.3), clipping(gradient, 1.0)

    def taken(lanes: bool, by_parameter: bool) -> list[torch.Tensor]:
        mine = [vector.clone()[None] if lanes else vector.clone() for vector in vectors]
        numbers = {name: value.view(1, 1) if lanes else value for name, value in rates.items()}
        views = layout.by_parameter(*mine) if by_parameter else [tuple(mine)]
        pieces = [Piece(*view[:4], kept=view[4:]) for view in views]
        parts = layout.pieces(gradient) if by_parameter else [gradient[None] if lanes else gradient]
        step_(parts, pieces, sgd_, **numbers)
        return [vector.view(-1) for vector in mine]

    whole = taken(lanes=False, by_parameter=False)
    assert not torch.equal(whole[0], vectors[0])
    for other in (taken(lanes=True, by_parameter=False), taken(lanes=False, by_parameter=True)):
        assert all(torch.equal(one, two) for one, two in zip(whole, other, strict=True))


def test_clipping_leaves_short_gradients_alone() -> None:
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    assert clipping(gradient, torch.tensor([[1.0], [1.0]])).tolist() == [[pytest.approx(0.2)], [1.0]]
    assert clipping(gradient[0], 2.5).item() == pytest.approx(0.5)


def test_a_parameter_that_takes_no_part_has_a_gradient_of_zero() -> None:
    used, unused = torch.tensor([2.0], requires_grad=True), torch.ones(3, requires_grad=True)
    parts, value = gradient_of(lambda x: x * used, lambda output, y: (output - y).square(), [used, unused],
                               torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]))  # fmt: skip
    assert [part.tolist() for part in parts] == [[20.0], [0.0, 0.0, 0.0]] and value.item() == 20.0
