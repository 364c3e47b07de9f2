"""What is left of a study and how long it may take: the plan as a command prints it, and as the report has it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord.cli.verdicts import verdicts
from accord.studies.page import page
from accord.studies.plan import StudyPlan, read_plan
from accord.studies.results import read_all
from command import refused
from conftest import sentence
from study_commands import TINY, inside

RESULTS = Path(__file__).parents[2] / "replication/results"


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


def test_a_plan_is_a_dry_run(here: Path) -> None:
    code, out, _ = inside(here, "reproduce", "tiny.toml", "--dry-run")
    assert code == 0 and "3 cells, 6 points of the grid, 12 runs" in out


def test_cells_and_seeds_may_be_given_in_several_words(here: Path) -> None:
    words = ("--only", "rule=mean+gma", "--only", "algorithm=fedavg", "--seeds", "0", "--seeds", "3")
    _, out, err = inside(here, "reproduce", "tiny.toml", "--plan", *words)
    assert "2 cells, 4 points of the grid, 8 runs" in out, err
    told = refused({}, here, "reproduce", "tiny.toml", "--plan", "--only", "rule=mean", "--only", "rule=gma")
    assert "rule is chosen twice: write rule=value+value" in told


@pytest.mark.parametrize("place", [".", "tiny.toml/runs.xz"])
def test_an_export_that_cannot_be_written_is_refused_before_anything_is_trained(place: str, here: Path) -> None:
    before = (here / "runs/reproduce/tiny.json").read_bytes()
    refused({}, here, "reproduce", "tiny.toml", "--export", place)
    assert (here / "runs/reproduce/tiny.json").read_bytes() == before and not (here / "runs/reproduce/runs").exists()


@pytest.mark.parametrize("rivals", ["mean+gma", "mean+gma-scaled", "mean+gma+gma-length"])
def test_a_mask_without_its_control_is_told_of(rivals: str, here: Path) -> None:
    length = 'gma-length = { "algorithm.mask" = { name = "scaled", by = "length", mask = "gma" } }'
    (here / "tiny.toml").write_text(
        TINY.replace("[grid]", f"{length}\n[grid]").replace("}\n\ngma-length", "}\ngma-length")
    )
    code, _, err = inside(here, "reproduce", "tiny.toml", "--only", f"rule={rivals}", "--seeds", "0")
    assert code == 0 and ("No control beside gma: what a mask gains may be" in err) == (rivals == "mean+gma")


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


def added(folder: Path, *words: str) -> tuple[str, str, int]:
    """Standard output and standard error of the command, and the runs that it trained."""
    code, out, err = inside(folder, "reproduce", "tiny.toml", "--add", *words)
    assert code == 0, err
    return out, err, len(list(folder.glob("runs/reproduce/runs/*/done")))


def cells_of(folder: Path) -> dict[str, dict[str, Any]]:
    """What the results file has by then, by rule."""
    content = json.loads((folder / "runs/reproduce/tiny.json").read_text())
    return {cell["values"]["rule"]: cell for cell in content["cells"]}


def seeds_of(cell: dict[str, Any]) -> set[str]:
    return {*cell["figures"]["held-out"]["by_seed"]}


LEFT_OUT = "1 cell left out: runs/reproduce/tiny.json has the results."


def test_with_add_what_the_results_have_is_not_trained_again(here: Path, finished: dict[str, Any]) -> None:
    """As after a fresh clone, which has the results and none of the runs."""
    out, err, trained = added(here)
    assert err.count(LEFT_OUT) == 1 and trained == 8
    cells = json.loads((here / "runs/reproduce/tiny.json").read_text())["cells"]
    assert len(cells) == 3 and cells[:1] == finished["cells"], "kept as it was"
    assert "ahead of mean" in out, "the others are compared with it"


@pytest.mark.parametrize("words", [(), ("--json",), ("--minutes", "1")])
def test_with_add_nothing_may_be_left_to_train(here: Path, finished: dict[str, Any], words: tuple[str, ...]) -> None:
    before = (here / "runs/reproduce/tiny.json").read_bytes()
    out, err, trained = added(here, "--only", "rule=mean", *words)
    assert LEFT_OUT in err and trained == 0 and (here / "runs/reproduce/tiny.json").read_bytes() == before
    if "--json" in words:
        assert json.loads(out)["cells"] == finished["cells"]
    else:
        assert "fedavg" in out and "mean" in out


def test_with_add_a_cell_of_which_more_seeds_are_asked_is_trained_and_replaced(here: Path) -> None:
    _, err, trained = added(here, "--only", "rule=mean", "--seeds", "0,1,2")
    cell = cells_of(here)["mean"]
    assert "left out" not in err and trained == cell["done"] == 6 and seeds_of(cell) == {"0", "1", "2"}


def test_with_add_a_superseded_cell_is_trained_again_and_replaced_even_by_fewer_seeds(
    here: Path, finished: dict[str, Any]
) -> None:
    (cell,) = finished["cells"]
    write(here / "runs/reproduce/tiny.json", {**finished, "cells": [{**cell, "superseded": "of an earlier rule"}]})
    assert planned(here, "--add", "--only", "rule=mean").cells == 1
    _, _, trained = added(here, "--only", "rule=mean", "--seeds", "0")
    after = cells_of(here)["mean"]
    assert trained == after["done"] == 2 and "superseded" not in after


def test_with_add_a_grid_that_grew_is_in_the_results_and_stays(here: Path) -> None:
    """Rivals' grids grow together; a later command that does not grow them tries as many points."""
    _, err, trained = added(here, "--only", "rule=mean+gma", "--grow", "1")
    grids = {rule: cell["grid"]["train.lr"] for rule, cell in cells_of(here).items()}
    assert "left out" not in err and grids["mean"] == grids["gma"] and len(grids["mean"]) > 2
    assert trained == 4 * len(grids["mean"])
    added(here, "--seeds", "0,1,2")
    after = cells_of(here)
    assert all(cell["grid"]["train.lr"] == grids["mean"] for cell in after.values()) and len(after) == 3
    assert all(seeds_of(cell) == {"0", "1", "2"} for cell in after.values())


