"""A real process is killed with SIGKILL mid-run and resumed; every file but the timing equals the straight run's."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

SETTINGS = """
[data]
name = "digits"
clients = 12
split = "labels"
unseen = 3
[train]
rounds = 16
sample = 4
evaluate_every = 2
[run]
checkpoint_every = 4
"""


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "accord", "run", "my.toml", *more]


def prepare(folder: Path) -> Path:
    folder.mkdir()
    (folder / "my.toml").write_text(SETTINGS)
    return folder


def kill_after_round(folder: Path, number: int, *more: str) -> None:
    """Starts the run and kills it as soon as its metrics show the round."""
    process = subprocess.Popen(command(folder, *more), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(6000):
            rows = sum(file.read_bytes().count(b"\n") for file in folder.glob("runs/*/metrics.jsonl"))
            if rows >= number or process.poll() is not None:
                break
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"


def files(folder: Path) -> dict[str, bytes]:
    (run,) = (folder / "runs").glob("*-s0")
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(run.rglob("*"))
        if f.is_file() and f.name != "timing.jsonl"
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        ["algorithm.name=fedavg", "algorithm.mask=gma"],
        ["algorithm.name=fedadam", "algorithm.mask=gma"],
        ["algorithm.name=scaffold", "algorithm.mask=gma"],
    ],
    ids=["fedavg+gma", "fedadam+gma", "scaffold+gma"],
)
def test_killed_and_resumed_equals_straight(tmp_path: Path, algorithm: list[str]) -> None:
    straight, killed = prepare(tmp_path / "straight"), prepare(tmp_path / "killed")
    subprocess.run(command(straight, *algorithm), cwd=straight, check=True, capture_output=True)
    kill_after_round(killed, 2, *algorithm)  # before the first checkpoint
    kill_after_round(killed, 6, *algorithm, "--resume")  # between two checkpoints
    subprocess.run(command(killed, *algorithm, "--resume"), cwd=killed, check=True, capture_output=True)
    expected, found = files(straight), files(killed)
    assert sorted(found) == sorted(expected)
    for name, content in expected.items():
        assert found[name] == content, name
    assert any("clients/" in name for name in found) == ("scaffold" in algorithm[0])


def test_going_on_with_other_threads_and_instructions_says_so_in_one_sentence(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "moved")
    here = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    told = []
    for rounds, env in (
        (4, {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"}),
        (8, {"OMP_NUM_THREADS": "2"}),
        (12, {"OMP_NUM_THREADS": "2"}),
    ):
        more = (f"train.rounds={rounds}", "run.engine=sequential", "run.device=cpu", "--resume")
        done = subprocess.run(
            command(folder, *more), cwd=folder, env={**here, **env}, check=True, capture_output=True, text=True
        )
        told.append([line for line in done.stderr.splitlines() if "before: " in line])
    ((first, second),) = (json.loads(file.read_text()) for file in folder.glob("runs/*/environment.json"))
    assert (first["from_round"], second["from_round"]) == (1, 5)
    assert first["cpu_instructions"].split()[0] == "DEFAULT" and (first["threads"], second["threads"]) == (1, 2)
    # A simple processor has one set of instructions.
    changed = [key for key in ("cpu_instructions", "threads") if first[key] != second[key]]
    parts = ", ".join(f"{key} {second[key]} (before: {first[key]})" for key in changed)
    sentence = (
        f"the run goes on with {parts}: its results may differ in their last digits from those of an uninterrupted run"
    )
    assert told == [[], [sentence], []]


def test_a_full_disk_is_told_with_the_file_and_the_way_on(tmp_path: Path) -> None:
    """A limit of a file's size stands in for a full disk: the system answers a write with an error, too."""
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    full, straight = prepare(tmp_path / "full"), prepare(tmp_path / "straight")
    # which the first checkpoint of 7,850 parameters is within, and the next, with the best model, is not
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (34_000, 34_000))
    words = ["model.name=logistic", "train.evaluate_every=1"]
    done = subprocess.run(command(full, *words), cwd=full, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    said = done.stderr.splitlines()[-1]
    assert "/checkpoint-0000" in said and "safetensors: File too large. What was written is whole: make room. " in said
    assert said.endswith("To go on: accord run my.toml model.name=logistic train.evaluate_every=1 --resume")
    for folder, more in ((full, ["--resume"]), (straight, [])):
        subprocess.run(command(folder, *words, *more), cwd=folder, check=True, capture_output=True)
    assert files(full) == files(straight)
