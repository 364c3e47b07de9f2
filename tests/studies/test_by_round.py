"""Early and late in a run: differences of curves at shares of the rounds, and rounds to a target, worked by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from accord.studies.by_round import by_round, by_round_cells, medians_by_round
from accord.studies.outcome import Figures, Result
from accord.studies.page import page
from accord.studies.results import read_all
from accord.studies.study import Study
from accord.studies.study_file import load

RESULTS = Path(__file__).parents[2] / "replication/results"
SHARED = 10  # places of thesis-table4.4 where both a mask and its control can be judged
AVERAGING = {1: 0.10, 5: 0.40, 10: 0.50, 24: 0.60, 50: 0.70, 100: 0.80}


@pytest.fixture
def study() -> Study:
    study = load("tmlr-table8")
    assert isinstance(study, Study)
    return study


def results(study: Study, curves: dict[tuple[str, str], dict[int, float]]) -> list[Result]:
    """Cells by number of clients and rule, with these curves."""
    return [
        Result(cell, {"held-out": Figures({}, {seed: {"test": 0.5} for seed in range(3)}, curve)}, [], 3, 3)
        for cell in study.cells
        if (curve := curves.get((cell.values["clients"], cell.values[study.compare])))
    ]


def test_a_rival_is_compared_in_the_evaluated_round_nearest_to_each_share(study: Study) -> None:
    ahead_early = {1: 0.10, 5: 0.45, 10: 0.52, 24: 0.60, 50: 0.69, 100: 0.77}
    (row,) = by_round(study, results(study, {("10", "avg"): AVERAGING, ("10", "gma"): ahead_early}))
    assert row.rival == "gma" and row.where["clients"] == "10"
    assert row.ahead == pytest.approx([0.05, 0.02, 0.00, -0.01, -0.03])
    assert row.target == pytest.approx(0.79) and row.rounds == (None, 100)
    head, line = by_round_cells([row], "avg")
    assert line[len(row.where) :] == ["gma", "+5.00", "+2.00", "+0.00", "-1.00", "-3.00", "79.0", "never", "100"]
    assert len(head) == len(line)


def test_of_runs_that_ended_at_different_rounds_shares_are_of_the_longer(study: Study) -> None:
    gains = {1: 0.0, 5: 0.1, 10: 0.2, 24: 0.3, 50: 0.4}
    shorter = {at: AVERAGING[at] + gain for at, gain in gains.items()}
    (row,) = by_round(study, results(study, {("10", "avg"): AVERAGING, ("10", "gma"): shorter}))
    assert row.ahead[:4] == pytest.approx([0.1, 0.2, 0.3, 0.4]) and row.ahead[4] is None, "it had ended by then"
    assert row.rounds == (24, 100) and by_round_cells([row], "avg")[1][-4] == ""
    nearly = {**shorter, 90: 0.9}
    (row,) = by_round(study, results(study, {("10", "avg"): {**AVERAGING, 90: 0.8}, ("10", "gma"): nearly}))
    assert row.ahead[3:] == [pytest.approx(0.4), None], "nine tenths are not the end"


def test_a_round_far_from_the_share_is_none_of_it(study: Study) -> None:
    seldom = {1: 0.2, 100: 0.9}
    (row,) = by_round(study, results(study, {("10", "avg"): AVERAGING, ("10", "gma"): seldom}))
    assert row.ahead[:4] == [None] * 4 and row.ahead[4] == pytest.approx(0.1)


def test_a_target_is_reached_in_the_first_round_that_has_it(study: Study) -> None:
    falling = {1: 0.10, 5: 0.79, 10: 0.50, 24: 0.60, 50: 0.70, 100: 0.80}
    risen = {1: 0.10, 5: 0.95, 10: 0.50, 24: 0.60, 50: 0.70, 100: 0.80}  # the end counts, not the best
    (row,) = by_round(study, results(study, {("10", "avg"): risen, ("10", "gma"): falling}))
    assert row.target == pytest.approx(0.79) and row.rounds == (5, 5)


def test_curves_of_different_seeds_are_not_compared(study: Study) -> None:
    both = results(study, {("10", "avg"): AVERAGING, ("10", "gma"): AVERAGING})
    assert len(by_round(study, both)) == 1
    fewer = Figures({}, {0: {"test": 0.5}}, AVERAGING)
    assert by_round(study, [both[0], replace(both[1], figures={"held-out": fewer})]) == []


def test_a_place_without_the_curve_of_either_has_no_row(study: Study) -> None:
    assert by_round(study, results(study, {("10", "avg"): AVERAGING, ("50", "gma"): AVERAGING})) == []


def test_medians_are_over_places_and_count_those_that_are_ahead(study: Study) -> None:
    gains = {"10": 0.03, "50": 0.0, "100": -0.01}
    curves = {(clients, "avg"): AVERAGING for clients in gains}
    for clients, gain in gains.items():
        curves[clients, "gma"] = {at: value + gain for at, value in AVERAGING.items()}
    rows = by_round(study, results(study, curves))
    assert medians_by_round(rows, ["gma"]) == [["gma", "3", *["+0.00 (1)"] * 5]]
    others = [replace(rows[0], same_rates=False), *rows[1:]]
    assert medians_by_round(others, ["gma"])[1] == ["gma, at the same rates", "2", *["-0.50 (0)"] * 5]


def test_medians_of_two_rivals_are_over_the_places_that_have_both(study: Study) -> None:
    gains = {
        "gma": {"10": 0.09, "50": 0.01, "100": 0.01},
        "gma-length": {"50": 0.02, "100": 0.02, "250": 0.09},
    }
    curves = {(clients, "avg"): AVERAGING for clients in ("10", "50", "100", "250")}
    for rival, by_clients in gains.items():
        for clients, gain in by_clients.items():
            curves[clients, rival] = {at: value + gain for at, value in AVERAGING.items()}
    rows = by_round(study, results(study, curves))
    assert medians_by_round(rows, ["gma", "gma-length"]) == [
        ["gma", "2", *["+1.00 (2)"] * 5],
        ["gma-length", "2", *["+2.00 (2)"] * 5],
    ]


def test_rates_are_the_same_where_both_chose_the_same_point(study: Study) -> None:
    base, rival = results(study, {("10", "avg"): AVERAGING, ("10", "gma"): AVERAGING})
    assert by_round(study, [base, rival])[0].same_rates
    other = replace(rival.figures["held-out"], point={"train.lr": 0.1})
    assert not by_round(study, [base, replace(rival, figures={"held-out": other})])[0].same_rates


def test_the_page_has_both_tables() -> None:
    text = page(read_all([RESULTS / "thesis-table4.4.json"]))
    early = text.partition("### Early and late in a run")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[1:3] for line in early.splitlines() if "thesis-table4.4" in line]
    assert [rule for rule, _ in rows][::2] == ["gma", "gma-length"] and {count for _, count in rows[::2]} == {
        str(SHARED)
    }
    assert "Ahead of avg on the test set after so much of the run" in text


def test_a_few_places_have_no_medians() -> None:
    text = page(read_all([RESULTS / "tmlr-table8.json"]))
    assert "### Early and late" not in text and "Ahead of avg on the test set after so much of the run" in text
