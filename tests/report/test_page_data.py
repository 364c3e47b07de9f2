"""Runs as a page: the data against other ways to the same figures, grids, what is damaged, and the command."""

import hashlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import accord
from accord.cli.report import report
from accord.cli.shared import name_the_page
from accord.report import gather, look, page
from accord.report.data import RULES, thinned
from accord.report.grids import grids
from accord.report.live import Watched
from accord.report.page import embedded
from accord.runs.comparison import comparison
from accord.runs.reader import Recorded, find, load
from accord.runs.settings import RunSettings
from conftest import record_runs, sentence, without_checksums


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real run folders: two seeds with a mask, one without."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    return record_runs(folder, masked=6, plain=4)


@pytest.fixture(scope="module")
def data(runs: Path) -> dict[str, Any]:
    return gather(look([runs]))


def setting(data: dict[str, Any], label: str) -> dict[str, Any]:
    (one,) = [one for one in data["settings"] if one["label"] == label]
    return one


# --------------------------------------------------------------------------------------------------- the data


@pytest.mark.parametrize("rule", list(RULES))
def test_figures_are_those_of_accord_show(runs: Path, data: dict[str, Any], rule: str) -> None:
    head, *rows = comparison([load(folder) for folder in find([runs])], rule)
    assert len(rows) == len(data["settings"]) == 2
    names = ["train", "heldout", "unseen", "out_of_sample", "participation"]
    for row in rows:
        values = setting(data, row[0])["figures"][rule]["values"]
        for told, name in zip(row[3:], names, strict=True):
            mean, deviation = values[name]
            shown = f"{100 * mean:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")
            assert [float(x) for x in shown.split(" ± ")] == pytest.approx(
                [float(x) for x in told.split(" ± ")], abs=0.011
            )
    assert head[3:] == [*data["splits"].values()][:3] + [gap["difference"] for gap in data["gaps"].values()]
    assert head[0] == f"{data['metrics']['accuracy']['title']}, by {rule}"


def test_curves_are_mean_lowest_and_highest_of_the_seeds(runs: Path, data: dict[str, Any]) -> None:
    one, two = (dict(load(folder).history) for folder in find([runs]) if "gma" in folder.name)
    curves = setting(data, "fedavg + gma(0.6)")["curves"]
    assert curves["rounds"] == [2, 4, 6] == list(one)
    for metric in ("accuracy", "loss"):
        pairs = [[seed[number]["splits"]["unseen"][metric]["by_sample"] for seed in (one, two)] for number in (2, 4, 6)]
        drawn = curves["metrics"][metric]["unseen"]
        assert drawn["mean"] == pytest.approx([sum(pair) / 2 for pair in pairs], rel=1e-4)
        assert drawn["low"] == pytest.approx([min(pair) for pair in pairs], rel=1e-4)
        assert drawn["high"] == pytest.approx([max(pair) for pair in pairs], rel=1e-4)


def test_clients_are_pooled_over_seeds_and_the_worst_and_best_are_drawn(runs: Path, data: dict[str, Any]) -> None:
    folders = [folder for folder in find([runs]) if "gma" in folder.name]
    rows = [
        row
        for folder in folders
        for row in json.loads((folder / "clients.json").read_text())
        if row["split"] == "heldout"
    ]
    values = [row["accuracy"] for row in rows]
    drawn = setting(data, "fedavg + gma(0.6)")["clients"]["heldout"]
    assert drawn["count"] == len(values) == 24
    assert drawn["quantiles"] == pytest.approx(np.quantile(values, [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1]), rel=1e-4)
    shown = [dot[0] for dot in drawn["dots"]]
    assert shown == sorted(shown) and [shown[0], shown[-1]] == pytest.approx([min(values), max(values)], rel=1e-4)
    assert "test" not in setting(data, "fedavg + gma(0.6)")["clients"], "the test set is nobody's"