@pytest.mark.parametrize("setting", ['"train.rounds" = 5', '"train.sample" = 4'])
def test_with_add_a_cell_whose_settings_are_others_is_trained_and_replaced(
    here: Path, finished: dict[str, Any], setting: str
) -> None:
    """Its results are of shorter runs, or of runs with other names."""
    key = setting.partition(" = ")[0]
    (here / "tiny.toml").write_text(re.sub(f"^{key} = .*$", setting, TINY, flags=re.MULTILINE))
    _, err, trained = added(here, "--only", "rule=mean")
    after = cells_of(here)["mean"]
    assert "left out" not in err and trained == 4 and after["figures"] != finished["cells"][0]["figures"]


def test_with_add_an_unfinished_cell_does_not_take_the_place_of_a_finished_one(here: Path) -> None:
    """Half of its runs are here, as of a command that was stopped."""
    half = ("tiny.toml", "--only", "rule=mean", "--folder", "other")
    (here / "tiny.toml").write_text(TINY.replace("[0.05, 0.1]", "[0.05]"))
    code, _, err = inside(here, "reproduce", *half)
    assert code == 0, err
    (here / "other/runs").rename(here / "runs/reproduce/runs")
    (here / "tiny.toml").write_text(TINY)
    code, _, err = inside(here, "reproduce", "tiny.toml", "--add", "--grow", "1", "--minutes", "0")
    assert "Time is up" in err and cells_of(here)["mean"]["done"] == 4 == cells_of(here)["mean"]["runs"]


def test_with_add_other_seeds_are_refused_before_anything_is_trained(here: Path) -> None:
    code, _, err = inside(here, "reproduce", "tiny.toml", "--add", "--only", "rule=mean", "--seeds", "1,5")
    assert code == 2 and "with seeds 0, 1, and results of other seeds cannot be added" in err and "ask for 0" in err
    assert not (here / "runs/reproduce/runs").exists()


@pytest.mark.parametrize("unfinished", [False, True])
def test_with_add_so_are_those_of_the_study_and_of_a_cell_that_is_not_finished(
    here: Path, finished: dict[str, Any], unfinished: bool
) -> None:
    (cell,) = finished["cells"]
    if unfinished:
        write(here / "runs/reproduce/tiny.json", {**finished, "cells": [{**cell, "done": cell["runs"] - 1}]})
        words = ("--seeds", "7,8")
    else:
        (here / "tiny.toml").write_text(TINY.replace("seeds = [0, 1]", "seeds = [5, 6]"))
        words = ()
    told = refused({}, here, "reproduce", "tiny.toml", "--add", "--only", "rule=mean", *words)
    assert "with seeds 0, 1, and results of other seeds cannot be added" in told and "ask for 0, 1" in told
    assert not (here / "runs/reproduce/runs").exists()


