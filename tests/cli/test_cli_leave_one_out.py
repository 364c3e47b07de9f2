"""`accord run`, `show`, `compare` and `report` of a file that leaves out each client in turn."""

import json
from pathlib import Path

import pytest

from command import accord, environment, refused
from made_tables import SITES, write_sites

FILE = """
[data]
name = "table"
source = "sites.csv"
client = "site"
label = "ill"
unseen = "each"
[model]
name = "logistic"
[train]
rounds = 2
evaluate_every = 1
[run]
folder = "runs"
seeds = [0, 1]
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


def test_one_command_trains_all_and_every_command_knows_the_table(env: dict[str, str], here: Path) -> None:
    ahead = accord(env, here, "run", "mine.toml", "--dry-run").stdout
    assert (
        ahead.startswith("6 runs in 1 group") and "data.unseen=south · seed 1" in ahead and not (here / "runs").exists()
    )
    head, row, folder = accord(env, here, "run", "mine.toml").stdout.splitlines()
    assert head.split()[-6:] == ["seeds", *SITES, "mean", "worst"] and row.startswith("fedavg ") and folder == "runs"
    assert accord(env, here, "show", "runs").stdout.splitlines() == [head, row, folder]
    assert accord(env, here, "compare", "runs").stdout.splitlines() == [head, row], (
        "there is nothing to compare it with"
    )
    again = accord(env, here, "run", "mine.toml", "algorithm.mask=gma")
    assert "fedavg + gma(0.4)" in again.stdout
    head, *rows, told = accord(env, here, "compare", "runs").stdout.splitlines()
    assert len(rows) == 2
    assert told.startswith("fedavg + gma(0.4)") and "fedavg on unseen clients (east, north, south): " in told
    found = json.loads(accord(env, here, "compare", "runs", "--json").stdout)
    assert [one["method"] for one in found["methods"]] == ["fedavg", "fedavg + gma(0.4)"]
    assert set(found["methods"][0]["left_out"]) == set(SITES) and found["differences"][0]["other"] == "fedavg"
    accord(env, here, "report", "runs", "-o", "page.html")
    assert "on the client left out, by held-out" in (here / "page.html").read_text()
    assert len(json.loads(accord(env, here, "show", "runs", "--json").stdout)) == 12, (
        "for machines, every run by itself"
    )


def test_finished_runs_are_not_repeated_and_fresh_ones_are(env: dict[str, str], here: Path) -> None:
    accord(env, here, "run", "mine.toml", "run.folder=twice")
    marks = {path: path.stat().st_mtime_ns for path in (here / "twice").glob("*/done")}
    assert "6 of 6 runs are done already" in accord(env, here, "run", "mine.toml", "run.folder=twice").stderr
    assert {path: path.stat().st_mtime_ns for path in (here / "twice").glob("*/done")} == marks
    accord(env, here, "run", "mine.toml", "run.folder=twice", "--fresh")
    assert not marks.items() & {path: path.stat().st_mtime_ns for path in (here / "twice").glob("*/done")}.items()


def test_a_single_run_names_who_is_unseen(env: dict[str, str], here: Path) -> None:
    by_name = ("run", "mine.toml", "data.unseen=north", "run.folder=one", "run.seeds=0")
    assert "unseen client: north" in accord(env, here, *by_name).stdout.splitlines()
    drawn = ("run", "mine.toml", "data.unseen=1", "run.folder=drawn", "run.seeds=0")
    (line,) = [line for line in accord(env, here, *drawn).stdout.splitlines() if line.startswith("unseen client: ")]
    assert line.removeprefix("unseen client: ") in SITES


def test_bad_input_is_one_sentence(env: dict[str, str], here: Path) -> None:
    *_, told = accord(env, here, "run", "mine.toml", "data.unseen=souht", code=2).stderr.splitlines()
    assert (
        told
        == "accord: data.unseen names client 'souht', which is not among the 3 clients of table: did you mean 'south'?"
    )
    assert refused(env, here, "run", "mine.toml", "data.split=iid").startswith("data.unseen names clients, got 'each'")
    told = refused(env, here, "data", "describe", "mine.toml")
    assert told.startswith("data.unseen = 'each' stands for a run per client")
    accord(env, here, "run", "mine.toml", "data.unseen=north", "run.folder=alone", "run.seeds=0")
    assert "holds no runs that leave out one client after another" in refused(env, here, "compare", "alone")
