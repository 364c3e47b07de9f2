"""A run folder is data: whatever it names, reading it or predicting with it imports nothing."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import accord
from accord.core.errors import AccordError
from accord.core.files import json_bytes
from accord.experiments.experiment import assemble
from accord.runs.checksums import check_record
from command import run_command
from conftest import forge

SITES = Path(__file__).parents[2] / "examples" / "hospitals" / "patients.csv"
EXPERIMENT = """\
[data]
name = "table"
source = "patients.csv"
client = "hospital"
label = "diagnosis"
[model]
name = "logistic"
[train]
rounds = 4
evaluate_every = 1
[algorithm]
mask = "gma"
[run]
engine = "sequential"
"""
# It leaves a mark when it is imported, and whatever is asked of it leaves one when it is called.
TRAP = """
import pathlib
mark = pathlib.Path(__file__).with_name("mark")
mark.touch()
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *words, **options: mark.touch()
"""
PART = {"name": "trap:part", "tau": 0.4}
FORGED: dict[str, dict[str, Any]] = {
    "model": {"model.name": "trap:Net"},
    "model, without a colon": {"model.name": "trap"},
    "model of torch": {"model.name": "torch.hub:load"},
    "mask": {"algorithm.mask": PART},
    "part of a mask": {"algorithm.mask": {"name": "scaled", "mask": PART}},
    "average": {"algorithm.average": PART},
    "local rule": {"algorithm.local": PART},
    "server": {"algorithm.server": "trap:part"},
    "algorithm": {"algorithm.name": "trap:algorithm"},
    "metrics": {"train.metrics": ["trap:metric"]},
    "optimiser": {"train.optimiser": "trap:optimiser"},
    "schedule": {"train.schedule": "trap:schedule"},
    "attack": {"attack": {"name": "trap:attack"}},
    "engine": {"run.engine": "trap:Engine"},
    "loggers": {"run.log": ["trap:log"]},
    "speed": {"run.speed": ["trap:speed"]},
    "data": {"data.name": "trap:data"},
    "preparation": {"data.prepare": "trap:prepare"},
    "shift": {"data.shift": "trap:shift"},
    "augmentation": {"data.augment": "trap:augment"},
    "label": {"label": "trap:label", "content": {"model": "trap:Net", "loss": "trap:loss"}},
}
# What they name is needed to predict, or to know the data of membership inference.
WITHOUT_A_MODEL = [name for name in FORGED if name.startswith("model")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the command, and one that stopped after two rounds."""
    here = tmp_path_factory.mktemp("made")
    shutil.copy(SITES, here)
    (here / "my.toml").write_text(EXPERIMENT)
    for words in (["run.folder=done"], ["run.folder=stopped", "train.rounds=2"]):
        assert run_command(here, "run", "my.toml", *words).returncode == 0
    return here


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with both, and a trap that can be imported; it has to be untouched in the end."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    (folder / "trap.py").write_text(TRAP)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    imported = sys.modules.pop("trap", None)
    assert imported is None and not (folder / "mark").exists()


def forged(run: Path, changes: dict[str, Any]) -> None:
    form = json.loads((run / "experiment.json").read_text())
    for key, value in changes.items():
        section, _, name = key.partition(".")
        if name:
            form[section] = {**form.get(section, {}), name: value}
        else:
            form[section] = value
    forge(run, {"experiment.json": json_bytes(form)})
    check_record(run)  # its checksums are right


def check_one_line(said: str) -> None:
    """The command's error; a line on what is being read may stand before it."""
    assert said.splitlines()[-1].startswith("accord: ") and said.count("accord: ") == 1 and "Traceback" not in said


def only(folder: Path) -> Path:
    (run,) = folder.glob("*-s0")
    return run


def test_the_trap_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AccordError, match="algorithm.mask"):
        assemble({"algorithm": {"mask": {"name": "trap:part"}}}, [], "", tmp_path)
    assert (tmp_path / "mark").exists()
    del sys.modules["trap"]


