"""The wheel, as somebody gets it who has nothing else: an empty environment, another folder, no network, no cache."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CLOSED = "http://127.0.0.1:9"  # nobody listens on the port that discards


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that goes when the tests are over: an environment with torch takes a gigabyte."""
    with tempfile.TemporaryDirectory(prefix="accord-wheel-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (made,) = folder.glob("*.whl")
    return made


def pip(python: str | Path, *words: str | Path) -> str:
    done = subprocess.run([python, "-m", "pip", *words], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def offline(folder: Path) -> tuple[list[str], dict[str, str]]:
    """What a command starts with, and its environment, so that it reaches no network: a namespace without one where the
    system lets us have it, and proxies and a registry where nobody listens, which are what Python's and npm's clients
    go by."""
    namespace = ["unshare", "--map-root-user", "--net"]
    allowed = shutil.which("unshare") and subprocess.run([*namespace, "true"], capture_output=True).returncode == 0
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TMPDIR") if name in os.environ}
    proxies = {name: CLOSED for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())}
    return namespace if allowed else [], kept | proxies | {
        "npm_config_registry": CLOSED,
        "HOME": str(folder / "home"),
        "ACCORD_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.slow
@pytest.mark.network
def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    source = {
        file.relative_to(ROOT / "src").as_posix() for file in (ROOT / "src" / "accord").rglob("*") if file.is_file()
    }
    source = {name for name in source if "__pycache__" not in name}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == source
    assert {"accord/kernels/block.cpp", "accord/studies/published.csv", "accord/report/assets/page.html"} <= held


@pytest.mark.slow
@pytest.mark.network
def test_the_demo_runs_from_the_wheel_in_an_empty_environment_without_a_network(wheel: Path, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip(programs / "python", "install", "--no-compile", "--constraint", ROOT / "constraints.txt", f"{wheel}[demo]")
    installed = json.loads(pip(programs / "python", "list", "--format", "json"))
    assert not [entry for entry in installed if Version(entry["version"]).is_prerelease]
    (folder / "elsewhere").mkdir()
    prefix, env = offline(folder)
    command = [*prefix, programs / "accord", "demo", "train.rounds=2"]
    done = subprocess.run(command, cwd=folder / "elsewhere", env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "mnist could not be had from anywhere" in done.stderr
    assert "goes on with the 1,797 digits that come with scikit-learn" in done.stderr
    head, *rows = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert head == "accuracy (%), by held-out"
    assert rows[:4] == ["fedavg", "fedavg + gma(0.4)", "fedadam", "fedadam + gma(0.4)"]
    # with all that it draws with
    assert (folder / "elsewhere" / "runs" / "demo" / "page.html").stat().st_size > 1_000_000
