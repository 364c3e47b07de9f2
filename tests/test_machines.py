"""Machines that lack something: each is told in a sentence what to do, and what can run there runs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
SMALL = ("data.clients=4", "data.unseen=1", "model.name=logistic", "train.rounds=1", "train.sample=2")


def command(cwd: Path, *words: str, code: int = 0, **changed: str | None) -> subprocess.CompletedProcess[str]:
    """The command or, if the first word is -c, Python, where no source of data can be reached. None takes a variable
    away."""
    env = {name: value for name, value in os.environ.items() if name in ("HOME", "PATH") or name.startswith("COV")}
    env |= {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "ACCORD_CACHE": str(cwd / "cache")}
    env |= {"https_proxy": "http://127.0.0.1:9", "npm_config_registry": "http://127.0.0.1:9"}  # where nobody answers
    env = {name: value for name, value in (env | changed).items() if value is not None}
    start = [sys.executable] if words[0] == "-c" else [sys.executable, "-m", "accord"]
    done = subprocess.run([*start, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done


# ----------------------------------------------------------------------------------------------- old versions


def test_an_old_python_is_refused_in_a_sentence(tmp_path: Path) -> None:
    script = """
import runpy, sys
sys.version_info, sys.version = (3, 9, 18, "final", 0), "3.9.18 (main)"
try:
    import accord
except ImportError as error:
    print(error)
runpy._run_module_as_main("accord")
"""
    done = command(tmp_path, "-c", script, code=1)
    sentence = "accord needs Python 3.11 or newer, this is 3.9.18: make an environment with a newer one"
    assert done.stdout.strip() == sentence and sentence in done.stderr and done.stderr.count("\n") == 1
    ast.parse((SOURCE / "accord" / "__init__.py").read_text(), feature_version=(3, 7))  # or it could not say so


def test_an_old_torch_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "torch-2.5.1.dist-info").mkdir()
    (tmp_path / "torch-2.5.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1+cpu\n"
    )
    (tmp_path / "torch.py").write_text("__version__ = '2.5.1+cpu'\n")
    old = os.pathsep.join([str(tmp_path), str(SOURCE)])
    done = command(tmp_path, "demo", code=2, PYTHONPATH=old)
    sentence = "PyTorch 2.6 or newer is needed, this is 2.5.1+cpu: pip install --upgrade 'torch>=2.6'\n"
    assert done.stderr == f"accord: {sentence}" and done.stdout == ""
    assert command(tmp_path, "--version", PYTHONPATH=old).stdout.startswith("accord ")
    done = command(tmp_path, "-c", "import torch, accord\naccord.fit", code=1, PYTHONPATH=old)
    assert done.stderr.endswith(f"AccordError: {sentence}")


# ---------------------------------------------------------------------------------------------- bare machines


def test_the_demo_runs_where_neither_a_network_nor_a_cache_can_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command(tmp_path, "demo", *SMALL, ACCORD_CACHE=None, HOME=str(tmp_path / "file"))
    told, goes_on, *_ = done.stderr.splitlines()
    assert told.startswith("cannot write ") and told.endswith(
        "set ACCORD_CACHE to a folder with room that you may write to"
    )
    assert goes_on.startswith("The demonstration goes on with the 1,797 digits that come with scikit-learn")
    assert "Traceback" not in done.stderr and "fedadam + gma(0.4)" in done.stdout
    done = command(tmp_path, "data", "get", "mnist", code=2, ACCORD_CACHE=str(tmp_path / "file"))
    assert done.stderr.startswith("accord: cannot write ") and done.stderr.count("\n") == 1


def test_digits_are_the_same_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import accord

    (tmp_path / "file").touch()
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "cache"))
    kept = accord.data.digits(clients=3)
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "file"))
    loose = accord.data.digits(clients=3)
    assert (
        loose.x.equal(kept.x)
        and loose.y.equal(kept.y)
        and loose.y.dtype == kept.y.dtype
        and loose.test.equal(kept.test)
    )


def test_a_user_without_a_home_is_told_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    from accord import AccordError
    from accord.data import cache

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as pathlib does for a user id without a name

    for name in ("ACCORD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(AccordError, match="there is no home folder to keep data in: set ACCORD_CACHE to a folder"):
        cache.path("mnist")


@pytest.mark.slow
def test_without_a_compiler_the_kernel_is_refused_if_a_run_asks_and_done_without_if_the_environment_does(
    tmp_path: Path,
) -> None:
    bare = {"PATH": str(tmp_path), "CXX": None}
    reason = "there is no C++ compiler on the PATH: install g++ or clang, or set CXX"
    done = command(tmp_path, "demo", *SMALL, "data.name=digits", "run.speed=native", code=2, **bare)
    assert (
        done.stderr.endswith(f"accord: the compiled kernel was asked for, but {reason}\n")
        and "Traceback" not in done.stderr
    )
    done = command(tmp_path, "demo", *SMALL, "data.name=digits", ACCORD_NATIVE="1", **bare)
    assert done.stderr.count(f"torch does without the compiled kernel of ACCORD_NATIVE, because {reason}\n") == 1


# ---------------------------------------------------------------------------------------------- other systems

ELSEWHERE = """
import os, signal, sys
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
import torch
for home, names in ((os, "fork getuid uname sysconf sched_getaffinity fchmod killpg"), (signal, "SIGKILL SIGALRM")):
    for name in names.split():
        if hasattr(home, name):
            delattr(home, name)

import accord, accord.experiments.sweep
from accord.experiments.lockstep import _open_files
from accord.runs.folder import RunFolder

digits = accord.data.digits(clients=4, unseen=1)
for engine in ("sequential", "auto"):
    model, rule = accord.models.lenet(), accord.scaffold()
    run = accord.fit(model, digits, rule, rounds=2, sample=2, seed=len(engine), engine=engine, folder="runs")
    assert run.rounds == 2 and (run.folder / "done").exists(), run
assert _open_files() == 512
held = RunFolder(run.folder, {}, 2)
try:
    RunFolder(run.folder, {}, 2)
except accord.AccordError as error:
    print(error)
held.close()
assert not [file for file in run.folder.iterdir() if "lock" in file.name]
"""


@pytest.mark.slow
def test_training_needs_nothing_of_posix(tmp_path: Path) -> None:
    """Not Windows, but the nearest to it that can be had here: its modules and calls are gone, and files are locked by
    their existence."""
    done = command(tmp_path, "-c", ELSEWHERE)
    assert "is in use by another process: wait for it" in done.stdout
    assert (tmp_path / "cache" / "digits.v2.safetensors").exists()
