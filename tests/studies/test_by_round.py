"""Early and late in a run: differences of curves at shares of the rounds, and rounds to a target, worked by hand."""

from pathlib import Path

import pytest

from accord.studies.by_round import by_round, by_round_cells, means_by_round
from accord.studies.outcome import Figures, Result
from accord.studies.page import page
from accord.studies.results import read_all
from accord.studies.study import Study
from accord.studies.study_file import load

RESULTS = Path(__file__).parents[2] / "replication/results"
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


def test_runs_that_ended_at_different_rounds_are_compared_in_those_that_both_have(study: Study) -> None:
    shorter = {at: value + 0.1 for at, value in AVERAGING.items() if at < 100}
    (row,) = by_round(study, results(study, {("10", "avg"): AVERAGING, ("10", "gma"): shorter}))
    # 5 % of 50 rounds is nearest to the first: 2.5 is 1.5 from it and 2.5 from the fifth
    assert row.ahead == pytest.approx([0.1] * 5) and row.rounds == (50, 100)


def test_a_place_without_the_curve_of_either_has_no_row(study: Study) -> None:
    assert by_round(study, results(study, {("10", "avg"): AVERAGING, ("50", "gma"): AVERAGING})) == []


def test_means_are_over_places_and_count_those_that_are_ahead(study: Study) -> None:
    better = {at: value + 0.03 for at, value in AVERAGING.items()}
    worse = {at: value - 0.01 for at, value in AVERAGING.items()}
    curves = {("10", "avg"): AVERAGING, ("50", "avg"): AVERAGING, ("10", "gma"): better, ("50", "gma"): worse}
    assert means_by_round(by_round(study, results(study, curves))) == {"gma": ["+1.00 (1)"] * 5}


def test_the_page_has_both_tables() -> None:
    text = page(read_all([RESULTS / "tmlr-table8.json"]))
    early = text.partition("### Early and late in a run")[2].partition("\n## ")[0]
    assert early.count("`tmlr-table8` | 4 | gma") == 2  # the mask, and its control
    assert "Ahead of avg on the test set after so much of the run" in text
