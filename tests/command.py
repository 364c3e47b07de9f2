"""The command `accord` for tests: in this process where only what it prints and writes matters, as a process of its own
where signals, terminals or a fresh start do. A process takes two seconds to load torch."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from accord.cli.main import main

SOURCE = Path(__file__).parents[1] / "src"
_KEPT = ("HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA")


def environment(cache: Path, **more: str) -> dict[str, str]:
    """The variables of a process with a data cache of its own, and one thread, so that tests do not fight for cores."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT}
    return kept | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "ACCORD_CACHE": str(cache), **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "accord", *words]


def run_command(cwd: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command in this process. Of `env`, what differs from this process's own variables counts."""
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["accord", *words])
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as done:
            main()
    return subprocess.CompletedProcess(words, int(done.value.code or 0), out.getvalue(), err.getvalue())


def accord(env: Mapping[str, str], cwd: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command in this process, which must end with that exit code."""
    done = run_command(cwd, *words, env=env)
    assert done.returncode == code, done.stderr
    return done


def refused(env: Mapping[str, str], cwd: Path, *words: str) -> str:
    """The one sentence of a command that is refused."""
    done = accord(env, cwd, *words, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("accord: ") and done.stderr.count("\n") == 1
    return done.stderr.removeprefix("accord: ").strip()


class Started:
    """A process that goes on while the test does something else; its output is read from files, as it comes."""

    def __init__(self, env: Mapping[str, str], here: Path, words: list[str]) -> None:
        self.out, self.err = here / "stdout", here / "stderr"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(command(*words), cwd=here, env=dict(env), stdout=out, stderr=err)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        for _ in range(12000):
            if condition():
                return
            assert self.process.poll() is None, f"it ended too early: {self.err.read_text()}"
            time.sleep(0.01)
        pytest.fail(f"it never came: {self.err.read_text()}")

    def says(self, part: str) -> None:
        self.wait_for(lambda: part in self.err.read_text())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> tuple[int, str, str]:
        code = self.process.wait(timeout=120)
        assert "Traceback" not in self.err.read_text()
        return code, self.out.read_text(), self.err.read_text()