def test_agreement_is_averaged_over_seeds_and_runs_without_a_mask_have_none(runs: Path, data: dict[str, Any]) -> None:
    folders = [folder for folder in find([runs]) if "gma" in folder.name]
    rows = [[json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()] for folder in folders]
    agreement = setting(data, "fedavg + gma(0.6)")["agreement"]
    assert agreement["rounds"] == [1, 2, 3, 4, 5, 6]
    assert agreement["layers"] == ["all", "0.weight", "0.bias", "2.weight", "2.bias"]
    assert agreement["values"][0] == pytest.approx(
        [(a["agreement"] + b["agreement"]) / 2 for a, b in zip(*rows, strict=True)], abs=6e-4
    )
    layer = [
        (a["agreement_by_layer"]["2.bias"] + b["agreement_by_layer"]["2.bias"]) / 2 for a, b in zip(*rows, strict=True)
    ]
    assert agreement["values"][4] == pytest.approx(layer, abs=6e-4)
    assert setting(data, "fedavg")["agreement"] is None


def test_a_row_that_lacks_a_layer_is_shown_without_it(runs: Path, tmp_path: Path) -> None:
    """Of a folder of 0.1, whose rows have no checksums to tell that they were damaged."""
    run = next(folder for folder in find([runs]) if "gma" in folder.name)
    shutil.copytree(run, tmp_path / run.name)
    without_checksums(tmp_path / run.name)
    path = tmp_path / run.name / "metrics.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    row = json.loads(first)
    del row["agreement_by_layer"]["2.bias"]
    path.write_text("".join([json.dumps(row) + "\n", *others]))
    (only,) = gather(look([tmp_path]))["settings"]
    assert only["agreement"]["values"][-1][0] is None and only["agreement"]["values"][0][0] is not None


@pytest.mark.parametrize(("count", "most"), [(0, 5), (1, 5), (5, 5), (6, 5), (1000, 7), (7, 2)])
def test_thinning_keeps_the_ends_and_the_order(count: int, most: int) -> None:
    kept = thinned(range(count), most)
    assert len(kept) == min(count, most) and kept == sorted(set(kept))
    assert not count or (kept[0], kept[-1]) == (0, count - 1)


