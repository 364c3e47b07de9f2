"""Server steps: first steps worked by hand."""

import math

import pytest
import torch
from torch import Tensor

from accord import AccordError, Algorithm, gma
from accord.core.protocols import Server
from accord.core.record import State
from accord.rules.algorithm import Lowered
from accord.rules.servers import adagrad, adam, momentum, step, yogi


def stepped(server: Server, state: State, update: Tensor, mask: Tensor | None) -> tuple[State, Tensor]:
    """The server's next state and what it adds to the model."""
    change, memory = Algorithm(mask=gma(), server=server).step(Lowered(update, mask), {"server": state})
    return memory["server"], change


def first_step(server, delta: float, mask: float | None = None) -> float:
    vector = torch.zeros(1, dtype=torch.float64)
    update = torch.tensor([delta], dtype=torch.float64)
    _, change = stepped(
        server, server.init(vector), update, None if mask is None else torch.tensor([mask], dtype=torch.float64)
    )
    return change.item()


def test_plain_step() -> None:
    assert first_step(step(1.5), 2.0) == 3.0
    assert first_step(step(1.0), 2.0, mask=0.25) == 0.5


def test_momentum_two_steps() -> None:
    server, update = momentum(lr=1.0, beta=0.5), torch.ones(1)
    state, first = stepped(server, server.init(update), update, None)
    _, second = stepped(server, state, update, None)
    assert (first.item(), second.item()) == (1.0, 1.5)


def test_adam_first_step_at_delta_equal_to_eps() -> None:
    # z = 1e-4; v = .99e-6 + .01e-6 = 1e-6; step = 1e-4 / (1e-3 + 1e-3)
    assert first_step(adam(lr=1.0), 1e-3) == pytest.approx(0.05, rel=1e-12)


def test_adam_with_eps_under_the_root_is_sixteen_times_smaller() -> None:
    inside = first_step(adam(lr=1.0, eps_inside=True), 1e-3)
    assert inside == pytest.approx(1e-4 / math.sqrt(1e-8 + 1e-3), rel=1e-12)
    assert 0.05 / inside == pytest.approx(16, rel=0.02)


def test_torch_adam_is_another_rule() -> None:
    parameter = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    parameter.grad = torch.tensor([-1e-3], dtype=torch.float64)
    torch.optim.Adam([parameter], lr=1.0, betas=(0.9, 0.99), eps=1e-3).step()
    assert parameter.item() == pytest.approx(0.5)


def test_yogi_first_steps_above_and_below_v() -> None:
    # At delta = eps, v = delta^2 and sign(0) = 0: v stays. z / (sqrt(v) + eps) = 1e-4 / 2e-3.
    assert first_step(yogi(lr=1.0), 1e-3) == pytest.approx(0.05, rel=1e-12)
    # A larger update pushes v up by (1 - b2) delta^2: v = 1e-6 + .01 * 1e-4 = 2e-6.
    assert first_step(yogi(lr=1.0), 1e-2) == pytest.approx(1e-3 / (math.sqrt(2e-6) + 1e-3), rel=1e-12)
    # A smaller one pulls it down: v = 1e-6 - .01 * 1e-8 = .9999e-6.
    assert first_step(yogi(lr=1.0), 1e-4) == pytest.approx(1e-5 / (math.sqrt(0.9999e-6) + 1e-3), rel=1e-12)


def test_adagrad_first_step() -> None:
    # v = 1e-6 + 1e-4; the update itself is divided, not its running mean.
    assert first_step(adagrad(lr=1.0), 1e-2) == pytest.approx(1e-2 / (math.sqrt(1.01e-4) + 1e-3), rel=1e-12)
    assert first_step(adagrad(lr=1.0, eps_inside=True), 1e-2) == pytest.approx(1e-2 / math.sqrt(1e-4 + 1e-3), rel=1e-12)


@pytest.mark.parametrize(
    ("make", "z", "v"),
    [
        (adam, 0.9e-3 + 2e-3, 0.99 * 1.99e-6 + 0.01 * 4e-4),
        (yogi, 0.9e-3 + 2e-3, 2e-6 + 0.01 * 4e-4),
        (adagrad, 2e-2, 1.01e-4 + 4e-4),
    ],
)
def test_second_steps_remember_the_first(make: type, z: float, v: float) -> None:
    """Updates of 0.01 and 0.02: z and v are what the first one left, and what the second adds."""
    server, (first, second) = make(lr=1.0), torch.tensor([[1e-2], [2e-2]], dtype=torch.float64)
    state, _ = stepped(server, server.init(first), first, None)
    _, change = stepped(server, state, second, None)
    assert change.item() == pytest.approx(z / (math.sqrt(v) + 1e-3), rel=1e-12)


@pytest.mark.parametrize("make", [adam, yogi])
def test_the_mask_scales_the_step_by_default_and_the_update_if_placed_before(make: type) -> None:
    whole = first_step(make(lr=1.0), 1e-2)
    assert first_step(make(lr=1.0), 1e-2, mask=0.2) == pytest.approx(0.2 * whole, rel=1e-12)
    assert first_step(make(lr=1.0, placement="before"), 1e-2, mask=0.2) == pytest.approx(
        first_step(make(lr=1.0), 2e-3), rel=1e-12
    )
    # Normalising undoes most of a mask that came before it.
    assert first_step(make(lr=1.0, placement="before"), 1e-2, mask=0.2) > 0.2 * whole


def test_moments_see_the_unmasked_update() -> None:
    update, mask = torch.ones(2), torch.tensor([1.0, 0.0])
    server = adam()
    state, change = stepped(server, server.init(update), update, mask)
    assert state["z"][0] == state["z"][1]
    assert change[1] == 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: step(-1.0), "lr must be a number of 0 or more for the server, got -1.0"),
        (lambda: momentum(beta=1.0), "beta must be at least 0 and below 1, got 1.0"),
        (lambda: adam(beta2=1.5), "beta2 must be at least 0 and below 1, got 1.5"),
        (lambda: yogi(eps=0.0), "eps must be above 0, got 0.0"),
        (lambda: adagrad(placement="inside"), "placement must be 'after'.*got 'inside'"),
    ],
)
def test_bad_settings_are_refused(make, says: str) -> None:
    with pytest.raises(AccordError, match=says):
        make()
