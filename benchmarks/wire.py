"""Bytes that a deployment with Flower sends: the example over TLS on this machine, counted between SuperNodes and
SuperLink by a proxy.

    python benchmarks/wire.py [--algorithms fedavg,scaffold] [--rounds 4]

It needs an environment with Flower: `pip install '.[flower]'`. The proxy passes bytes on and knows nothing of
them, so TLS, HTTP, heartbeats and the questions of idle nodes are counted. Rounds have no evaluation; the first of
them, in which nodes are asked for their clients, is left out, and so is the last, which an evaluation follows.
"""

import argparse
import asyncio
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

from accord.deploy.flower.loopback import Loopback
from accord.deploy.flower.machine import HOST

APP = Path(__file__).resolve().parents[1] / "examples" / "flower"


class Proxy:
    """Listens at `port` and passes on to `target`, in a thread of its own, for as long as this process lives."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, 0
        self.up = self.down = 0
        ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True).start()
        ready.wait()

    async def _serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target)
        except OSError:  # the SuperLink has ended before its nodes
            writer.close()
            return
        await asyncio.gather(self._pass(reader, far_writer, "up"), self._pass(far_reader, writer, "down"))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        try:
            while data := await reader.read(1 << 16):
                setattr(self, way, getattr(self, way) + len(data))
                writer.write(data)
                await writer.drain()
        except OSError:  # either side hung up
            pass
        finally:
            writer.close()


class Proxied(Loopback):
    """A deployment whose SuperNodes reach the SuperLink through a proxy."""

    proxy: Proxy | None = None

    def make_proxy(self) -> Proxy | None:
        """None: nodes connect straight."""
        return Proxy(self.port)

    def start_node(self, number: int, **options: Any) -> Any:
        self.proxy = self.proxy or self.make_proxy()
        real = self.port
        self.port = real if self.proxy is None else self.proxy.port
        try:
            return super().start_node(number, **options)
        finally:
            self.port = real


def counted(federation: Proxied, algorithm: str, rounds: int, folder: Path) -> list[tuple[int, int, int, int]]:
    """For every round but the first and the last: payload down and up, and bytes on the wire down and up."""
    proxy = federation.proxy
    assert proxy is not None
    number = federation.submit(
        {"rounds": rounds, "algorithm": algorithm, "evaluate-every": rounds + 1, "folder": str(folder)}
    )
    ends: list[tuple[int, int]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            rows = sum(len(file.read_text().splitlines()) for file in folder.glob("*/metrics.jsonl"))
            ends.extend([(proxy.down, proxy.up)] * (rows - len(ends)))

    threading.Thread(target=watch, daemon=True).start()
    try:
        federation.wait(number)
    finally:
        ended.set()
    rows = [json.loads(line) for file in folder.glob("*/metrics.jsonl") for line in file.read_text().splitlines()]
    found = []
    for row, before, after in zip(rows[1:-1], ends, ends[1:], strict=False):
        found.append((row["bytes_down"], row["bytes_up"], after[0] - before[0], after[1] - before[1]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default="fedavg,scaffold")
    parser.add_argument("--rounds", type=int, default=4)
    asked = parser.parse_args()
    if asked.rounds < 3:
        parser.error(f"rounds must be at least 3, got {asked.rounds}: the first and the last do not count")
    print("algorithm     payload down    payload up     wire down       wire up")
    with tempfile.TemporaryDirectory() as folder, Proxied(APP, 3, folder=Path(folder)) as federation:
        for algorithm in asked.algorithms.split(","):
            for counts in counted(federation, algorithm, asked.rounds, Path(folder) / "runs" / algorithm):
                print(f"{algorithm:12s}" + "".join(f"{count:14,d}" for count in counts), flush=True)


if __name__ == "__main__":
    main()
