"""How the command ends when something goes wrong: one line and an exit code, never a traceback."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import accord
from command import SOURCE, command, environment, run_command
from conftest import sentence

EXPERIMENT = """\
[data]
name = "digits"
clients = 4
[model]
name = "logistic"
[train]
sample = 2
rounds = 100000
[algorithm.average]
weighting = "uniform"
"""
# Python imports it before anything else. It sends Ctrl-C, once or twice, when the module PRESS_AT is imported.
HOOK = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["PRESS_AT"]:
            open("reached", "w").close()
            for _ in range(int(os.environ["PRESSES"])):
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "my.toml").write_text(EXPERIMENT)
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    return tmp_path


def started(here: Path, *words: str, at: str, presses: int) -> subprocess.Popen[str]:
    hook = {"PYTHONPATH": f"{here}:{SOURCE}", "PRESS_AT": at, "PRESSES": str(presses)}
    env = environment(here / "cache", **hook)
    return subprocess.Popen(command(*words), cwd=here, env=env, stderr=subprocess.PIPE, stdout=-3, text=True)


def check_stopped(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "accord: stopped by Ctrl-C" and "Traceback" not in said


# ----------------------------------------------------------------------------------------------------- Ctrl-C


@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize("at", ["accord.cli.app", "typer", "numpy", "torch", "torch.nn"])
def test_ctrl_c_within_an_import(here: Path, at: str, presses: int) -> None:
    check_stopped(started(here, "run", "my.toml", at=at, presses=presses))
    assert (here / "reached").exists()


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 40])
@pytest.mark.parametrize("words", [["run", "my.toml"], ["show", "nothing"]])
def test_ctrl_c_at_any_moment(here: Path, words: list[str], presses: int) -> None:
    """After some time, once or again and again. A command that was done before has its own exit code."""
    for delay in (0.0, 0.03, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.0, 2.5):
        (here / "reached").unlink(missing_ok=True)
        process = started(here, *words, at="accord.cli.app", presses=0)
        while not (here / "reached").exists():
            time.sleep(0.005)
        time.sleep(delay)
        for _ in range(presses):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        if process.poll() is None:
            time.sleep(1.0)  # a run that trains waits for the end of the round
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode in ((130,) if words[0] == "run" else (130, -signal.SIGINT, 2)), (delay, said)
        assert "Traceback" not in said, (delay, said)


# ------------------------------------------------------------------------------------------------------- bugs


def test_any_other_exception_is_one_line_that_names_the_file_of_its_traceback(tmp_path: Path) -> None:
    program = "from accord.cli import app, main\napp.app = lambda **words: [].missing\nmain.main()"
    env = environment(tmp_path, TMPDIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    (file,) = tmp_path.glob("accord-*.txt")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("accord: this is a bug in accord: AttributeError: ")
    assert done.stderr.endswith(f"traceback in {file}\n")
    assert "Traceback" in file.read_text() and "AttributeError" in file.read_text()


OWN_MASK = """
import accord
from dataclasses import dataclass

@dataclass(frozen=True)
class late(accord.gma):
    def lower(self, total, state, round):
        if round.number == 2:
            raise KeyError("weights")
        return super().lower(total, state, round)
"""


def test_an_error_in_code_of_the_users_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(EXPERIMENT)
    (tmp_path / "mymask.py").write_text(OWN_MASK)
    done = run_command(tmp_path, "run", "my.toml", "algorithm.mask.name=mymask:late", "train.rounds=3")
    assert done.returncode == 1
    assert re.search(r"accord: .*mymask.py, line 9, raised an error: KeyError: 'weights', traceback in ", done.stderr)


@pytest.mark.parametrize(
    "settings", [["privacy.noise=1e-320", "privacy.clip=1"], [f"algorithm{'.a' * 5000}=1"], [f"train{'.' * 5000}=1"]]
)
def test_settings_that_nobody_types_are_one_line(here: Path, settings: list[str]) -> None:
    done = run_command(here, "run", "my.toml", *settings, "--dry-run")
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1 and len(done.stderr) < 400
    assert done.stderr.startswith("accord: ")


@pytest.mark.parametrize("name", [b"client\xff/a/1.png", b"client/a\xff/1.png", b"client/a/1\xff.png"])
def test_a_name_that_is_not_utf8_is_refused(here: Path, name: bytes) -> None:
    place = bytes(here / "pictures") + b"/" + name
    Path(place.rpartition(b"/")[0].decode("utf-8", "surrogateescape")).mkdir(parents=True)
    with open(place, "wb"):
        pass
    done = run_command(here, "run", "my.toml", "data.name=folder", "data.source=pictures")
    assert done.returncode == 2 and done.stderr.startswith("accord: data.source: ") and r"\udcff" in done.stderr
    with sentence(r"\udcff", "UTF-8"):
        accord.data.folder(source=here / "pictures")


# ------------------------------------------------------------------------------------------------- full pipes


@pytest.mark.parametrize("words", [["settings"], ["--help"], ["data", "list"]])
def test_a_reader_that_has_enough_ends_the_command_quietly(here: Path, words: list[str]) -> None:
    env = environment(here / "cache")
    process = subprocess.Popen(
        command(*words), cwd=here, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait(timeout=60)
