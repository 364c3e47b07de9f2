"""`accord choose` from the command line: the plan, too little time, the answer, its file and its page."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from accord.console.progress import watcher_for
from accord.experiments.execute import Interrupt
from accord.experiments.sweep import sweep
from accord.studies.choose import read
from accord.training.hooks import Event
from command import accord, environment, refused
from made_tables import write_sites

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
    folder = tmp_path_factory.mktemp("here")
    (folder / "mine.toml").write_text(FILE)
    write_sites(folder / "sites.csv")
    return folder


def test_the_plan_is_told_and_nothing_trained(env: dict[str, str], here: Path) -> None:
    done = accord(env, here, "choose", "mine.toml", "--dry-run")
    *stages, total, kind, time = done.stdout.splitlines()
    assert "no time is known yet for table, logistic" in done.stderr and "a few rounds are tried" in done.stderr
    again = accord(env, here, "choose", "mine.toml", "--dry-run")
    assert "rounds are tried" not in again.stderr and again.stdout == done.stdout, "the pace is kept"
    assert stages[0] == "1. the middle rates: 27 runs, 0 of them done" and len(stages) == 5
    assert total == ("378 runs in runs/choose-mine, judged by accuracy on each left out in turn: east, north, south")
    # as many together as will train together, whomever they leave out, and as there may be open files
    together = re.search(r"378 runs, .* (\d+) in lockstep", kind)
    assert together and int(together[1]) > 100 and time.startswith("about ") and not (here / "runs").exists()


def test_too_little_time_for_any_answer_is_said(env: dict[str, str], here: Path) -> None:
    done = accord(env, here, "choose", "mine.toml", "--minutes", "0", code=2)
    assert "accord: 0 of the 27 runs of the first comparison (averaging, gma, gma-length; 3 seeds) are" in done.stderr
    assert done.stdout == "" and not (here / "runs" / "choose-mine" / "choice.json").exists()


@pytest.mark.parametrize("terminal", [False, True])
def test_runs_that_are_stopped_together_are_told_in_one_line(here: Path, tmp_path: Path, terminal: bool) -> None:
    more = [f"run.folder={tmp_path}", f"data.source={here / 'sites.csv'}", "train.rounds=100000"]
    question, interrupt, shown = read(here / "mine.toml", more), Interrupt(), io.StringIO()
    runs = [run for one in question.stages[0].study.named(question.folder) for _, run in one.runs]
    with watcher_for(Console(file=shown, force_terminal=terminal, width=200)) as watcher:
        monitored = watcher.step

        def step(title: str, event: Event) -> None:
            monitored(title, event)
            interrupt._pressed = True  # as if Ctrl-C came, or time was up, in the first round

        watcher.step = step  # type: ignore[method-assign]
        assert sweep(runs, watcher, interrupt, lambda text: None) == 27
    assert "27 runs stopped after round 1: interrupted" in shown.getvalue()
    assert shown.getvalue().count("stopped after") == 1


def test_what_is_wrong_is_one_sentence(env: dict[str, str], here: Path) -> None:
    assert refused(env, here, "choose", "mine.toml", "data.heldout=0").startswith("data.heldout must be above 0")
    assert refused(env, here, "choose", "nosuch.toml").startswith("there is no file nosuch.toml")
    assert "--report must be a file in a folder that is there" in refused(
        env, here, "choose", "mine.toml", "--report", "nosuch/page.html"
    )


def test_the_answer_is_printed_and_kept_and_the_page_shows_why(env: dict[str, str], here: Path) -> None:
    """Of a first stage that is complete, whatever the time."""
    question = read(here / "mine.toml", [f"run.folder={here / 'runs'}", f"data.source={here / 'sites.csv'}"])
    with watcher_for(Console(file=(shown := io.StringIO()))) as watcher:
        runs = [run for one in question.stages[0].study.named(question.folder) for _, run in one.runs]
        assert sweep(runs, watcher, Interrupt(), lambda text: None) == 0
    reading, begun, done_all = shown.getvalue().splitlines()  # and no line per run
    assert (reading, begun) == ("reading sites.csv", "27 runs in lockstep, 54 lanes: 27 rounds")
    assert done_all == "27/27 runs done · 27/27 rounds"
    done = accord(env, here, "choose", "mine.toml", "--minutes", "0", "--report", "page.html")
    *rows, empty, answer = done.stdout.splitlines()
    assert "ahead of averaging by" in rows[0] and len(rows) == 5 and empty == ""
    assert "Tried: averaging, gma, with one pair of rates each and the masks' controls, in 27 runs." in answer
    assert "Left out for time: all rates, fedadam, fedavgm, fedadam-gma and its control" in answer
    kept = here / "runs" / "choose-mine" / "choice.json"
    written = json.loads(kept.read_text())
    assert written["paragraph"] == answer and written["runs"] == [run.folder.name for run in runs]
    assert written["command"] == "accord choose mine.toml --minutes 0 --report page.html"
    again = json.loads(accord(env, here, "choose", "mine.toml", "--minutes", "0", "--json").stdout)
    assert {**again, "command": ""} == {**written, "command": ""}
    page = (here / "page.html").read_text()
    assert answer in page and '"choices":[{"paragraph":' in page and "ahead of averaging by" in page
    accord(env, here, "report", str(kept), "-o", "again.html")
    assert answer in (here / "again.html").read_text()
    kept.write_text('{"paragraph": 1}')
    told = accord(env, here, "report", "runs/choose-mine", "-o", "again.html").stderr
    assert "choice.json is not what `accord choose` writes" in told
