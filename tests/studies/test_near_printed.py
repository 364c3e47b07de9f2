"""How near averaging comes to what is printed, worked by hand."""

from pathlib import Path

import pytest

from accord.studies.near_printed import gaps, near_printed
from accord.studies.outcome import Figures, Result
from accord.studies.published import find
from accord.studies.results import StudyResults
from accord.studies.study import Study
from accord.studies.study_file import load


def table8(accuracies: dict[str, float], seeds: int = 3) -> StudyResults:
    """Averaging in TMLR table 8, by number of clients; printed are 88.1 with 10 and others with more."""
    study = load("tmlr-table8")
    assert isinstance(study, Study)
    results = []
    for cell in study.cells:
        accuracy = accuracies.get(cell.values["clients"])
        if accuracy is not None:
            figures = Figures({}, {seed: {"test": accuracy / 100} for seed in range(seeds)})
            results.append(Result(cell, {"last10": figures}, [], seeds, seeds))
    return StudyResults(study, results, "", Path("tmlr-table8.json"))


def test_ours_less_what_is_printed_for_averaging_alone() -> None:
    ours = {"10": 88.6, "50": 80.0, "100": 70.0}
    study = table8(ours).study
    printed = {
        cell.values["clients"]: find(study.paper, study.table, cell.values)[0].value
        for cell in study.cells
        if cell.values["aggregation"] == "avg"
    }
    assert printed["10"] == 88.1
    assert gaps([table8(ours)]) == pytest.approx([ours[n] - printed[n] for n in ours])
    assert gaps([table8(ours), table8(ours)]) == gaps([table8(ours)]), "a number counts once"
    assert gaps([table8(ours, seeds=2)]) == []


def test_a_number_is_compared_by_the_rule_and_on_the_split_that_it_was_printed_for() -> None:
    """Table 1 of the corrective weights prints two windows for each seed: figures of one stand for no number of the
    other."""
    study = load("corrective-table1")
    assert isinstance(study, Study)
    cell = next(cell for cell in study.cells if cell.values[study.compare] == study.against)
    printed = find(study.paper, study.table, cell.values)
    rules = {number.rule for number in printed}
    assert len(rules - {None}) > 1
    last = study.rules[0]
    figures = Figures({}, {seed: {"test": 0.5} for seed in range(3)})
    results = StudyResults(study, [Result(cell, {last: figures}, [], 3, 3)], "", Path("x.json"))
    of_last = [number for number in printed if number.rule in (last, None)]
    assert 0 < len(of_last) < len(printed) and gaps([results]) == [50 - number.value for number in of_last]


def test_the_sentence_counts_near_and_far() -> None:
    printed = find("tmlr", "8", {"clients": "50", "aggregation": "avg"})[0].value
    results = table8({"10": 88.1, "50": printed - 5.1, "100": 99.9})
    answered = results.answered(3)
    near_and_far, without = filter(None, near_printed([results], answered))
    assert "of 3 answered ones that are averaging's, 1 are within a point of ours" in near_and_far
    assert "ours is more than 5 points above in 1, below in 1" in near_and_far
    assert without.startswith("No number on cifar10, cifar100, ") and "fmnist" not in without.split(", ")
    assert near_printed([], set()) == []