def test_a_model_that_diverged_leaves_a_gap_and_sound_json(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run-s0"
    shutil.copytree(next(folder for folder in find([runs]) if "gma" not in folder.name), run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows[1]["evaluation"]["splits"]["unseen"]["loss"]["by_sample"] = None
    without_checksums(run)
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = gather(look([run]))
    assert data["settings"][0]["curves"]["metrics"]["loss"]["unseen"]["mean"][0] is None
    assert "NaN" not in json.dumps(data)


# ------------------------------------------------------------------------------------------------------ grids


def recorded(name: str, mask: str = "gma", algorithm: str = "fedavg", **settings: float) -> Recorded:
    given = {"name": algorithm, "mask": {"name": mask, **({"tau": settings.pop("tau")} if "tau" in settings else {})}}
    label = algorithm if mask == "none" else f"{algorithm} + {mask}"
    form = {"seed": 0, "label": label, "data": {}, "algorithm": given, "train": {"rounds": 5, **settings}}
    return Recorded(Path(f"{name}-s0"), RunSettings.from_json(form), [], 5, "done")


def test_two_keys_that_vary_make_a_plane_and_a_missing_run_a_hole() -> None:
    runs = [
        recorded(f"{tau}{lr}", tau=tau, lr=lr) for tau in (0.2, 0.4) for lr in (0.1, 0.01) if (tau, lr) != (0.4, 0.1)
    ]
    (grid,) = grids([recorded("other", mask="none", lr=0.01), *runs], first=10)
    assert (grid["title"], grid["x"], grid["y"]) == ("fedavg + gma", "algorithm.mask.tau", "train.lr")
    assert (grid["columns"], grid["rows"]) == (["0.2", "0.4"], ["0.01", "0.1"])
    assert sorted(grid["cells"]) == [[0, 0, 12], [0, 1, 11], [1, 0, 13]]


def test_one_key_that_varies_makes_a_row_for_each_family() -> None:
    runs = [
        recorded(f"{algorithm}{tau}", tau=tau, algorithm=algorithm)
        for algorithm in ("fedavg", "fedadam")
        for tau in (0.2, 0.4)
    ]
    (grid,) = grids(runs)
    assert (grid["y"], grid["rows"], grid["columns"]) == ("", ["fedavg + gma", "fedadam + gma"], ["0.2", "0.4"])
    assert grid["cells"] == [[0, 0, 0], [1, 0, 1], [0, 1, 2], [1, 1, 3]]


def test_fractions_stand_among_numbers_in_order() -> None:
    def masked(tau: float | str) -> Recorded:
        form = {"seed": 0, "label": f"fedavg + gma({tau})", "algorithm": {"mask": {"name": "gma", "tau": tau}}}
        return Recorded(Path(f"{tau}-s0"), RunSettings.from_json({"data": {}, **form}), [], 5, "done")

    (grid,) = grids([masked(0.8), masked("5/7"), masked(0.4)])
    assert (grid["columns"], grid["rows"]) == (["0.4", "5/7", "0.8"], ["fedavg + gma"])
    assert grids([masked(0.8), masked("a/b")]) == [], "no number"


def test_algorithms_with_rates_of_their_own_are_no_grid() -> None:
    assert grids([recorded("a", mask="none", lr=0.1), recorded("b", mask="none", algorithm="fedadam", lr=0.02)]) == []


# -------------------------------------------------------------------------------------------- ours and theirs


FROZEN = {
    "study": "frozen", "protocol": 1, "title": "A frozen study", "command": "accord reproduce frozen",
    "paper": "tmlr", "table": "2",
    "axes": ["dataset", "rule"], "compare": "rule", "against": "mean", "seeds": [0, 1], "rules": ["held-out"],
    "cells": [
        {
            "values": {"dataset": "mnist", "rule": "gma"}, "done": 2, "runs": 2, "rounds": [5, 5],
            "figures": {"held-out": {"point": {}, "by_seed": {"0": {"test": 0.96}, "1": {"test": 0.98}}}},
            "printed": [{"value": 96.24, "std": "0.03", "note": "", "metric": "test accuracy", "window": "oracle"}],
        },
        {"values": {"dataset": "mnist", "rule": "mean"}, "done": 0, "runs": 2, "figures": {}, "printed": []},
    ],
}  # fmt: skip


def test_results_of_a_study_become_points(tmp_path: Path) -> None:
    (tmp_path / "frozen.json").write_text(json.dumps(FROZEN))
    (tmp_path / "unrelated.json").write_text("[]")
    data = gather(look([tmp_path]))
    (paper,) = data["papers"]
    assert (paper["done"], paper["runs"], data["settings"], data["notices"]) == (2, 4, [], [])
    (point,) = paper["points"]
    assert (point["cell"], point["rival"], point["printed"], point["window"]) == ("mnist, gma", "gma", 96.24, "oracle")
    assert point["ours"]["held-out"] == pytest.approx([97.0, 2**0.5])
    assert gather(look([tmp_path / "frozen.json", tmp_path]))["papers"] == [paper], "given twice, shown once"


def test_damaged_results_are_told_of_and_the_others_shown(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text(json.dumps(FROZEN, indent=1)[:300])
    data = gather(look([tmp_path, runs]))
    assert len(data["settings"]) == 2 and data["papers"] == []
    assert "cut.json does not hold results of accord reproduce" in data["notices"][0]


# --------------------------------------------------------------------------------------------------- the page


def test_no_name_can_leave_the_data(data: dict[str, Any]) -> None:
    evil = "</script><script>alert(1)</script><!--put script-->"
    assert "<" not in embedded({"name": evil}) and json.loads(embedded({"name": evil})) == {"name": evil}
    whole = page({**data, "notices": [evil]})
    assert whole.count("<script") == 3 and "alert(1)</script>" not in whole


def test_the_page_is_whole_small_and_asks_nobody(data: dict[str, Any]) -> None:
    whole = page(data)
    assert len(whole) < 2_000_000 and "<!--put" not in whole.replace(embedded(data), "")
    own = whole.replace((Path(accord.__file__).parent / "report/assets/echarts/echarts.min.js").read_text(), "")
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"'](?!data:)", own) and "http" not in own.replace(
        "http-equiv", ""
    ).replace("http://www.w3.org/", "")
    assert "connect-src 'none'" in whole and "connect-src 'self'" in page(data, live=True)


def test_the_library_is_the_one_that_is_named() -> None:
    folder = Path(accord.__file__).parent / "report/assets/echarts"
    library = (folder / "echarts.min.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() in (folder / "README.md").read_text()
    assert {"LICENSE", "NOTICE", "LICENSE-d3"} <= {file.name for file in folder.iterdir()}


def test_a_damaged_run_stands_in_the_table_and_is_told_of(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    run = find([tmp_path / "runs"])[0]
    (run / "experiment.json").write_text("{")
    (find([tmp_path / "runs"])[-1] / "clients.json").write_text("[{}]")
    data = gather(look([tmp_path / "runs"]))
    assert [one["label"] for one in data["settings"]].count("fedavg + gma(0.6)") == 1, "the sound seed says what it is"
    assert any(
        run["status"].startswith("damaged: experiment.json is damaged")
        for one in data["settings"]
        for run in one["runs"]
    )
    report([tmp_path / "runs"], tmp_path / "report.html")
    told = capsys.readouterr()
    assert "is damaged: experiment.json is damaged" in told.err and "clients.json is damaged" in told.err
    assert re.search(r"report.html: 3 runs, 2 settings, 1\.\d MB", told.out)
    assert "damaged: experiment.json" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"runs": ["nowhere"]}, "there is no folder nowhere"),
        ({"runs": ["empty"]}, "empty holds no runs: a run folder has a file experiment.json"),
        ({"runs": ["runs"], "output": "nowhere/report.html"}, "there is no folder nowhere to write report.html to"),
        (
            {"runs": ["runs"], "output": "empty"},
            "empty is a folder: give the name of a file, such as empty/report.html",
        ),
        (
            {"runs": ["runs"], "output": "report.html", "live": True},
            "--live serves the page and --output writes it to a file",
        ),
        ({"runs": ["runs"], "port": 80}, "--port is where --live serves the page"),
        ({"runs": ["nowhere"], "live": True}, "there is no folder nowhere"),
        ({"runs": ["cut.json"]}, "cut.json does not hold results of accord reproduce"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], told: str
) -> None:
    (tmp_path / "runs").symlink_to(runs)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.json").write_text(json.dumps(FROZEN)[:300])
    monkeypatch.chdir(tmp_path)
    output = Path(arguments.pop("output")) if "output" in arguments else None
    with sentence(told):
        report([Path(path) for path in arguments.pop("runs")], output, **arguments)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("folders", "named"), [(["runs/a-s0"], "runs/a-s0"), (["runs/a-s0", "runs/a-s1"], "runs"), ([], None)]
)
def test_a_run_ends_with_the_command_that_makes_the_page(folders: list[str], named: str | None) -> None:
    console = Console(width=80)
    with console.capture() as captured:
        name_the_page([Path(folder) for folder in folders], console)
    assert captured.get() == (f"A page of it: accord report {named}\n" if named else "")


