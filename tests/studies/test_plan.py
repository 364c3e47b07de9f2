"""What is left of a study and how long it may take, as a command prints it."""

import json
from pathlib import Path
from typing import Any

import pytest

from accord.studies.plan import StudyPlan
from command import refused
from study_commands import TINY, inside


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of the tiny study with one of its three cells, which has all its runs."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    code, _, err = inside(folder, "reproduce", "tiny.toml", "--only", "rule=mean")
    assert code == 0, err
    return json.loads((folder / "runs/reproduce/tiny.json").read_text())


@pytest.fixture
def here(finished: dict[str, Any], tmp_path: Path) -> Path:
    """A folder with the study's file and those results, but none of their runs."""
    (tmp_path / "tiny.toml").write_text(TINY)
    write(tmp_path / "runs/reproduce/tiny.json", finished)
    return tmp_path


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def planned(folder: Path, *words: str) -> StudyPlan:
    """What the command prints as JSON, and nothing else on standard output."""
    code, out, err = inside(folder, "reproduce", "tiny.toml", "--plan", "--json", *words)
    assert code == 0, err
    return StudyPlan.model_validate(json.loads(out))


# ------------------------------------------------------------------------------------------------------- the command


def test_with_add_a_plan_leaves_out_what_the_results_have(here: Path) -> None:
    whole, rest = planned(here), planned(here, "--add")
    assert (whole.cells, whole.runs) == (3, 12) and (rest.cells, rest.runs) == (2, 8)
    assert rest.seconds == pytest.approx(whole.seconds * 8 / 12, abs=0.1), "both by the pace that was measured once"
    code, out, err = inside(here, "reproduce", "tiny.toml", "--plan", "--add")
    assert code == 0 and "2 cells, 4 points of the grid, 8 runs, 0 of them done" in out, err


def test_a_cell_is_left_out_only_if_it_has_all_that_is_asked_for(here: Path, finished: dict[str, Any]) -> None:
    assert planned(here, "--add", "--seeds", "0,1").cells == 2
    assert planned(here, "--add", "--seeds", "0,1,2").cells == 3, "it has two seeds"
    assert planned(here, "--add", "--only", "rule=mean").cells == 0
    (cell,) = finished["cells"]
    write(here / "runs/reproduce/tiny.json", {**finished, "cells": [{**cell, "done": cell["runs"] - 1}]})
    assert planned(here, "--add").cells == 3, "one of its runs is not done"
    (here / "runs/reproduce/tiny.json").unlink()
    assert planned(here, "--add").cells == 3, "there are no results"


def test_what_cannot_be_added_to_is_not_planned(here: Path) -> None:
    told = refused({}, here, "reproduce", "tiny.toml", "--plan", "--add", "--rounds", "9")
    assert "tiny.json cannot be added to: its changed is [], not ['train.rounds=9']" in told


def test_cells_without_data_stand_in_the_plan_by_their_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are no others: without --json that is an error, as it was."""
    monkeypatch.setenv("ACCORD_CACHE", str(here / "empty"))
    words = ("tiny.toml", "data.name=femnist")
    (missing,) = planned(here, "data.name=femnist").missing
    assert (missing.data, missing.cells) == ("femnist", 3) and "femnist is in no package" in missing.why
    assert "femnist is in no package" in refused({}, here, "reproduce", *words, "--plan")
    (here / "tiny.toml").write_text(TINY.replace('"gma" }\ngma-scaled', '"gma", "data.name" = "femnist" }\ngma-scaled'))
    some = planned(here)
    assert some.cells == 3 and some.runs == 8 and [one.cells for one in some.missing] == [1]


def test_wrong_settings_are_not_taken_for_missing_data(here: Path) -> None:
    told = refused({}, here, "reproduce", "tiny.toml", "--plan", "--json", "algorithm.name=nothing")
    assert "nothing" in told


def test_runs_that_may_end_early_are_an_upper_bound(here: Path) -> None:
    assert planned(here, "--patience", "2").at_most and not planned(here).at_most