@pytest.mark.parametrize("what", FORGED)
def test_no_command_imports_what_a_run_folder_names(here: Path, what: str) -> None:
    run = only(here / "done")
    forged(run, FORGED[what])
    place = str(run.relative_to(here))
    for words in (
        ["show", "done"],
        ["show", place, "--json"],
        ["report", "done"],
        ["compare", place, place],
        ["analyse", "curves", "done", "--out", "out"],
        ["analyse", "layers", place, "--out", "out"],
    ):
        done = run_command(here, *words)
        assert done.returncode == 0, (words, done.stderr)
    needs = what in WITHOUT_A_MODEL
    for words in (["predict", place, "patients.csv"], ["predict", place, "patients.csv", "--which", "held-out"]):
        done = run_command(here, *words)
        assert done.returncode == (2 if needs else 0), (words, done.stderr)
        if needs:
            check_one_line(done.stderr)
            assert "--model" in done.stderr
    done = run_command(here, "membership", place, "--steps", "5")
    assert done.returncode in (0, 2), done.stderr
    if needs:
        check_one_line(done.stderr)
        assert "--model" in done.stderr
    trained = run_command(here, "membership", place, "--steps", "5", "--shadows", "4")
    assert trained.returncode in (0, 2), trained.stderr


def test_shadow_models_of_code_that_a_folder_names_have_another_way(here: Path) -> None:
    run = only(here / "done")
    forged(run, FORGED["mask"])
    assert run_command(here, "membership", str(run), "--steps", "5").returncode == 0
    done = run_command(here, "membership", str(run), "--steps", "5", "--shadows", "4")
    assert done.returncode == 2 and "algorithm.mask" in done.stderr and "accord.audit.attack" in done.stderr
    check_one_line(done.stderr)


@pytest.mark.parametrize("what", FORGED)
def test_the_library_imports_nothing_either(here: Path, what: str) -> None:
    folder = only(here / "done")
    forged(folder, FORGED[what])
    if what in WITHOUT_A_MODEL:
        with pytest.raises(AccordError, match=r"model.*accord.load\(model=\.\.\.\)"):
            accord.load(folder)
    else:
        run = accord.load(folder)
        run.predict(here / "patients.csv")
        run._repr_html_()
        assert str(run) and run.select()


@pytest.mark.parametrize("what", FORGED)
def test_a_run_goes_on_with_the_settings_of_the_users_file(here: Path, what: str) -> None:
    stopped = only(here / "stopped")
    forged(stopped, FORGED[what])
    forge(stopped, {"experiment.toml": EXPERIMENT.replace('"gma"', '"trap:part"').encode()})
    done = run_command(here, "run", "my.toml", "run.folder=stopped", "--resume")
    assert done.returncode == 0, done.stderr
    assert "trap" not in (stopped / "experiment.json").read_text() + (stopped / "experiment.toml").read_text()
    assert (stopped / "model.safetensors").read_bytes() == (only(here / "done") / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("change", "works"),
    [
        ({"scaling": {"name": "trap:scale"}}, False),
        ({"scaling": {"name": "trap"}}, False),
        ({"fields": [{"name": "x", "shape": [3], "dtype": "trap"}]}, False),
        ({"fields": [{"name": "x", "shape": [3], "dtype": "_dynamo"}]}, False),
        ({"prepare": "trap:prepare"}, True),
    ],
)
def test_a_preparation_names_no_code(here: Path, change: dict[str, Any], works: bool) -> None:
    run = only(here / "done")
    form = {**json.loads((run / "preparation.json").read_text()), **change}
    forge(run, {"preparation.json": json_bytes(form)})
    done = run_command(here, "predict", str(run), "patients.csv")
    assert done.returncode == (0 if works else 2), done.stderr


