"""A real process is killed with SIGKILL mid-run and resumed; every file but the timing equals the straight run's."""

import os
import signal
import subprocess
import sys
import time
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
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(run.rglob("*")) if f.is_file() and f.name != "timing.jsonl"}


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
