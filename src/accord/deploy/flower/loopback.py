"""A real Flower deployment on this machine: a SuperLink with TLS and SuperNodes with registered keys, each a process of
its own.

    with Loopback(Path("examples/flower"), nodes=3, folder=Path("deployment")) as federation:
        federation.run({"rounds": 5})

Whatever happens within, every process that was started has ended when the block is left, and so have those that they
started.
"""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from accord.core.errors import AccordError, check_whole
from accord.deploy.flower.keys import make_certificates, make_node_key
from accord.deploy.flower.machine import (
    HOST,
    born_at,
    cause,
    descendants,
    free_port,
    last_words,
    program_path,
    tail,
)

Tell = Callable[[str], object]
START_SECONDS = 60.0
STOP_SECONDS = 5.0


class Loopback:
    """SuperLink and SuperNodes for one app. `nodes` SuperNodes get the settings `partition-id` and `num-partitions`.

    `port` is the SuperLink's (0: a free one); `certificates` are an authority's certificate, a certificate and its key
    (left out: made in `folder`, where logs and keys go too).
    """

    def __init__(
        self,
        app: Path,
        nodes: int = 3,
        *,
        folder: Path,
        port: int = 0,
        certificates: tuple[Path, Path, Path] | None = None,
    ) -> None:
        check_whole("nodes", nodes)
        if not (app / "pyproject.toml").is_file():
            raise AccordError(f"app must be the folder of a Flower app, with a pyproject.toml, got {str(app)!r}")
        self.app, self.nodes, self.folder, self.port = app.resolve(), nodes, folder.resolve(), port
        self.certificates = certificates
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.node_ports: dict[int, int] = {}
        self.public_keys: dict[int, Path] = {}  # of the nodes that are registered
        self._handler: Any = None

    # ---------------------------------------------------------------------------------- starting and stopping

    def __enter__(self) -> Self:
        self._handler = signal.signal(signal.SIGTERM, _as_interrupt)
        try:
            self.start_superlink()
            for number in range(self.nodes):
                self.register(number)
                self.start_node(number)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_superlink(self) -> None:
        """Starts the SuperLink and waits until it answers over TLS."""
        for file in self.certificates or ():
            if not os.access(file, os.R_OK):
                raise AccordError(f"the certificate or key {file} cannot be read")
        if self.certificates is None:
            self.certificates = make_certificates(self.folder / "certificates")
        self.port = free_port(self.port)
        authority, certificate, key = self.certificates
        options = [
            "--host",
            HOST,
            "--port",
            str(self.port),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        ]
        options += ["--ssl-ca-certfile", str(authority), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
        self._start("superlink", "flower-superlink", options)
        home = self.folder / "flwr"
        home.mkdir(parents=True, exist_ok=True)
        words = [f"address = {json.dumps(f'{HOST}:{self.port}')}", f"root-certificates = {json.dumps(str(authority))}"]
        (home / "config.toml").write_text(
            "\n".join(['[superlink]\ndefault = "loopback"\n\n[superlink.loopback]', *words, ""])
        )
        self._await_superlink(authority)

    def register(self, number: int) -> None:
        """Makes a key pair for a node and tells the SuperLink the public one."""
        _, self.public_keys[number] = make_node_key(self.folder / "keys", f"node-{number}")
        self._flwr_json("supernode", "register", str(self.public_keys[number]), "loopback")

    def start_node(
        self, number: int, *, key: Path | None = None, authority: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        """Starts a SuperNode; with another `key` or another `authority` than its own if asked to."""
        assert self.certificates is not None, "the SuperLink comes first"
        self.node_ports[number] = free_port(0)
        options = ["--superlink", f"{HOST}:{self.port}", "--root-certificates", str(authority or self.certificates[0])]
        options += ["--auth-supernode-private-key", str(key or self.folder / "keys" / f"node-{number}")]
        options += ["--host", HOST, "--port", str(self.node_ports[number])]
        settings = (
            f"partition-id={number} num-partitions={self.nodes}"
            f' accord-state="{self.folder / "state" / f"node-{number}"}"'
        )
        return self._start(f"node-{number}", "flower-supernode", [*options, "--node-config", settings])

    def kill(self, name: str) -> None:
        """Kills a process and all it started at once, as a machine that loses power."""
        process = self.processes.pop(name)
        for pid in [process.pid, *descendants([process.pid])]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Ends everything that was started here. Stopping twice does no harm."""
        started = [process.pid for process in self.processes.values()]
        family = descendants(started)  # now: an orphan has another parent
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        for pid, born in family.items():
            if born_at([pid]).get(pid) == born:  # not another process that got the number since
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)
            self._handler = None

    # ------------------------------------------------------------------------------------------------ running

    def run(
        self, settings: Mapping[str, Any] | None = None, timeout: float | None = None, tell: Tell | None = None
    ) -> int:
        """Runs the app with these of its settings changed, and gives the run's number once it has ended. Its log goes
        to `logs/run.log` and, as it is written, to `tell`."""
        number = self.submit(settings)
        self.wait(number, timeout, tell)
        return number

    def submit(self, settings: Mapping[str, Any] | None = None) -> int:
        """Starts a run of the app and gives its number."""
        chosen = [
            word for name, value in (settings or {}).items() for word in ("--run-config", f"{name}={json.dumps(value)}")
        ]
        return int(self._flwr_json("run", str(self.app), "loopback", *chosen)["run-id"])

    def wait(self, number: int, timeout: float | None = None, tell: Tell | None = None) -> None:
        """Waits until a run has ended; one that failed is an error that tells why, as far as its log does."""
        end = None if timeout is None else time.monotonic() + timeout
        # a run before it has its log there too
        begin = self._log("run").stat().st_size if self._log("run").exists() else 0
        log, text = self._start("run", "flwr", ["log", str(number), "loopback", "--stream"]), ""  # ends with the run
        with self._log("run").open(errors="replace") as written:
            written.seek(begin)
            while True:
                ended = log.poll() is not None  # before the last look, which then misses nothing
                fresh = written.read()
                text += fresh
                if tell and fresh:
                    tell(fresh)
                if ended:
                    break
                if end is not None and time.monotonic() >= end:
                    raise AccordError(f"the run did not end within {timeout:g} s; its log ends: {last_words(text)}")
                self._check_alive()
                time.sleep(0.2)
        self.processes.pop("run", None)
        status = str(self._flwr_json("list", "--run-id", str(number), "loopback")["runs"][0]["status"])
        if status != "finished:completed":
            raise AccordError(cause(text) or f"the run is {status}; its log ends: {last_words(text)}")

    # ------------------------------------------------------------------------------------------------ helpers

    def _environment(self) -> dict[str, str]:
        quick = {
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        # SuperLink and SuperNode start others by name.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {**os.environ, **quick, "FLWR_HOME": str(self.folder / "flwr"), "PATH": path}

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _start(self, name: str, program: str, options: Sequence[str]) -> "subprocess.Popen[bytes]":
        self._log(name).parent.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as log:
            # A session of its own: Ctrl-C reaches this process alone, which then stops the others in order.
            process = subprocess.Popen(
                [program_path(program), *options],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment(),
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def _flwr(self, *words: str) -> str:
        command = [program_path("flwr"), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment(), timeout=START_SECONDS)
        if done.returncode:
            raise AccordError(f"flwr {words[0]} failed: {last_words(done.stderr or done.stdout)}")
        return done.stdout

    def _flwr_json(self, *words: str) -> dict[str, Any]:
        """What a command of Flower's says in JSON. It may fail with a status of success."""
        answer: dict[str, Any] = json.loads(self._flwr(*words, "--format", "json"))
        if not answer.get("success"):
            raise AccordError(
                f"flwr {words[0]} failed: {last_words(str(answer.get('error-message', 'no reason given')))}"
            )
        return answer

    def _check_alive(self) -> None:
        superlink = self.processes.get("superlink")
        if superlink is None or superlink.poll() is not None:
            raise AccordError(f"the SuperLink has ended; its log ends: {tail(self._log('superlink'))}")

    def _await_superlink(self, authority: Path) -> None:
        end = time.monotonic() + START_SECONDS
        try:
            trust = ssl.create_default_context(cafile=str(authority))
        except (OSError, ssl.SSLError) as error:
            raise AccordError(f"{authority} is no certificate of an authority: {error}") from None
        while True:
            self._check_alive()
            try:
                with urllib.request.urlopen(f"https://{HOST}:{self.port}/health", timeout=2.0, context=trust):
                    return
            except (urllib.error.URLError, OSError) as error:
                if time.monotonic() >= end:
                    raise AccordError(
                        f"the SuperLink at {HOST}:{self.port} does not answer within {START_SECONDS:g} s: {error}"
                    ) from None
            time.sleep(0.1)


def _as_interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