class Two(nn.Module):
    """A model that neither accord nor a package registers, of samples that are two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, age: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.cat([age, other], dim=1))


def test_folders_of_python_name_no_code_either(here: Path) -> None:
    draw = np.random.default_rng(0)
    x = {"age": draw.normal(size=(40, 1)).astype("f4"), "other": draw.normal(size=(40, 2)).astype("f4")}
    clients = np.repeat(["north", "south"], 20)
    fed = accord.data.from_samples(x, np.arange(40) % 2, clients, heldout=0.2)
    run = accord.fit(Two(), fed, rounds=2, folder=here / "python")
    assert run.folder is not None
    forged(run.folder, {"model.name": "trap:Net", "content": {"fed": "trap:fed", "loss": "trap:loss"}})
    with pytest.raises(AccordError, match="model"):
        accord.load(run.folder)
    loaded = accord.load(run.folder, model=Two)
    assert loaded.predict(x).to_csv() == run.predict(x).to_csv()
    for words in (["membership", str(run.folder)], ["predict", str(run.folder), "patients.csv"]):
        done = run_command(here, *words)
        assert done.returncode == 2
        check_one_line(done.stderr)


def test_methods_that_leave_one_client_out_read_folders_as_data(here: Path) -> None:
    fed = accord.data.table(source=here / "patients.csv", client="hospital", label="diagnosis")
    model = accord.models.logistic(features=fed.shape[0], classes=2)
    options: dict[str, Any] = {"rounds": 2, "folder": here / "each", "engine": "sequential"}
    first = accord.leave_one_out(model, fed, accord.fedavg(), **options)
    for run in (here / "each").glob("*-s0"):
        forged(run, FORGED["mask"] | FORGED["model"])
    assert accord.leave_one_out(model, fed, accord.fedavg(), **options).figures() == first.figures()
    assert run_command(here, "compare", "each").returncode in (0, 2)


@pytest.mark.parametrize("command", ["predict", "membership"])
def test_the_user_names_a_model(here: Path, command: str) -> None:
    folder = only(here / "done")
    preparation = accord.load(folder).preparation
    assert preparation is not None
    name, more = ("predict", ["patients.csv"]) if command == "predict" else ("membership", ["--steps", "5", "--json"])
    before = run_command(here, name, str(folder), *more)
    forged(folder, {"model.name": "trap:Net"})
    (here / f"nets_to_{command}.py").write_text(
        f"import accord\ndef net(): return accord.models.logistic(features={preparation.shape[0]}, classes=2)\n"
    )
    after = run_command(here, name, str(folder), *more, "--model", f"nets_to_{command}:net")
    assert (after.returncode, after.stdout) == (0, before.stdout), after.stderr
    assert before.returncode == 0 and before.stdout


STUDY = """
title = "a tiny study"
compare = "rule"
against = "mean"
[settings]
data = { name = "table", source = "patients.csv", client = "hospital", label = "diagnosis" }
model = { name = "logistic" }
train = { rounds = 1 }
run = { engine = "sequential" }
[axes.rule]
mean = { "algorithm.name" = "fedavg" }
gma = { "algorithm.mask" = { name = "gma", tau = 0.4 } }
"""


def test_sweeps_and_studies_read_finished_runs_as_data(here: Path) -> None:
    (here / "sweep.toml").write_text(f'{EXPERIMENT}folder = "swept"\n[sweep]\n"train.lr" = [0.1, 0.2]\n')
    (here / "tiny.toml").write_text(STUDY)
    sweep, study = ["sweep", "sweep.toml"], ["reproduce", "tiny.toml", "--folder", "studied", "--seeds", "0"]
    before = [run_command(here, *words).stdout for words in (sweep, study)]
    runs = [*here.glob("swept/*-s0"), *here.glob("studied/runs/*-s0")]
    assert len(runs) == 4
    for run in runs:
        forged(run, FORGED["mask"] | FORGED["model"] | FORGED["metrics"])
    assert [run_command(here, *words).stdout for words in (sweep, [*study, "--export", "runs.xz"])] == before
    assert run_command(here, "verdicts", "studied", "-o", "verdicts.md").returncode == 0
    taken = run_command(here, *study, "--folder", "elsewhere", "--import", "runs.xz")
    assert taken.returncode in (0, 2), taken.stderr
