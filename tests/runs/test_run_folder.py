"""Run folders: whole files, locks, resuming, extending, names."""

import functools
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import accord
from accord import AccordError
from accord.core.files import plain, write_whole
from accord.runs.checksums import checksum
from accord.runs.environment import OtherEnvironment, changes, environment
from accord.runs.fingerprint import SCHEMA, describe
from accord.runs.folder import RunFolder
from accord.runs.rows import read_rows
from accord.training.plan import Plan
from conftest import blobs, mlp


def train(folder: Path, algorithm=None, **more) -> accord.Run:
    settings = {"rounds": 6, "sample": 4, "evaluate_every": 2, "checkpoint_every": 2, "folder": folder, **more}
    return accord.fit(mlp(), blobs(), algorithm or accord.scaffold(mask=accord.gma()), **settings)


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its timing."""
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and f.name != "timing.jsonl"
    }


def test_a_finished_run_has_its_files_and_no_clock_in_the_metrics(tmp_path) -> None:
    run = train(tmp_path)
    names = {f.name for f in run.folder.iterdir()}
    assert names == {
        *(
            "experiment.json",
            "preparation.json",
            "environment.json",
            "metrics.jsonl",
            "timing.jsonl",
            "state.json",
            "checkpoint-000006.safetensors",
        ),
        *("model.safetensors", "best.safetensors", "clients.json", "clients", "done", "lock"),
    }
    rows = read_rows(run.folder)
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert not any("second" in key or "time" in key for row in rows for key in row)
    assert json.loads((run.folder / "experiment.json").read_text())["schema"] == SCHEMA
    environment = json.loads((run.folder / "environment.json").read_text())[0]
    assert environment["torch"] == torch.__version__ and environment["threads"] == torch.get_num_threads()
    assert environment["engine"] == "sequential" and environment["cpu"]
    assert environment["cpu_instructions"].split()[0] == torch.backends.cpu.get_cpu_capability()
    from safetensors.torch import load_file

    assert torch.equal(load_file(run.folder / "model.safetensors")["0.weight"], run.model()[0].weight)


@pytest.mark.parametrize(("stop", "lr", "best"), [(1, 0.01, 6), (3, 0.01, 6), (4, 0.01, 6), (5, 0.01, 6), (5, 1.0, 4)])
def test_a_run_stopped_anywhere_and_resumed_equals_a_straight_one(tmp_path, stop: int, lr: float, best: int) -> None:
    straight = train(tmp_path / "straight", lr=lr)
    assert straight.best.round == best, "before the stop, and after it"

    def die(event) -> None:
        if event.round == stop:
            raise KeyboardInterrupt  # as abrupt as it gets within one process; a real kill is in test_resume.py

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "broken", lr=lr, hooks=[die])
    resumed = train(tmp_path / "broken", lr=lr)
    assert files(resumed.folder) == files(straight.folder)
    assert resumed.rows == straight.rows


CRASHES = """
import os, sys
from pathlib import Path
count, die_at = 0, int(sys.argv[2])

def counted(call):
    def wrapper(*args, **kwargs):
        global count
        count += 1
        if count == die_at:
            os._exit(9)  # no clean-up of any kind, as a kill
        result = call(*args, **kwargs)
        if count == -die_at:
            os._exit(9)
        return result
    return wrapper

for owner, name in ((os, "replace"), (os, "fsync"), (Path, "unlink"), (Path, "write_bytes")):
    setattr(owner, name, counted(getattr(owner, name)))