def test_with_add_a_cell_keeps_the_seeds_that_it_was_run_with(here: Path, finished: dict[str, Any]) -> None:
    """A study may ask for more seeds than the results have: the plan and the command leave the cell out alike."""
    (here / "tiny.toml").write_text(TINY.replace("seeds = [0, 1]", "seeds = [0, 1, 2]"))
    assert planned(here, "--add", "--only", "rule=mean").cells == 0
    _, err, trained = added(here, "--only", "rule=mean")
    assert LEFT_OUT in err and trained == 0


def test_with_add_the_plan_has_the_cells_that_are_trained(here: Path) -> None:
    (here / "tiny.toml").write_text(TINY.replace('"train.rounds" = 4', '"train.rounds" = 5'))
    plan = planned(here, "--add", "--only", "rule=mean")
    _, _, trained = added(here, "--only", "rule=mean")
    assert plan.cells == 1 and plan.runs == trained == 4


def test_with_add_fewer_seeds_do_not_take_the_place_of_more(here: Path, finished: dict[str, Any]) -> None:
    added(here, "--only", "rule=gma")
    out, _, _ = added(here, "--only", "rule=gma", "--seeds", "0", "--json")
    (cell,) = json.loads(out)["cells"]
    assert {*cell["figures"]["held-out"]["by_seed"]} == {"0", "1"}, "what is printed is what the file has"


def test_with_add_wrong_settings_are_an_error(here: Path) -> None:
    (here / "tiny.toml").write_text(TINY.replace("train.sample", "train.sampel"))
    code, _, err = inside(here, "reproduce", "tiny.toml", "--add")
    assert code == 2 and "sampel" in err


def test_with_add_an_export_is_not_replaced_by_an_empty_one(here: Path) -> None:
    (here / "runs.xz").write_bytes(b"precious")
    code, _, err = inside(here, "reproduce", "tiny.toml", "--add", "--only", "rule=mean", "--export", "runs.xz")
    assert code == 2 and "nothing to export to runs.xz" in err and (here / "runs.xz").read_bytes() == b"precious"


def test_with_add_the_table_is_in_the_order_of_the_study(here: Path) -> None:
    added(here, "--only", "rule=gma-scaled")
    out, _, _ = added(here)
    rules = [line.split()[1] for line in out.splitlines() if line.split()[:1] == ["fedavg"]]
    assert rules[:3] == ["mean", "gma", "gma-scaled"]


def test_with_add_grids_of_rivals_grow_together_or_not_at_all(here: Path) -> None:
    """Both are finished, and the runs of one alone are here."""
    added(here, "--only", "rule=gma")
    _, err, _ = added(here, "--only", "rule=mean+gma", "--grow", "1")
    cells = cells_of(here)
    assert "left out" not in err and cells["mean"]["grid"] == cells["gma"]["grid"]


def test_with_add_a_rival_that_is_asked_for_alone_tries_the_points_that_others_have_grown_by(here: Path) -> None:
    added(here, "--only", "rule=mean+gma", "--grow", "1")
    added(here, "--only", "rule=gma-scaled")
    cells = cells_of(here)
    assert len({str(cell["grid"]) for cell in cells.values()}) == 1 and len(cells) == 3
    assert all(len(values) > 2 for values in cells["gma-scaled"]["grid"].values())


def test_with_add_runs_that_are_there_are_read_again(here: Path) -> None:
    added(here, "--only", "rule=gma")
    _, err, _ = added(here, "--only", "rule=gma", "--export", "runs.xz")
    assert "left out" not in err and "runs.xz: 4 runs" in err


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


