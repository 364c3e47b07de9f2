"""A deployment on this machine whose apps are forked from one process that has torch loaded already."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from types import TracebackType
from typing import Any, Self

from accord.deploy.flower.loopback import Loopback

_SCRIPT = Path(__file__).resolve().parent / "warm_apps.py"


class WarmLoopback(Loopback):
    """Idle nodes ask for work once a second: many processes that ask twenty times a second leave none of two cores for
    the work itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.programs = self.folder / "programs"
        self.socket = Path(f"/tmp/accord-warm-{os.getpid()}")  # a socket's path must be short

    def scripts(self, warm: str) -> dict[str, str]:
        """What is run in the place of Flower's programs, as lines of a shell; `warm` asks the process that forks."""
        return {name: f'{warm} {name} "$@"' for name in ("flwr-clientapp", "flwr-serverapp")}

    def __enter__(self) -> Self:
        self.programs.mkdir(parents=True, exist_ok=True)
        for name, line in self.scripts(f"exec {sys.executable} -S -E {_SCRIPT} {self.socket}").items():
            (self.programs / name).write_text(f"#!/bin/sh\n{line}\n")
            (self.programs / name).chmod(0o755)
        log = (self.programs / "apps.log").open("ab")
        command = [sys.executable, str(_SCRIPT), str(self.socket)]
        # a session of its own: whatever it forked ends with it
        self.warm = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment(), start_new_session=True)
        try:
            while not self.socket.exists():
                if self.warm.poll() is not None:
                    raise SystemExit(f"the process that forks has ended: see {log.name}")
                time.sleep(0.1)
            return super().__enter__()
        except BaseException:
            self._end_warm()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._end_warm()

    def _end_warm(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.warm.pid, SIGKILL)
        self.warm.wait()
        self.socket.unlink(missing_ok=True)

    def _environment(self) -> dict[str, str]:
        found = super()._environment()
        return {**found, "PATH": f"{self.programs}:{found['PATH']}", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "1.0"}
