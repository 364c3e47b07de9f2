"""The scripts a newcomer copies: each runs as it would from a terminal, and says what it promises to."""

import ast
import csv
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import accord
from accord.core.layout import Layout
from accord.core.reports import Reports
from accord.core.round import Round
from command import run_command

EXAMPLES = Path(__file__).parents[2] / "examples"
COPIED = ("own_model_and_data", "new_rule", "hospitals/train", "sweep", "custom_shift")


def run_example(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.py")), ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_what_an_example_takes_from_accord_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("accord.deploy"):
            continue  # of packages that may not be installed
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "accord":
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def unseen(text: str) -> list[float]:
    """Accuracy on unseen clients, by sample, of every run in the text."""
    return [float(line.split()[3]) for line in text.splitlines() if line.startswith("unseen  ")]


def test_own_model_and_data(tmp_path: Path) -> None:
    text = run_example("own_model_and_data", tmp_path, "--rounds", "2")
    assert "fedavg · bakeries · seed 0 · round 2" in text
    assert load_file(tmp_path / "bakeries.safetensors")["last.weight"].shape == (1, 16)


@pytest.mark.slow
def test_segmentation(tmp_path: Path) -> None:
    text = run_example("segmentation", tmp_path, "--rounds", "5")
    seen = [float(line.split()[3]) for line in text.splitlines() if line.startswith("held-out ")]
    assert len(seen) == 2 and min(seen) > 0.7  # of 1: discs and squares cover those of the masks


@pytest.mark.slow
def test_char_gru(tmp_path: Path) -> None:
    (perplexity,) = unseen(run_example("char_gru", tmp_path, "--rounds", "5"))
    assert perplexity < 18.0  # of 61 characters; how often each comes says less, about 20


def test_new_rule(tmp_path: Path) -> None:
    plain, clipped = unseen(run_example("new_rule", tmp_path, "--rounds", "8"))
    assert clipped > plain + 30.0  # four of twenty clients shout the opposite of what they learnt


def test_the_new_rule_by_hand() -> None:
    """Lengths 5 and 1, cut to 2.5 and 1: ((1.5, 2) + (1, 0)) / 2. Records of single clients add to the same."""
    rule = runpy.run_path(str(EXAMPLES / "new_rule.py"))["clipped_mean"](longest=2.5)
    deltas = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    column = torch.ones(2, 1)
    reports = Reports(delta=deltas, weight=column, steps=column, buffers=column[:, :0])
    algorithm, layout = accord.fedavg(average=rule), Layout.flat(2, torch.float32)
    memory = algorithm.init(layout, 2, deltas[0])
    alone = [algorithm.lift(reports.of(torch.tensor([k])), memory) for k in range(2)]
    for record in (algorithm.lift(reports, memory), alone[0] + alone[1]):
        assert algorithm.lower(record, memory, Round(1, layout, 2))[0].update.tolist() == [1.25, 1.0]


@pytest.mark.parametrize("engine", ["processes", "vectorised"])
def test_the_new_rule_on_other_engines(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # workers import the rule by its module's name
    rule = importlib.import_module("new_rule").clipped_mean(longest=0.1)
    fed = accord.data.digits(clients=6, split="iid", unseen=2)
    runs = [
        accord.fit(accord.models.logistic(), fed, accord.fedavg(average=rule), rounds=1, steps=2, engine=name)
        for name in ("sequential", engine)
    ]
    torch.testing.assert_close(runs[0].last.vector, runs[1].last.vector)


def test_hospitals(tmp_path: Path) -> None:
    text = run_example("hospitals/train", tmp_path, "--rounds", "4")
    assert text.startswith("table: 920 samples, 4 participating clients (")
    for rule in ("fedavg", "fedavg + gma(0.4)"):
        (row,) = (line for line in text.splitlines() if line.startswith(f"{rule}  "))
        left_out = [float(figure) for figure in re.findall(r"(\d+\.\d+) ±", row)]
        assert len(left_out) == 6 and all(60.0 <= figure <= 100.0 for figure in left_out)
    ill, well = (ast.literal_eval(line) for line in text.splitlines()[-2:])
    assert ill["p(ill)"] > 0.5 > well["p(ill)"]
    assert len(list((tmp_path / "runs").glob("table-fedavg-*/preparation.json"))) == 1


def test_hospitals_from_a_file_alone(tmp_path: Path) -> None:
    folder = tmp_path / "hospitals"
    shutil.copytree(EXAMPLES / "hospitals", folder)
    assert run_command(folder, "sweep", "experiment.toml", "train.rounds=2", "run.seeds=0").returncode == 0
    run, *others = (folder / "runs").glob("table-*")
    assert len(others) == 15, "four rules, four hospitals"
    patients = (folder / "patients.csv").rename(folder / "new.csv")
    assert run_command(folder, "predict", str(run), "new.csv", "-o", "out.csv").returncode == 0
    assert len((folder / "out.csv").read_text().splitlines()) == len(patients.read_text().splitlines())


def test_the_hospitals_table_is_what_its_script_makes() -> None:
    rows = runpy.run_path(str(EXAMPLES / "hospitals" / "make_patients.py"))["patients"]()
    with (EXAMPLES / "hospitals" / "patients.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert written == [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in rows]


def test_sweep(tmp_path: Path) -> None:
    text = run_example("sweep", tmp_path, "--rounds", "2", "--seeds", "1")
    assert re.findall(r"^(no mask|gma\(0.4\)|its control) ", text, re.MULTILINE) == [
        "no mask",
        "gma(0.4)",
        "its control",
    ]
    assert len(list((tmp_path / "sweep-runs").glob("digits-fedadam-*"))) == 6


def test_custom_shift(tmp_path: Path) -> None:
    text = run_example("custom_shift", tmp_path, "--rounds", "2")
    assert len(unseen(text)) == 2 and "pens(low=0.5, test=0.2)" in text


def test_the_shift_by_hand() -> None:
    pens = runpy.run_path(str(EXAMPLES / "custom_shift.py"))["pens"](low=0.5, test=0.2)
    plain, fed = (accord.data.digits(clients=3, split="iid", shift=shift) for shift in ("none", pens))
    assert fed.test is not None
    torch.testing.assert_close(fed.look(fed.test[:5]), 0.2 * plain.look(fed.test[:5]).float())
    strengths = fed.shift.tables["strength"]  # type: ignore[union-attr]
    assert len(set(strengths.tolist())) == 4 and bool((strengths[:3] >= 0.5).all())


@pytest.mark.parametrize("name", COPIED)
def test_they_are_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60
