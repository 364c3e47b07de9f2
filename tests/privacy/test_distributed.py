"""Epsilon of noise that clients add: no sampling counts, and every order gives one that holds."""

import math

import pytest
from test_dp import exact_gaussian

from accord.privacy import epsilon
from accord.privacy.accounting import epsilon_against_server
from accord.privacy.distributed import DistributedPrivacy
from accord.privacy.secagg_graph import graph_of, remaining
from accord.privacy.secure_sum import SecureSum
from conftest import sentence


@pytest.mark.parametrize(("noise", "rounds"), [(10.0, 1), (4.0, 1), (2.0, 1), (8.0, 20), (4.0, 100), (0.5, 10)])
def test_epsilon_against_the_closed_form_and_against_the_library(noise: float, rounds: int) -> None:
    """Large discrete noise is as good as Gaussian noise, whose epsilon is known exactly and is the least there is."""
    found = epsilon_against_server(noise, rounds, 1e-5)
    exact = exact_gaussian(noise / 2 / math.sqrt(rounds), 1e-5)
    assert exact <= found <= 1.15 * exact
    assert found <= 1.001 * epsilon(noise, 100, None, rounds, 1e-5)


def test_sampling_hides_nobody_from_the_server() -> None:
    privacy = DistributedPrivacy(clip=1.0, noise=4.0)
    spent = [privacy.spent(False, 1000, sample, 10)["epsilon"] for sample in (10, 500, None)]
    assert len(set(spent)) == 1 and spent[0] > epsilon(4.0, 1000, 10, 10, 1e-5)
    (first, *_, said) = privacy.sentences(True, 1000, 10, 10, 44_426)
    assert "epsilon" in first and "operating system's secure source" in said and "counts no sampling" in said
    # what docs/explanation/privacy.md lists, "Not covered" and whom epsilon holds towards
    missing = [
        "sums of squares",
        "levels and classes",
        "samples and steps",
        "took part or dropped out",
        "skipped rounds",
    ]
    missing += ["evaluations", "collude", "swaps keys, invents clients or tells different clients different stories"]
    assert all(what in said.partition("Not covered: ")[2] for what in missing) and "follows the protocol" in said


def test_sensitivity_counts_rounding() -> None:
    """Half a step on each of P coordinates, which matters with few bits."""
    privacy = DistributedPrivacy(clip=1.0, noise=1.0, threshold=2 / 3)
    fine, coarse = (SecureSum(clients=10, bound=4.0, bits=bits).form("update") for bits in (32, 16))
    for form in (fine, coarse):
        assert privacy.sensitivity(form, 44_426) == pytest.approx(form.levels / 4.0 + math.sqrt(44_426) / 2)
    assert privacy.sensitivity(fine, 44_426) * fine.step == pytest.approx(1.0, abs=1e-5)
    assert privacy.sensitivity(coarse, 44_426) * coarse.step > 1.1
    assert remaining(10, 2 / 3) == 7 and remaining(9, 2 / 3) == 6 and remaining(1, 0.9) == 2


def test_noise_is_for_as_many_as_a_client_sees_remain() -> None:
    """Worked by hand: of 1,000 clients with four neighbours each, ceil(2/3 * 5) = 4 shares open a secret, and a client
    helps where 4 of its 5 are said to remain, whatever became of the other 995. So 4 shares must be the whole noise: of
    sensitivity D = levels / 4 + 1/2 and noise 3, each has standard deviation 3 D / 2. By the cohort it would be 3 D /
    25.8, and 4 clients' noise a thirteenth of what epsilon was computed for."""
    secure = SecureSum(clients=1000, bound=4.0, bits=32)
    form = secure.form("update")
    few = DistributedPrivacy(clip=1.0, noise=3.0, threshold=2 / 3, neighbours=4)
    sensitivity = form.levels / 4.0 + 0.5
    assert graph_of(1000, 2 / 3, 4).remain == 667 and few.enforced(1000) == 4
    assert few.scale(form, 1, 1000) == pytest.approx(3.0 * sensitivity / 2.0, rel=1e-12)
    whole = DistributedPrivacy(clip=1.0, noise=3.0, threshold=2 / 3)
    assert whole.enforced(10) == 7  # everybody shares with everybody: as many as must remain
    assert whole.enforced(1000) == graph_of(1000, 2 / 3).opens == 118


def test_what_is_refused() -> None:
    for bad in (0.0, -1.0, math.inf, math.nan):
        with sentence("noise must be above 0 and finite"):
            epsilon_against_server(bad, 1, 1e-5)
    with sentence("delta must be above 0 and below 1"):
        epsilon_against_server(1.0, 1, 0.0)
    with sentence("vote_noise must be left out where clients add the noise"):
        DistributedPrivacy(1.0, 1.0, vote_noise=1.0)
