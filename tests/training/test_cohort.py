"""Who takes part: sampling, reach, stragglers, lost reports."""

import pytest

from accord import AccordError, Conditions
from accord.training.cohort import invite

CLIENTS = [f"c{i:02d}" for i in range(50)]


def test_c_of_n_without_repetition_and_anew_each_round() -> None:
    cohorts = [[g.client for g in invite(CLIENTS, 10, Conditions(), 0, r)] for r in range(1, 200)]
    assert all(len(set(c)) == 10 and c == sorted(c) for c in cohorts)
    taken = [sum(client in c for c in cohorts) for client in CLIENTS]
    assert min(taken) > 15 and max(taken) < 65  # 199 rounds x 10 / 50: about 40 each
    assert cohorts[0] != cohorts[1]
    assert cohorts[0] != [g.client for g in invite(CLIENTS, 10, Conditions(), 1, 1)]


def test_everybody_when_no_sample_is_asked_for() -> None:
    assert [g.client for g in invite(CLIENTS, None, Conditions(), 0, 1)] == CLIENTS


def test_conditions_hold_at_their_rates() -> None:
    conditions = Conditions(available=0.5, lost=0.3, stragglers=0.4, least=0.25)
    guests = [g for r in range(1, 101) for g in invite(CLIENTS, None, conditions, 0, r)]
    assert len(guests) / 5000 == pytest.approx(0.5, abs=0.03)
    assert sum(g.lost for g in guests) / len(guests) == pytest.approx(0.3, abs=0.03)
    slow = [g.share for g in guests if g.share < 1]
    assert len(slow) / len(guests) == pytest.approx(0.4, abs=0.03)
    assert min(slow) >= 0.25 and sum(slow) / len(slow) == pytest.approx(0.625, abs=0.02)


@pytest.mark.parametrize("name", ["available", "lost", "stragglers"])
def test_a_clients_conditions_are_drawn_anew_each_round_and_apart_from_others(name: str) -> None:
    rounds = [invite(CLIENTS, None, Conditions(**{name: 0.5}), 0, r) for r in range(1, 51)]
    fine = [[g.client for g in guests if g.share == 1.0 and not g.lost] for guests in rounds]
    times = [sum(client in clients for clients in fine) for client in CLIENTS]
    assert min(times) > 5 and max(times) < 45  # of 50 rounds: about 25 each
    assert min(map(len, fine)) > 5 and max(map(len, fine)) < 45  # of 50 clients likewise


def test_nobody_can_be_reached() -> None:
    assert invite(CLIENTS, 10, Conditions(available=0.0), 0, 1) == []


@pytest.mark.parametrize("name", ["available", "lost", "stragglers", "least"])
def test_shares_are_checked(name: str) -> None:
    with pytest.raises(AccordError, match=f"{name} must be between 0 and 1, got 1.5"):
        Conditions(**{name: 1.5})
