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
from accord.runs.settings import RunSettings
from conftest import blobs, mlp, sentence

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
    for form in (ours, theirs):
        again = RunSettings.from_json(form)
        assert {"schema": SCHEMA, **again.to_json()} == form


def test_what_a_file_cannot_name_is_told_by_what_it_holds(tmp_path: Path) -> None:
    first, second = (
        read(accord.fit(mlp(seed=seed), blobs(), rounds=1, folder=tmp_path, verbose=False).folder) for seed in (4, 5)
    )
    assert first["content"].pop("model") != second["content"].pop("model")
    assert first == second and {"data", "loss", "metrics"} <= set(first["content"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("label", ["fedavg"]), ("seed", "x"), ("seed", 1.5), ("model", None), ("data", "digits"), ("run", 7)],
)
def test_settings_of_another_kind_are_refused(name: str, value: Any) -> None:
    form = {"label": "fedavg", "seed": 0, "data": {}, "model": {}, "algorithm": {}, "run": {}}
    assert RunSettings.from_json(form).label == "fedavg"
    with sentence(f"{name} in experiment.json must be"):
        RunSettings.from_json({**form, name: value})


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(AccordError, match="experiment.json holds no settings"):
        RunSettings.from_json([])