def test_cells_whose_data_cannot_be_fetched_are_left_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on MNIST have names without it: that it cannot be had shows once it is needed."""
    monkeypatch.setenv("ACCORD_CACHE", str(here / "empty"))
    monkeypatch.setattr("accord.data.sources._ways", lambda *where: [])
    (here / "tiny.toml").write_text(TINY.replace('"gma" }\ngma-scaled', '"gma", "data.name" = "mnist" }\ngma-scaled'))
    (missing,) = planned(here).missing
    assert (missing.data, missing.cells) == ("mnist", 1)
    _, out, err = inside(here, "reproduce", "tiny.toml", "--plan")
    assert "2 cells, 4 points of the grid, 8 runs" in out and "1 cell left out: mnist is in no package" in err
    _, out, _ = inside(here, "reproduce", "tiny.toml", "--only", "rule=gma+gma-scaled")
    assert "gma-scaled" in out and len(list(here.glob("runs/reproduce/runs/*/done"))) == 4


def test_a_cell_that_is_done_stays_in_the_results_when_its_data_cannot_be_had(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs are here, as imported ones are; those of more seeds cannot be trained."""
    (here / "tiny.toml").write_text(
        TINY.replace('"digits"', '"mnist"').replace("[settings]", '[settings]\n"data.share" = 0.01')
    )
    words = ("reproduce", "tiny.toml", "--only", "rule=mean+gma", "--folder", "other")
    code, _, err = inside(here, *words)
    assert code == 0, err
    before = json.loads((here / "other/tiny.json").read_text())["cells"]
    monkeypatch.setenv("ACCORD_CACHE", str(here / "empty"))
    monkeypatch.setattr("accord.data.sources._ways", lambda *where: [])
    code, _, err = inside(here, *words)
    assert code == 0 and json.loads((here / "other/tiny.json").read_text())["cells"] == before, err
    code, _, err = inside(here, *words, "--seeds", "0,1,2")
    after = json.loads((here / "other/tiny.json").read_text())["cells"]
    assert "2 cells left out: mnist is in no package" in err and [cell["done"] for cell in after] == [4, 4]


def test_an_analysis_without_data_is_planned_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "empty"))
    (tmp_path / "one.toml").write_text('analysis = "participation"\n[settings]\n"data.name" = "femnist"\n')
    code, out, err = inside(tmp_path, "reproduce", "one.toml", "--plan", "--json")
    plan = StudyPlan.model_validate(json.loads(out))
    assert code == 0 and plan.cells is None and plan.kinds == [], err
    assert [(one.data, one.cells) for one in plan.missing] == [("femnist", None)]
    assert "femnist is in no package" in refused({}, tmp_path, "reproduce", "one.toml", "--plan")
    told = refused({}, tmp_path, "reproduce", "one.toml", "--plan", "--json", "data.name=digits", "train.rounds=-1")
    assert "train.rounds" in told, "that is no lack of data"