from test_run_folder import train
train(Path(sys.argv[1]))
print(count)
"""


@pytest.mark.slow
def test_a_crash_at_any_write_leaves_a_folder_that_resumes_to_the_same_files(tmp_path) -> None:
    """The process dies before, and right after, chosen calls that touch the disk; all of them would take minutes."""
    straight = files(train(tmp_path / "straight").folder)

    def run(name: str, die_at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CRASHES, str(tmp_path / name), str(die_at)]
        return subprocess.run(
            command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True
        )

    calls = int(run("counted", 10**9).stdout)
    points = [round(1 + i * (calls - 1) / 13) for i in range(14)]
    for point in [*points, *(-p for p in points[::2])]:
        assert run(f"at{point}", point).returncode == 9
        assert files(train(tmp_path / f"at{point}").folder) == straight, f"crash at call {point} of {calls}"


@pytest.mark.parametrize("algorithm", [accord.scaffold(mask=accord.gma()), accord.local_only()], ids=lambda a: a.name)
@pytest.mark.parametrize("first", [4, 5])
def test_raising_rounds_extends_a_finished_run(tmp_path, algorithm, first: int) -> None:
    """Also when it had ended between two scheduled evaluations: a straight run would not have looked there."""
    straight = train(tmp_path / "straight", algorithm, lr=0.3)
    ended = train(tmp_path / "extended", algorithm, rounds=first, lr=0.3)
    assert ended.history[-1][0] == first
    extended = train(tmp_path / "extended", algorithm, lr=0.3)
    assert files(extended.folder) == files(straight.folder)


def test_a_run_that_ends_off_schedule_may_be_best_at_its_end(tmp_path) -> None:
    run = train(tmp_path, rounds=1)
    assert run.best.round == 1 and run.select("held-out").rounds == [1]
    assert train(tmp_path, rounds=1).best.round == 1  # read back


def test_a_run_stopped_and_asked_for_no_more_is_evaluated_where_it_stands(tmp_path) -> None:
    stopped = train(tmp_path, hooks=[lambda event: event.round == 3])
    assert "evaluation" not in stopped.rows[-1]
    done = train(tmp_path, rounds=3)
    assert done.stopped is None and done.history[-1][0] == 3
    assert train(tmp_path, rounds=3).history == done.history
    assert files(train(tmp_path).folder) == files(train(tmp_path / "straight").folder)


def test_fewer_rounds_than_a_stopped_run_has_is_said(tmp_path) -> None:
    train(tmp_path, hooks=[lambda event: event.round == 5])
    run = train(tmp_path, rounds=4)
    assert run.stopped == "it had run 5 rounds already" and not (run.folder / "done").exists()


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
    assert (
        base == train(tmp_path, accord.fedadam(mask=accord.gma()), checkpoint_every=3, rounds=7, budget=1e9).folder.name
    )
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
        mlp(),
        blobs(seed=1),
        accord.fedadam(mask=accord.gma(0.4)),
        rounds=1,
        sample=4,
        evaluate_every=2,
        folder=tmp_path,
    )
    other_model = accord.fit(
        mlp(seed=1),
        blobs(),
        accord.fedadam(mask=accord.gma(0.4)),
        rounds=1,
        sample=4,
        evaluate_every=2,
        folder=tmp_path,
    )
    assert len({base, other_data.folder.name, other_model.folder.name}) == 3
    assert Plan().identity() == Plan(rounds=7, budget=3.0, seed=5, checkpoint_every=2).identity()


def smooth(output: torch.Tensor, target: torch.Tensor, by: float = 0.0) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(output, target, reduction="none", label_smoothing=by)


def test_functions_and_modules_are_told_apart_by_what_they_do() -> None:
    def close_over(by: float):
        return lambda output, target: smooth(output, target, by)

    class Scaled(torch.nn.Module):
        def __init__(self, k: float) -> None:
            super().__init__()
            self.k, self.inner = k, mlp()

    frozen = mlp()
    frozen[0].requires_grad_(False)
    loss = torch.nn.CrossEntropyLoss
    things = [
        *(
            close_over(0.1),
            close_over(0.2),
            functools.partial(smooth, by=0.1),
            functools.partial(smooth, by=0.2),
            smooth,
        ),
        *(Scaled(1.0), Scaled(5.0), mlp(), mlp(seed=1), frozen),
        *(loss(reduction="none"), loss(reduction="none", label_smoothing=0.5)),
    ]
    described = [json.dumps(describe(thing)) for thing in things]
    assert len(set(described)) == len(described)
    assert describe(close_over(0.1)) == describe(close_over(0.1)) and describe(mlp()) == describe(mlp())
    assert describe(accord.fedavg(lr=2)) == describe(accord.fedavg(lr=2.0))

    class Nameless:
        def __call__(self, output, target):
            return smooth(output, target)

    with pytest.raises(AccordError, match="looks different in every process: write it as a function"):
        describe(Nameless())


def test_the_order_of_metrics_counts(tmp_path) -> None:
    first, second = (lambda output, target: target.float()), (lambda output, target: -target.float())
    runs = [train(tmp_path, metrics=m) for m in ({"a": first, "b": second}, {"b": second, "a": first})]
    assert runs[0].folder != runs[1].folder


def test_a_file_in_the_folders_place_is_a_sentence(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AccordError, match="there is a file in its place"):
        train(tmp_path / "file")


def test_a_run_that_fails_before_it_begins_leaves_nothing(tmp_path) -> None:
    with pytest.raises(AccordError, match="loss must give one number per sample"):
        train(tmp_path, loss=lambda output, target: torch.nn.functional.cross_entropy(output, target))
    assert list(tmp_path.iterdir()) == []


def test_damage_is_a_sentence_that_names_the_file(tmp_path) -> None:
    run = train(tmp_path)
    checkpoint = run.folder / "checkpoint-000006.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    with pytest.raises(
        AccordError,
        match="the checkpoint .*checkpoint-000006.safetensors is damaged.*delete the run's folder to start over",
    ):
        train(tmp_path)
    with pytest.raises(
        AccordError,
        match="the checkpoint .*checkpoint-000006.safetensors is damaged.*delete the run's folder to start over",
    ):
        train(tmp_path, rounds=8)
    assert (run.folder / "done").exists()  # nothing was touched
    (run.folder / "state.json").rename(run.folder / "away")
    with pytest.raises(AccordError, match="state.json is missing.*delete the run's folder"):
        train(tmp_path)
    (run.folder / "state.json").write_text("{")
    with pytest.raises(AccordError, match="state.json is damaged"):
        train(tmp_path)
    (run.folder / "state.json").write_text('{"schema": 99}')
    with pytest.raises(AccordError, match="written with schema 99, this accord reads schema"):
        train(tmp_path)


def test_going_on_with_another_engine_is_noted_and_told_once(tmp_path) -> None:
    told = "the run goes on with engine vectorised (before: sequential): its results may differ in their last digits"
    path = train(tmp_path, rounds=2).folder / "environment.json"
    with pytest.warns(OtherEnvironment, match=re.escape(told)) as caught:
        train(tmp_path, rounds=4, engine="vectorised")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tmp_path, rounds=6, engine="vectorised")
    assert [(entry["from_round"], entry["engine"]) for entry in json.loads(path.read_text())] == [
        (1, "sequential"),
        (3, "vectorised"),
    ]


def test_what_decides_the_bits() -> None:
    """On a GPU the host's processor does not; what an older accord did not record is not called a change."""
    here = environment(torch.device("cpu"), "sequential")
    for key in ("torch", "device", "native", "speed", "cpu", "cpu_instructions", "threads"):
        assert changes({**here, key: "other"}, here) == f"{key} {here[key]} (before: other)"
        assert changes({name: value for name, value in here.items() if name != key}, here) == ""
    assert changes({**here, "accord": "0", "commit": "0", "python": "3", "numpy": "1"}, here) == ""
    gpu = {**here, "device": "NVIDIA H200"}
    assert changes({**gpu, "cpu": "other", "cpu_instructions": "other", "threads": 64}, gpu) == ""
    assert environment(torch.device("cpu"), "processes")["threads"] == 1
    assert environment(torch.device("cpu"), "vectorised", {"native", "bf16"})["speed"] == "bf16"


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"new")
    assert path.read_text() == "old"