# ------------------------------------------------------------------------------------------------------- live


def test_a_run_is_read_again_only_when_it_has_changed(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    watched = Watched([folder])
    assert watched.data()["settings"] == []
    shutil.copytree(runs, folder, dirs_exist_ok=True)
    first = watched.data()
    assert len(first["settings"]) == 2 and watched.data() is first
    other = find([folder])[0]
    before = watched._run(find([folder])[1])
    (other / "done").unlink()
    second = watched.data()
    assert second is not first and any(
        run["status"].startswith("unfinished") for one in second["settings"] for run in one["runs"]
    )
    assert watched._run(find([folder])[1]) is before
    shutil.rmtree(folder)
    assert watched.data() is second, "what was there last is shown until runs are there again"


@contextmanager
def served(folder: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A real server, and the address it tells."""
    command = [sys.executable, "-m", "accord", "report", "--live", str(folder), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        told = process.stderr.readline()
        if "Port" in told:
            assert re.search(rf"Port {port} cannot be had \(address already in use\): port \d+ is taken instead", told)
            told = process.stderr.readline()
        try:
            yield told.split()[0], process
        finally:
            process.kill()


def ask(address: str, **headers: str) -> tuple[int, bytes, str | None]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read(), answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        return error.code, error.read(), None


def test_the_server_answers_this_machine_and_stops_cleanly(runs: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with served(runs, taken.getsockname()[1]) as (address, process):
            assert address.startswith("http://127.0.0.1:")
            status, content, _ = ask(address)
            assert status == 200 and b"connect-src 'self'" in content
            status, content, tag = ask(f"{address}data.json")
            assert status == 200 and len(json.loads(content)["settings"]) == 2 and tag
            assert ask(f"{address}data.json", **{"If-None-Match": tag})[0] == 304
            assert ask(f"{address}../etc/passwd")[0] == 404
            assert ask(address, Host="elsewhere.example")[0] == 403, (
                "a name that somebody else's page sends a browser under"
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0
            assert process.stderr and process.stderr.read().strip() == "Stopped."
