"""Which rounds are evaluated and on which training samples, and that neither changes what is trained."""

import collections
import json
from pathlib import Path

import pytest

import accord
from accord import AccordError
from accord.engines.sequential import Sequential
from accord.experiments.experiment import override
from accord.runs.reader import load
from accord.training.evaluation_schedule import evaluated_groups
from conftest import blobs, mlp


def evaluated(run: accord.Run) -> list[int]:
    return [row["round"] for row in run.rows if "evaluation" in row]


def test_rounds_are_evaluated_densely_early_and_where_the_rules_read_them() -> None:
    def fit(rounds: int, at: str | list[str], **more) -> accord.Run:
        return accord.fit(mlp(), blobs(), rounds=rounds, sample=2, steps=1, evaluate_at=at, engine="sequential", **more)

    assert evaluated(fit(60, "log")) == [*range(1, 11), *range(15, 51, 5), 60]
    run = fit(30, ["log", "last10", "window(11,13)"])
    assert evaluated(run) == [*range(1, 11), 11, 12, 13, 15, 20, *range(21, 31)]
    assert run.select("last10").rounds == list(range(21, 31))
    assert run.select("held-out").rounds == [run.best.round]  # rounds that are read only at the end count too
    whole = fit(30, "window(1,30)")
    assert [row["train_loss"] for row in whole.rows] == [row["train_loss"] for row in run.rows]
    assert override("train.evaluate_at=log,window(2,4)") == ("train", "evaluate_at", ["log", "window(2,4)"])
    assert override("train.evaluate_at=window(2,4)") == ("train", "evaluate_at", "window(2,4)")
    with pytest.raises(AccordError, match=r"evaluate_at must be of log, last10, window\(a,b\), got 'sometimes'"):
        fit(3, "sometimes")


def test_a_run_that_goes_on_past_its_last_ten_rounds_is_as_if_it_had_never_ended_there(tmp_path: Path) -> None:
    def fit(where: str, rounds: int, **more) -> accord.Run:
        return accord.fit(
            mlp(), blobs(), rounds=rounds, sample=3, evaluate_at=["log", "last10"], folder=tmp_path / where, **more
        )

    stop_at_24 = lambda event: event.round == 24  # noqa: E731
    assert fit("cut", 26, hooks=[stop_at_24]).stopped
    fit("cut", 26), fit("straight", 26)
    fit("longer", 15), fit("longer", 26)
    kept = [
        {
            f.name: f.read_bytes()
            for f in (tmp_path / where).rglob("*.*s*")
            if f.name not in ("timing.jsonl", "environment.json")
        }
        for where in ("straight", "cut", "longer")
    ]
    names = [name for name in kept[0] if name not in ("experiment.json",)]
    assert {"metrics.jsonl", "best.safetensors", "model.safetensors", "state.json"} <= set(names)
    for files in kept[1:]:
        assert [name for name in names if files[name] != kept[0][name]] == []


def fit_last10(folder: Path, rounds: int) -> accord.Run:
    """At this rate the best of rounds 6 to 15 is round 10, and the best of rounds 13 to 22 is round 13."""
    how = {"sample": 3, "steps": 2, "lr": 0.3, "evaluate_at": "last10", "engine": "sequential"}
    return accord.fit(mlp(), blobs(), rounds=rounds, folder=folder, **how)


def test_a_few_more_rounds_choose_among_the_last_ten_of_them_all(tmp_path: Path) -> None:
    shorter, straight = fit_last10(tmp_path / "longer", 15), fit_last10(tmp_path / "straight", 22)
    assert (shorter.best.round, straight.best.round) == (10, 13)
    ten = shorter.select("last10")
    longer = fit_last10(tmp_path / "longer", 22)
    assert longer.best.round == 13
    assert shorter.select("last10") == ten and ten.rounds == list(range(6, 16)), "what it says of itself stays"
    for name in ("metrics.jsonl", "state.json", "best.safetensors"):
        assert (longer.folder / name).read_bytes() == (straight.folder / name).read_bytes(), name


def test_a_longer_run_that_is_stopped_at_once_has_lost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    done = fit_last10(tmp_path, 15)
    names = ("metrics.jsonl", "best.safetensors", "done")

    def kept() -> list[object]:
        # state.json also vouches for the settings that the longer run wrote
        state = json.loads((done.folder / "state.json").read_text())
        numbers = {key: value for key, value in state.items() if key not in ("files", "checksum")}
        return [numbers, *((done.folder / name).read_bytes() for name in names)]

    before = kept()
    with monkeypatch.context() as patch:
        patch.setattr(Sequential, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit_last10(tmp_path, 40)
    assert [number for number, _ in load(done.folder).history] == list(range(6, 16))
    fit_last10(tmp_path, 15)
    assert kept() == before


def test_a_fixed_draw_of_training_samples_stands_for_all_of_them() -> None:
    fed = blobs()
    runs = [
        accord.fit(mlp(), fed, rounds=2, evaluate_every=1, evaluate_samples=most, seed=seed)
        for most, seed in ((None, 0), (40, 0), (40, 0), (40, 1))
    ]
    splits = [run.rows[-1]["evaluation"]["splits"] for run in runs]
    assert [split["train"]["samples"] for split in splits] == [sum(map(len, fed.train.values())), 40, 40, 40]
    assert splits[1] == splits[2]
    assert {name: split for name, split in splits[1].items() if name != "train"} == {
        name: split for name, split in splits[0].items() if name != "train"
    }
    assert runs[0].rows[-1]["train_loss"] == runs[1].rows[-1]["train_loss"]
    assert abs(splits[0]["train"]["accuracy"]["by_sample"] - splits[1]["train"]["accuracy"]["by_sample"]) < 0.2


def test_the_draw_takes_rows_of_their_own_client_and_every_sample_as_often_as_any_other() -> None:
    fed = blobs()
    count = collections.Counter[int]()
    for seed in range(200):
        groups = evaluated_groups(fed, 30, seed)
        assert sum(len(rows) for split, _, rows in groups if split == "train") == 30
        for split, client, rows in groups:
            assert set(rows.tolist()) <= set(getattr(fed, split)[client].tolist()) if split == "train" else True
            count.update(rows.tolist() if split == "train" else [])
    everything = [int(row) for rows in fed.train.values() for row in rows]
    expected = 200 * 30 / len(everything)
    assert max(abs(count[row] - expected) for row in everything) < 5 * expected**0.5