class Disk:
    """What survives a power cut: the contents that were synced. Looks at a run's folder before and after each call
    that could make its checkpoint name files that are not there."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.checked = folder, 0
        self.synced: dict[str, bytes] = {}
        self.calls: list[str] = []
        for owner, name in ((os, "replace"), (os, "fsync"), (Path, "unlink")):
            patch.setattr(owner, name, self.watched(name, getattr(owner, name)))

    def watched(self, name: str, call):
        def wrapper(*args, **kwargs):
            self.check()
            result = call(*args, **kwargs)
            path = Path(os.readlink(f"/proc/self/fd/{args[0]}") if name == "fsync" else args[-1])
            self.calls.append(f"{name} {'folder' if path.is_dir() else path.suffix if name == 'fsync' else path.name}")
            if name == "fsync" and path.is_file():
                self.synced[path.name] = path.read_bytes()
            if name == "replace":
                self.synced[path.name] = self.synced.pop(Path(args[0]).name, b"")
            self.check()
            return result

        return wrapper

    def check(self) -> None:
        """Whether all that the checkpoint names was synced as it vouches for it."""
        for run in self.folder.glob("*/state.json"):
            state = json.loads(run.read_bytes())
            for name, known in state["files"].items():
                content = self.synced.get(name, b"")
                if name == "metrics.jsonl":
                    content = b"".join(content.splitlines(keepends=True)[: state["rows"]])
                assert checksum(content) in known, name
                assert (run.parent / name).exists(), name
            self.checked += 1


def test_whatever_a_checkpoint_names_is_on_disk_at_any_moment(tmp_path, monkeypatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    train(tmp_path)
    train(tmp_path, rounds=8)  # it goes on, and replaces files
    assert disk.checked > 50


def test_a_file_is_synced_before_it_has_its_name_and_the_name_after(tmp_path, monkeypatch) -> None:
    disk = Disk(tmp_path, monkeypatch)
    write_whole(tmp_path / "file.json", b"new")
    assert disk.calls == ["fsync .part", "replace file.json", "fsync folder"]
    assert disk.synced == {"file.json": b"new"}


def test_a_last_line_cut_short_does_not_count(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"round": 1}\n{"rou')
    assert [row.round for row in read_rows(tmp_path)] == [1]
    path.write_text('{"rou\n{"round": 2}\n')
    with pytest.raises(AccordError, match="metrics.jsonl is damaged"):
        list(read_rows(tmp_path))
    assert plain({"a": [float("nan"), 1.0, (float("inf"),)]}) == {"a": [None, 1.0, [None]]}
