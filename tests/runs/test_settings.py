"""experiment.json: one schema for the command and for Python, and folders of earlier releases."""

import json
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.core.errors import AccordError
from accord.experiments.execute import Interrupt, execute_seed
from accord.experiments.experiment import parse
from accord.runs.fingerprint import SCHEMA
from accord.runs.reader import load
from accord.runs.settings import RunSettings
from conftest import blobs, mlp, without_checksums

TEXT = """
[data]
name = "digits"
clients = 6
[model]
name = "logistic"
[train]
rounds = 2
sample = 3
lr = 0.1
schedule = "cosine"
over = 5
evaluate_every = 1
stragglers = 0.2
patience = 9
[algorithm]
name = "fedyogi"
mask = { name = "gma", tau = { from = 0.8, to = 0.4, over = 5 } }
[attack]
name = "sign_flip"
share = 0.3
"""


class Silent:
    """Nobody watches."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def read(folder: Path | None) -> dict[str, Any]:
    assert folder is not None
    return json.loads((folder / "experiment.json").read_text())


def test_the_command_and_python_write_the_same(tmp_path: Path) -> None:
    experiment = parse(f"{TEXT}\n[run]\nfolder = {json.dumps(str(tmp_path / 'command'))}\nengine = 'sequential'")
    commanded = execute_seed(experiment, 0, Silent(), Interrupt(), resume=False, fresh=False)
    fed = accord.data.digits(clients=6, seed=0)
    called = accord.fit(
        accord.models.logistic(seed=0),
        fed,
        accord.fedyogi(mask=accord.gma(accord.schedule.ramp(0.8, 5, 0.4))),
        rounds=2,
        sample=3,
        lr=accord.schedule.cosine(0.1, over=5),
        evaluate_every=1,
        conditions=accord.Conditions(stragglers=0.2),
        patience=9,
        attack=accord.attack.sign_flip(share=0.3),
        engine="sequential",
        folder=tmp_path / "python",
        verbose=False,
    )
    ours, theirs = read(called.folder), read(commanded.folder)
    assert set(ours) - {"content"} == set(theirs)
    for section in ("schema", "seed", "label", "train", "algorithm", "attack"):
        assert ours[section] == theirs[section], section
    for section, keys in {"data": ("name", "clients", "unseen"), "run": ("seeds", "engine", "device", "speed")}.items():
        assert {key: ours[section][key] for key in keys} == {key: theirs[section][key] for key in keys}
    assert called.history[-1] == commanded.history[-1], "and it was the same run"
    for form, run in ((ours, called), (theirs, commanded)):
        again = RunSettings.from_json(form, run.folder.name)
        assert {"schema": SCHEMA, **again.to_json()} == form


def test_what_a_file_cannot_name_is_told_by_what_it_holds(tmp_path: Path) -> None:
    first, second = (
        read(accord.fit(mlp(seed=seed), blobs(), rounds=1, folder=tmp_path, verbose=False).folder) for seed in (4, 5)
    )
    assert first["content"].pop("model") != second["content"].pop("model")
    assert first == second and {"data", "loss", "metrics"} <= set(first["content"])


OF_PYTHON = {  # as accord 0.2.0 wrote it for a run made in Python, until both were one
    "schema": 1,
    "model": ["Sequential", "b15770ad87e13a89aa423e96719ace9a"],
    "data": "3f347f1e930362a2e0a59885301a608e",
    "algorithm": {
        "kind": "Algorithm",
        "mask": {"kind": "scaled", "mask": {"kind": "gma", "tau": 0.6}},
        "server": {"kind": "adam"},
        "name": "fedadam",
    },
    "training": {"kind": "Training", "lr": {"kind": "cosine", "lr": 0.1, "over": 5}},
    "plan": {"kind": "Plan", "sample": 3, "conditions": {"kind": "Conditions", "lost": 0.1}},
    "loss": ["accord.losses", "cross_entropy", "aeae325ce272de23ea075575c87f76a6", [], []],
    "attack": {"kind": "sign_flip", "share": 0.3},
    "label": "fedadam + scaled(gma(0.6))",
    "rounds": 2,
}


def test_a_folder_that_python_wrote_before_is_read(tmp_path: Path) -> None:
    run = accord.fit(mlp(), blobs(), accord.fedadam(), rounds=2, sample=3, seed=7, folder=tmp_path, verbose=False)
    assert run.folder is not None
    without_checksums(run.folder)
    (run.folder / "experiment.json").write_text(json.dumps(OF_PYTHON))
    read_back = load(run.folder)
    settings = read_back.settings
    assert (read_back.status, read_back.label, read_back.seed) == ("done", "fedadam + scaled(gma(0.6))", "7")
    assert read_back.kind == "blobs, accuracy"
    assert settings.train == {"rounds": 2, "schedule": "cosine", "lr": 0.1, "over": 5, "sample": 3, "lost": 0.1}
    assert settings.algorithm["mask"] == {"name": "scaled", "mask": {"name": "gma", "tau": 0.6}}
    assert settings.attack == {"name": "sign_flip", "share": 0.3} and settings.model == {"name": "Sequential"}
    assert settings.content is not None and settings.content["data"] == OF_PYTHON["data"]


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(AccordError, match="experiment.json holds no settings"):
        RunSettings.from_json([], "x-s0")
