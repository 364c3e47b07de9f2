"""How near averaging comes to what is printed, worked by hand."""

from pathlib import Path

import pytest

from accord.studies.levels import levels, levels_text
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
    assert levels([table8(ours)]) == pytest.approx([ours[n] - printed[n] for n in ours])
    assert levels([table8(ours), table8(ours)]) == levels([table8(ours)]), "a number counts once"
    assert levels([table8(ours, seeds=2)]) == []


def test_the_sentence_counts_near_and_far() -> None:
    printed = find("tmlr", "8", {"clients": "50", "aggregation": "avg"})[0].value
    results = table8({"10": 88.1, "50": printed - 5.1, "100": 99.9})
    answered = results.answered(3)
    near_and_far, without = filter(None, levels_text([results], answered))
    assert "of 3 that are printed for averaging, 1 are within a point of ours" in near_and_far
    assert "1 times ours is more than 5 points above, 1 times below" in near_and_far
    assert without.startswith("No number on cifar10, cifar100, ") and "fmnist" not in without.split(", ")
    assert levels_text([], set()) == []
