"""Run folders: whole files, locks, resuming, extending, names."""

import json
from pathlib import Path

import pytest
import torch

import accord
from accord import AccordError
from accord.identity import Plan
from accord.records import RunFolder, plain, read_lines, write_whole
from conftest import blobs, mlp


def train(folder: Path, algorithm=None, **more) -> accord.Run:
    settings = {"rounds": 6, "sample": 4, "evaluate_every": 2, "checkpoint_every": 2, "folder": folder, **more}
    return accord.fit(mlp(), blobs(), algorithm or accord.scaffold(mask=accord.gma()), **settings)


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its timing."""
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file() and f.name != "timing.jsonl"}


def test_a_finished_run_has_its_files_and_no_clock_in_the_metrics(tmp_path) -> None:
    run = train(tmp_path)
    names = {f.name for f in run.folder.iterdir()}
    assert names == {
        *("experiment.json", "environment.json", "metrics.jsonl", "timing.jsonl", "state.json", "checkpoint-000006.safetensors"),
        *("model.safetensors", "best.safetensors", "clients.json", "clients", "done", "lock"),
    }
    rows = read_lines(run.folder / "metrics.jsonl")
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert not any("second" in key or "time" in key for row in rows for key in row)
    assert json.loads((run.folder / "experiment.json").read_text())["schema"] == 1
    environment = json.loads((run.folder / "environment.json").read_text())[0]
    assert environment["torch"] == torch.__version__ and environment["threads"] == torch.get_num_threads()
    from safetensors.torch import load_file

    assert torch.equal(load_file(run.folder / "model.safetensors")["0.weight"], run.model()[0].weight)


@pytest.mark.parametrize("stop", [1, 3, 4, 5])
def test_a_run_stopped_anywhere_and_resumed_equals_a_straight_one(tmp_path, stop: int) -> None:
    straight = train(tmp_path / "straight")

    def die(event) -> None:
        if event.round == stop:
            raise KeyboardInterrupt  # as abrupt as it gets within one process; a real kill is in test_resume.py

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "broken", hooks=[die])
    resumed = train(tmp_path / "broken")
    assert files(resumed.folder) == files(straight.folder)
    assert resumed.rows == straight.rows


def test_raising_rounds_extends_a_finished_run(tmp_path) -> None:
    straight = train(tmp_path / "straight")
    train(tmp_path / "extended", rounds=4)
    extended = train(tmp_path / "extended")
    assert files(extended.folder) == files(straight.folder)


def test_a_finished_run_is_read_back_not_repeated(tmp_path) -> None:
    first = train(tmp_path)
    changed = (first.folder / "metrics.jsonl").stat().st_mtime_ns
    again = train(tmp_path)
    assert (first.folder / "metrics.jsonl").stat().st_mtime_ns == changed
    assert torch.equal(again.last.vector, first.last.vector) and again.best.round == first.best.round
    assert again.rows == first.rows


def test_without_resume_an_unfinished_or_shorter_run_is_not_touched(tmp_path) -> None:
    train(tmp_path, rounds=2)
    with pytest.raises(AccordError, match="done after 2 rounds: add --resume to extend it to 6"):
        train(tmp_path, resume=False)
    stopped = train(tmp_path / "b", hooks=[lambda event: event.round == 3])
    assert stopped.rounds == 3
    with pytest.raises(AccordError, match="stopped after round 3: add --resume to go on, or --fresh"):
        train(tmp_path / "b", resume=False)


def test_a_second_user_of_the_folder_is_refused(tmp_path) -> None:
    run = train(tmp_path)
    held = RunFolder(run.folder, {}, 6)
    with pytest.raises(AccordError, match="in use by another process"):
        train(tmp_path)
    held.close()
    train(tmp_path)


def test_names_follow_what_changes_the_result(tmp_path) -> None:
    base = train(tmp_path, accord.fedadam(mask=accord.gma(0.4))).folder.name
    assert base == train(tmp_path, accord.fedadam(mask=accord.gma()), checkpoint_every=3, rounds=7, budget=1e9).folder.name
    assert base.startswith("blobs-fedadam-gma-") and base.endswith("-s0")
    others = [
        train(tmp_path, accord.fedadam(mask=accord.gma(0.5))),
        train(tmp_path, accord.fedadam(lr=0.03, mask=accord.gma(0.4))),
        train(tmp_path, accord.fedadam(mask=accord.gma(0.4)), lr=0.02),
        train(tmp_path, accord.fedadam(mask=accord.gma(0.4)), sample=5),
        train(tmp_path, accord.fedadam(mask=accord.gma(0.4)), conditions=accord.Conditions(lost=0.1)),
    ]
    assert len({base, *(run.folder.name for run in others)}) == 6
    other_data = accord.fit(
        mlp(), blobs(seed=1), accord.fedadam(mask=accord.gma(0.4)), rounds=1, sample=4, evaluate_every=2, folder=tmp_path
    )
    other_model = accord.fit(
        mlp(seed=1), blobs(), accord.fedadam(mask=accord.gma(0.4)), rounds=1, sample=4, evaluate_every=2, folder=tmp_path
    )
    assert len({base, other_data.folder.name, other_model.folder.name}) == 3
    assert Plan().that_changes_results() == Plan(rounds=7, budget=3.0, seed=5, checkpoint_every=2).that_changes_results()


def test_damage_is_a_sentence_that_names_the_file(tmp_path) -> None:
    run = train(tmp_path)
    checkpoint = run.folder / "checkpoint-000006.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    with pytest.raises(AccordError, match="the checkpoint .*checkpoint-000006.safetensors cannot be read"):
        train(tmp_path)
    (run.folder / "state.json").write_text("{")
    with pytest.raises(AccordError, match="state.json is damaged"):
        train(tmp_path)
    (run.folder / "state.json").write_text('{"schema": 99}')
    with pytest.raises(AccordError, match="written with schema 99, this accord reads schema 1"):
        train(tmp_path)


def test_another_machine_is_noted(tmp_path) -> None:
    run = train(tmp_path, rounds=4)
    path = run.folder / "environment.json"
    seen = json.loads(path.read_text())
    seen[0]["torch"] = "1.0"
    path.write_text(json.dumps(seen))
    train(tmp_path)
    assert [entry["from_round"] for entry in json.loads(path.read_text())] == [1, 5]


def test_a_write_that_fails_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(beside: Path) -> None:
        beside.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, fail)
    assert path.read_text() == "old"


def test_a_last_line_cut_short_does_not_count(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"round": 1}\n{"rou')
    assert read_lines(path) == [{"round": 1}]
    path.write_text('{"rou\n{"round": 2}\n')
    with pytest.raises(AccordError, match="metrics.jsonl is damaged"):
        read_lines(path)
    assert plain({"a": [float("nan"), 1.0, (float("inf"),)]}) == {"a": [None, 1.0, [None]]}
