"""`accord choose` from the command line: the plan, too little time, the answer, its file and its page."""

import csv
import json
import random
from pathlib import Path

import pytest

from command import accord, environment, refused

FILE = """
[data]
name = "table"
source = "sites.csv"
client = "site"
label = "ill"
heldout = 0.3
[model]
name = "logistic"
[train]
rounds = 1
[run]
folder = "runs"
seeds = [0, 1, 2]
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draws = tmp_path_factory.mktemp("here"), random.Random(0)
    (folder / "mine.toml").write_text(FILE)
    with (folder / "sites.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "a", "b", "ill"])
        for number in range(60):
            x = draws.gauss(0, 1)
            rows.writerow([("east", "north", "south")[number % 3], x, draws.gauss(0, 1), "yes" if x > 0 else "no"])
    return folder


def test_the_plan_is_told_and_nothing_trained(env: dict[str, str], here: Path) -> None:
    *stages, total, kind, time = accord(env, here, "choose", "mine.toml", "--dry-run").stdout.splitlines()
    assert stages[0] == "1. the middle rates: 27 runs, 0 of them done" and len(stages) == 6
    assert total == ("486 runs in runs/choose-mine, judged by accuracy on each left out in turn: east, north, south")
    assert "486 runs" in kind and time.startswith("about ") and not (here / "runs").exists()


def test_too_little_time_for_any_answer_is_said(env: dict[str, str], here: Path) -> None:
    done = accord(env, here, "choose", "mine.toml", "--minutes", "0", code=2)
    assert "accord: 0 of the 27 runs of the first comparison (averaging, gma, gma-length; 3 seeds) are" in done.stderr
    assert done.stdout == "" and not (here / "runs" / "choose-mine" / "choice.json").exists()


def test_what_is_wrong_is_one_sentence(env: dict[str, str], here: Path) -> None:
    assert refused(env, here, "choose", "mine.toml", "data.heldout=0").startswith("data.heldout must be above 0")
    assert refused(env, here, "choose", "nosuch.toml").startswith("there is no file nosuch.toml")
    assert "--report must be a file in a folder that is there" in refused(
        env, here, "choose", "mine.toml", "--report", "nosuch/page.html"
    )


def test_the_answer_is_printed_and_kept_and_the_page_shows_why(env: dict[str, str], here: Path) -> None:
    words = ["choose", "mine.toml", "run.seeds=0,1,2", "--report", "page.html"]
    done = accord(env, here, *words)
    *rows, empty, answer = done.stdout.splitlines()
    assert rows[0].split()[-4:] == ["ahead", "of", "averaging", "by"] and empty == ""
    assert "Tried: averaging, gma, fedadam, fedavgm, and-mask, fedadam-gma, with 6 pairs of rates each" in answer
    written = json.loads((here / "runs" / "choose-mine" / "choice.json").read_text())
    assert written["paragraph"] == answer and written["left_out_for_time"] == [] and len(written["runs"]) == 486
    assert written["command"] == "accord choose mine.toml run.seeds=0,1,2 --report page.html"
    marks = {path: path.stat().st_mtime_ns for path in (here / "runs" / "choose-mine").glob("*/metrics.jsonl")}
    assert len(marks) == 486
    again = json.loads(accord(env, here, "choose", "mine.toml", "--json").stdout)
    assert {**again, "command": ""} == {**written, "command": ""}
    assert {path: path.stat().st_mtime_ns for path in marks} == marks, "nothing is trained twice"
    page = (here / "page.html").read_text()
    assert answer in page and '"choices":[{"paragraph":' in page
    assert "ahead of averaging by" in page
    accord(env, here, "report", "runs/choose-mine", "-o", "again.html")
    assert answer in (here / "again.html").read_text()
    (here / "runs" / "choose-mine" / "choice.json").write_text('{"paragraph": 1}')
    told = accord(env, here, "report", "runs/choose-mine", "-o", "again.html").stderr
    assert "choice.json is not what `accord choose` writes" in told