def test_wrong_settings_are_not_taken_for_missing_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the data were not asked for yet."""
    monkeypatch.setenv("ACCORD_CACHE", str(here / "empty"))
    for wrong in ("algorithm.name=nothing", "train.rounds=-1"):
        told = refused({}, here, "reproduce", "tiny.toml", "--plan", "--json", wrong)
        assert wrong.split("=")[0] in told or "nothing" in told


def test_runs_that_may_end_early_are_an_upper_bound(here: Path) -> None:
    assert planned(here, "--patience", "2").at_most and not planned(here).at_most


# -------------------------------------------------------------------------------------------------------- the report

KIND = {"kind": "mnist, lenet", "runs": 30, "rounds": 4500, "at_once": 30, "seconds": 9000.0}
PLAN = {
    "plan": "tmlr-table9",
    "protocol": 1,
    "title": "a table",
    "command": "accord reproduce tmlr-table9 --plan --add --json",
    "device": "NVIDIA H200",
    "at_most": False,
    "cells": 12,
    "kinds": [KIND, {**KIND, "seconds": 540.0}],
    "missing": [],
}
LACKING = {
    **PLAN,
    "plan": "corrective-table1",
    "cells": 18,
    "missing": [{"data": "femnist", "cells": 9, "why": "femnist could not be had from anywhere"}],
}
ANALYSIS = {**PLAN, "plan": "tmlr-membership", "cells": None, "kinds": [{**KIND, "seconds": 600.0}]}


def section(*plans: dict[str, Any]) -> str:
    """What the report says of what was not run, where tmlr-table9 has 3 of its 15 cells."""
    results = read_all([RESULTS / "tmlr-table9.json"])
    return page(results, [StudyPlan.model_validate(plan) for plan in plans]).partition("\n## Not run\n")[2]


def test_the_report_has_the_hours_of_every_plan_and_their_sum() -> None:
    text = section(PLAN, LACKING, ANALYSIS)
    command = "`accord reproduce tmlr-table9 --plan --add --json`"
    assert f"| tmlr-table9 | 12 | 60 | 2.6 h | NVIDIA H200 |  | {command} |" in text
    assert f"| corrective-table1 | 18 | 60 | 2.6 h | NVIDIA H200 | femnist (9 cells) | {command} |" in text
    assert f"| tmlr-membership | an analysis | 30 | 10 min | NVIDIA H200 |  | {command} |" in text
    assert "In all 5.5 h on NVIDIA H200." in text, "2.65 h twice and a sixth of one"
    assert "Not included, because the data are missing on that machine: 9 cells." in text
    assert "- femnist, for 9 cells (corrective-table1): femnist could not be had from anywhere" in text
    rest = text.partition("There is no estimate for ")[2]
    assert "tmlr-table2," in rest and "tmlr-table9" not in rest and "tmlr-membership" not in rest


def test_devices_are_summed_apart_and_bounds_are_called_so() -> None:
    text = section(PLAN, {**ANALYSIS, "device": "cpu", "at_most": True})
    assert "| at most 10 min | cpu |" in text and "In all 2.6 h on NVIDIA H200 and at most 10 min on cpu." in text


def test_an_analysis_without_data_is_counted_as_one() -> None:
    missing = [{"data": "cifar10", "cells": None, "why": "cifar10 could not be had"}]
    text = section(LACKING, {**ANALYSIS, "device": None, "kinds": [], "missing": missing})
    assert "| tmlr-membership | an analysis | 0 | - | - | cifar10 (1 analysis) |" in text
    assert "the data are missing on that machine: 9 cells and 1 analysis." in text


def test_a_plan_of_other_cells_than_are_left_says_so() -> None:
    """Results have come since, or the plan is for some cells only."""
    assert "| tmlr-table9 | 14 planned, 12 left |" in section({**PLAN, "cells": 14})
    assert "The time left" not in section({**PLAN, "cells": 0, "kinds": []}, {**ANALYSIS, "kinds": []})


def test_results_that_are_whole_need_no_plan() -> None:
    results = read_all([RESULTS / "tmlr-table4.json", RESULTS / "tmlr-table10.json"])
    plans = [{**PLAN, "plan": "tmlr-table10"}, {**ANALYSIS, "plan": "tmlr-table4"}]
    assert page(results, [StudyPlan.model_validate(plan) for plan in plans]) == page(results)


def test_a_plan_that_was_printed_is_read_back_by_verdicts(here: Path) -> None:
    folder = here / "runs/reproduce"
    code, out, err = inside(here, "reproduce", "tiny.toml", "--plan", "--add", "--json")
    assert code == 0, err
    (folder / "tiny.plan.json").write_text(out)
    pages = []
    for _ in range(2):
        code, told, err = inside(here, "verdicts", "-o", "page/README.md")
        assert code == 0 and "page/README.md: 1 study" in told, err
        pages.append([(here / "page" / name).read_bytes() for name in ("README.md", "index.html")])
    assert pages[0] == pages[1]
    text, drawn = (content.decode() for content in pages[0])
    row = next(line for line in text.splitlines() if line.startswith("| tiny |"))
    assert row.startswith("| tiny | 2 | 8 | ") and row.endswith(
        "| cpu |  | `accord reproduce tiny.toml --plan --add --json` |"
    )
    assert "<td>tiny</td>" in drawn and f"<td>{row.split(' | ')[3]}</td>" in drawn


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda plan: "{", "does not hold a plan of accord reproduce: JSONDecodeError"),
        (lambda plan: [], "does not hold a plan of accord reproduce: it has no 'plan'"),
        (lambda plan: {**plan, "protocol": 0}, "has a plan of protocol 0, and this is protocol 1"),
        (lambda plan: {**plan, "plan": "tmlr-table2"}, "the plan of tmlr-table2, whose file is called"),
        (lambda plan: {**plan, "device": None}, "no device that their time is for"),
        (lambda plan: {**plan, "cells": -1}, "cells: Input should be greater than or equal to 0"),
        (lambda plan: {**plan, "kinds": [{**KIND, "seconds": "long"}]}, "kinds.0.seconds: "),
        (lambda plan: {**plan, "missing": LACKING["missing"], "cells": 1}, "more cells are missing than are left"),
    ],
)
def test_a_damaged_plan_is_named_and_no_page_is_written(
    damage: Callable[[dict[str, Any]], Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "tmlr-table9.json").write_text((RESULTS / "tmlr-table9.json").read_text())
    path, content = tmp_path / "tmlr-table9.plan.json", damage(PLAN)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with sentence(str(path), said):
        verdicts(tmp_path, tmp_path / "out/README.md")
    assert not (tmp_path / "out").exists()


def test_plans_are_no_results(tmp_path: Path) -> None:
    write(tmp_path / "tmlr-table9.plan.json", PLAN)
    assert read_plan(tmp_path / "tmlr-table9.plan.json").seconds == 9540
    with sentence("there are no results in"):
        verdicts(tmp_path, tmp_path / "out/README.md")
