"""The page served to this machine alone, while runs go on."""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.report.data import gather, look
from accord.report.page import page, policy
from accord.runs.reader import Recorded, load

HERE = "127.0.0.1"
_FILES = ("experiment.json", "metrics.jsonl", "clients.json", "done")


class Watched:
    """Folders under observation. A run is read again only when its files have changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._read: dict[Path, tuple[object, Recorded]] = {}
        self._stamp: object = None
        self._lock = threading.Lock()
        self._data = gather(look(paths, waiting=True), self._run)  # a path that is not there is told of now

    def data(self) -> dict[str, Any]:
        """The data of this moment; the same as before as long as no file has changed."""
        with self._lock:
            try:
                sources = look(self._paths, waiting=True)
                stamp = [*map(_stamp, sources.runs), *map(_stamp, [*sources.results, *sources.choices])]
                if stamp != self._stamp:
                    self._data, self._stamp = gather(sources, self._run), stamp
            except (AccordError, OSError):
                # Runs are being started over: what was there last is shown until they are there again.
                self._stamp = None
            return self._data

    def _run(self, folder: Path) -> Recorded:
        stamp = _stamp(folder)
        if folder not in self._read or self._read[folder][0] != stamp:
            self._read[folder] = (stamp, load(folder))
        return self._read[folder][1]


def _stamp(path: Path) -> tuple[object, ...]:
    """What changes when a run, or a file of results, is written to."""
    stats = [(file, file.stat()) for file in (path, *(path / name for name in _FILES)) if file.exists()]
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in stats)


def serve(paths: Sequence[Path], port: int, tell: Callable[[str], None]) -> None:
    """Serves the page until Ctrl-C. A port that is taken is replaced by a free one, and said so."""
    watched = Watched(paths)
    try:
        server = _Server(port, watched)
    except OSError as error:
        server = _Server(0, watched)
        tell(
            f"Port {port} cannot be had ({(error.strerror or str(error)).lower()}): port {server.server_port} is taken"
            " instead."
        )
    tell(f"http://{HERE}:{server.server_port}/  (Ctrl-C stops)")
    with server:
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            tell("Stopped.")


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a browser that keeps its connection open does not keep the command from ending

    def __init__(self, port: int, watched: Watched) -> None:
        self.watched = watched
        super().__init__((HERE, port), _Answer)


class _Answer(BaseHTTPRequestHandler):
    """Two addresses: the page, and its data."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        # A page of somebody else's may send a browser here under a name of its own: only this machine's own names are
        # answered.
        if self.headers.get("Host") not in {f"{name}:{self.server.server_port}" for name in (HERE, "localhost")}:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"only for this machine")
        elif self.path == "/":
            self._send(HTTPStatus.OK, "text/html", page(self.server.watched.data(), live=True).encode())
        elif self.path == "/data.json":
            content = json.dumps({**self.server.watched.data(), "live": True}).encode()
            tag = f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"'
            if self.headers.get("If-None-Match") == tag:
                self._send(HTTPStatus.NOT_MODIFIED, "application/json", b"", tag)
            else:
                self._send(HTTPStatus.OK, "application/json", content, tag)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is nothing here")

    def _send(self, status: HTTPStatus, kind: str, content: bytes, tag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", f"{policy(live=True)}; frame-ancestors 'none'")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for every look at the data would bury the address."""
