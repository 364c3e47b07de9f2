"""A contestant as `benchmarks/engines.py` sees it: a process that is started, asked to measure, and stopped."""

import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from works import Work

from contestants.memory import tree_mb

BENCHMARKS = Path(__file__).resolve().parents[1]
# not passed on: everybody has as many threads as it takes by itself, and torch's own kernels
OWN = ("OMP_NUM_THREADS", "ACCORD_NATIVE")


class Failed(Exception):
    """A sentence on why a contestant is out."""


@dataclass
class Contestant:
    """A process that can be asked to measure, and what it has said so far."""

    name: str
    command: list[str]
    seconds: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    ready_after: float | None = None
    peak_mb: float = 0.0
    gpu_mb: float | None = None
    error: str | None = None

    def start(self, work: Work, folder: Path, device: str, limit: float) -> None:
        """Starts the process and waits for its first round. Its memory is watched only here, where looking costs
        nobody's time."""
        if not Path(self.command[0]).exists():
            raise Failed(f"there is no environment at {Path(self.command[0]).parents[1]}: benchmarks/peers.sh makes it")
        self.log = (folder / f"{self.name}.log").open("w+")
        environment = {key: value for key, value in os.environ.items() if key not in OWN}
        environment["PYTHONPATH"] = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent / "src")])
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [*self.command, "--work", work.name, "--data", str(folder), "--device", device],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
        )
        self.about = self._line(limit, watch=True)
        self.ready_after = time.perf_counter() - began

    def measure(self, limit: float) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"measure\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._last_words()) from None
        answer = self._line(limit)
        self.seconds.append(answer["seconds"])
        self.rounds.append(answer["rounds"])
        self.accuracy.append(answer["accuracy"])
        self.gpu_mb = answer["gpu_mb"]

    def stop(self) -> None:
        """Ends the process and everything it started."""
        if not hasattr(self, "process"):
            return
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()

    def _line(self, limit: float, *, watch: bool = False) -> Any:
        assert self.process.stdout is not None
        until = time.monotonic() + limit
        while (left := until - time.monotonic()) > 0:
            if select.select([self.process.stdout], [], [], 0.5 if watch else left)[0]:
                line = self.process.stdout.readline()
                if not line:
                    self.process.wait()
                    raise Failed(self._last_words())
                return json.loads(line)
            self.peak_mb = max(self.peak_mb, tree_mb(self.process.pid))
        os.killpg(self.process.pid, signal.SIGKILL)
        raise Failed(f"it did not answer within {limit:.0f} s")

    def _last_words(self) -> str:
        self.log.seek(0)
        lines = [line.strip() for line in self.log if line.strip()]
        return lines[-1] if lines else f"it ended with status {self.process.returncode} and said nothing"
