"""The papers' propositions by simulation: against exact probabilities and closed forms, and bounds against both."""

import csv
import itertools
import math
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from accord.analyses import convergence, stability
from accord.cli.main import main

# --------------------------------------------------------------------------------------------- mask stability


@pytest.mark.parametrize("noise", list(stability.NOISES))
@pytest.mark.parametrize(("clients", "tau"), [(10, 0.4), (5, 0.4), (7, 0.8)])
def test_simulation_is_within_its_confidence_interval_of_the_exact_probability(
    noise: str, clients: int, tau: float
) -> None:
    trials = 40_000
    for up, mu in itertools.product(range(clients // 2, clients + 1), (0.3, 1.0, 2.0)):
        chance = stability.exact(noise, clients, up, mu, tau)
        found = stability.simulated(noise, clients, up, mu, tau, trials, seed=7)
        assert abs(found - chance) <= 4.5 * math.sqrt(chance * (1 - chance) / trials) + 1e-12


@pytest.mark.parametrize(("clients", "up", "tau"), [(4, 3, 0.5), (5, 3, 0.2), (6, 3, 0.4), (6, 6, 1.0)])
def test_exact_probabilities_are_those_of_all_ways_to_vote(clients: int, up: int, tau: float) -> None:
    wrong = 0.5 * math.erfc(0.8 / math.sqrt(2))
    passes = 0.0
    for votes in itertools.product((1, -1), repeat=clients):
        honest = [vote == (1 if client < up else -1) for client, vote in enumerate(votes)]
        if abs(sum(votes)) >= tau * clients - 1e-9:
            passes += math.prod(1 - wrong if kept else wrong for kept in honest)
    assert stability.exact("gaussian", clients, up, 0.8, tau) == pytest.approx(passes, abs=1e-12)


def test_the_bound_holds_and_needs_the_share_that_it_needs() -> None:
    tried = 0
    for noise, clients, tau in itertools.product(stability.NOISES, (1, 2, 5, 10, 13), (0.1, 0.4, 0.8, 1.0)):
        for up, mu in itertools.product(range(clients + 1), (0.1, 0.7, 1.5, 3.0)):
            held = stability.bound(clients, up, mu, tau)
            # a share of (1 + tau) / 2 and above
            assert (held is not None) == (2 * up - clients >= math.ceil(round(tau * clients, 9)))
            if held is not None:
                assert 1 - stability.exact(noise, clients, up, mu, tau) <= held + 1e-12
                tried += 1
    assert tried > 200


def test_the_printed_condition_is_too_weak() -> None:
    """Half of the means are positive, which is more than tau = 0.4; the surer the clients, the surer the coordinate is
    held back."""
    passes = [stability.exact("gaussian", 10, 5, mu, 0.4) for mu in (0.5, 1.0, 2.0, 4.0)]
    assert passes == sorted(passes, reverse=True) and passes[-1] < 1e-7
    assert stability.exact("gaussian", 10, 7, 4.0, 0.4) > 0.999


def test_no_constant_saves_the_printed_exponent() -> None:
    """Failure over exp(-mu^2 / sigma^2) grows without end; over exp(-mu^2 / 2 sigma^2) it stays below the number of
    clients."""
    failure = {mu: 1 - stability.exact("gaussian", 10, 7, mu, 0.4) for mu in (1.0, 2.0, 3.0, 4.0)}
    ratios = [failed / stability.printed(mu) for mu, failed in failure.items()]
    assert ratios == sorted(ratios) and ratios[-1] > 1000
    assert all(failed / math.exp(-(mu**2) / 2) < 7 for mu, failed in failure.items())


# ------------------------------------------------------------------------------------------------ convergence


@pytest.fixture(scope="module")
def problem() -> convergence.Problem:
    return convergence.Problem.drawn(clients=5, size=6, seed=3)


def test_the_problem_is_what_its_closed_form_says(problem) -> None:
    w = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    clients = (1 - torch.cos((w @ problem.rotation.T)[:, None] - problem.angles)).sum(-1)
    torch.testing.assert_close(problem.loss(w), clients.mean(1))
    (gradient,) = torch.autograd.grad(clients.mean(1).sum(), w)
    torch.testing.assert_close(problem.gradient(w), gradient)
    torch.testing.assert_close(problem.client_gradients(w[:, None].expand(-1, 5, -1)).mean(1), gradient)
    best = problem.rotation.T @ problem.mean.angle()
    assert float(problem.loss(best)) == pytest.approx(problem.lowest)
    steepest = torch.linalg.eigvalsh(torch.autograd.functional.hessian(problem.loss, best)).max()
    assert float(steepest) == pytest.approx(problem.smoothness)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_both_bounds_hold_after_every_round(problem, alpha: float, sigma: float) -> None:
    eta = 0.5 / problem.smoothness
    trace = convergence.simulate(problem, alpha, eta, rounds=300, trials=200, sigma=sigma)
    found = convergence.running_mean(trace.gradient)
    noise = 4 * trace.gradient.mean(0).std() / 200**0.5
    assert bool((found <= convergence.sharp(problem, trace, alpha, eta, sigma) + noise).all())
    assert bool((found <= convergence.printed(problem, trace, alpha, eta, sigma) + noise).all())


def test_noise_has_the_variance_that_the_bound_counts() -> None:
    """At the minimum the gradient is zero, so the update is noise alone: its mean square is alpha eta^2 sigma^2."""
    flat = convergence.Problem(torch.eye(4, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64))
    trace = convergence.simulate(flat, 1.0, 1e-4, rounds=1, trials=20_000, sigma=0.0, seed=5)
    noisy = convergence.simulate(flat, 1.0, 1e-4, rounds=1, trials=20_000, sigma=50.0, seed=5)
    # The same starts; the losses' mean differs by L / 2 eta^2 sigma^2, times the mean curvature cos(w) with w ~ N(0,
    # 4): exp(-2).
    more = float((noisy.loss[1] - trace.loss[1]).mean())
    deviation = float((noisy.loss[1] - trace.loss[1]).std()) / 20_000**0.5
    assert abs(more - 0.5 * 1e-8 * 2500 * math.exp(-2)) < 4 * deviation


@pytest.mark.slow
def test_rounds_go_as_one_over_alpha_and_as_its_square_where_the_step_shrinks_too(problem) -> None:
    alphas, eta = [0.2, 0.5, 1.0], 0.2 / problem.smoothness
    fixed = [convergence.rounds_until(convergence.simulate(problem, a, eta, round(300 / a), 100), 0.02) for a in alphas]
    short = [
        convergence.rounds_until(convergence.simulate(problem, a, a * eta, round(300 / a**2), 100), 0.02)
        for a in alphas
    ]
    assert convergence.slope(alphas, fixed) == pytest.approx(-1, abs=0.15)
    assert convergence.slope(alphas, short) == pytest.approx(-2, abs=0.15)


def test_the_thesis_constant_is_too_small_and_what_it_should_be(problem) -> None:
    assert float(convergence.parabola(1)[0]) == pytest.approx(8 / 3)  # above the printed 2, below the proof's 8
    assert bool((convergence.parabola(20) <= 8 / 3 + 1e-12).all())
    for alpha in (0.3, 1.0):
        trace = convergence.simulate(problem, alpha, 1 / (2 * problem.smoothness), rounds=50, trials=100)
        assert bool((convergence.constant(trace, problem.smoothness) <= 8 / 3 + 1e-9).all())


def test_a_slope_is_that_of_a_power() -> None:
    assert convergence.slope([1.0, 2.0, 4.0], [3.0, 0.75, 0.1875]) == pytest.approx(-2)


# ----------------------------------------------------------------------------------------------- the commands


def command(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["accord", "analyse", *words])
    with pytest.raises(SystemExit) as done:
        main()
    return int(done.value.code or 0)


@pytest.mark.parametrize(
    ("words", "name", "rows", "points", "said"),
    [
        (
            ["stability", "--trials", "200", "--clients", "4"],
            "mask_stability",
            3 * 4,
            2 * 3 * 7,
            "in 42 settings of 200 trials",
        ),
        (
            ["stability", "--trials", "200", "--clients", "4", "--noises", "uniform"],
            "mask_stability",
            3 * 4,
            3 * 7,
            "2 of 4 means positive",
        ),
        (
            ["convergence", "--alphas", "0.5,1", "--rounds", "50", "--trials", "4"],
            "convergence_in_alpha",
            2,
            2 * 50,
            "rounds grow as alpha to the power -0.86",
        ),
        (
            ["convergence", "--alphas", "1", "--rounds", "5", "--trials", "4"],
            "convergence_in_alpha",
            1,
            5,
            "3.3.6 on a parabola: L times",
        ),
    ],
)
def test_the_commands_write_tables_and_a_figure(
    words: list[str],
    name: str,
    rows: int,
    points: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    assert command(monkeypatch, tmp_path, *words) == 0
    assert said in capsys.readouterr().out
    for file, count in ((f"{name}.csv", rows), (f"{name}-points.csv", points)):
        with open(tmp_path / "analyses" / file, newline="") as lines:
            assert len(list(csv.DictReader(lines))) == count
    assert imread(tmp_path / "analyses" / f"{name}.png")[..., :3].std() > 0.05


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stability", "--noises", "cauchy"], "--noises must be among gaussian, uniform, got 'cauchy'"),
        (["stability", "--tau", "2"], "tau must be between 0 and 1, got 2.0"),
        (["convergence", "--alphas", "0.5,2"], "--alphas must be between 0.01 and 1, got 2"),
        (["convergence", "--alphas", "x"], "--alphas must be numbers with commas between them, got 'x'"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    assert command(monkeypatch, tmp_path, *words) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1
