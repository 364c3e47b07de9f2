"""Many rounds with real processes, in each of which some node misbehaves: bytes that are no answer, an answer that is
too late, an old one, one that is sent twice, a process that is killed and comes back.

    python benchmarks/soak.py [--rounds 50] [--latency 0.1 --loss 0.02] [--folder soak]

It needs an environment with Flower: `pip install '.[flower]'`. The faults are those of `soak_app/faulty/faults.py`; a
SuperLink with TLS and ten SuperNodes with keys, each a process (`soak_node.py`), run the app in `soak_app`. The last
model is compared, bit by bit, with that of a simulation that leaves out the same clients in the same rounds. With a
latency or a loss the nodes' connections go through a proxy that holds bytes back, and those of a lost packet until it
would have been sent again: what TCP makes of a bad line.
"""

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from soak_app.faulty.faults import CLIENTS, fault, killed
from soak_app.faulty.task import ALGORITHM, LR, everybody, model
from warm_deployment import WarmLoopback
from wire import Proxied, Proxy

import accord.deploy.flower.loopback as loopback
from accord.core.layout import Layout
from accord.core.losses import cross_entropy
from accord.engines.contract import ClientRow, Job, Member, Outcome, Part, Work, shards, whole
from accord.engines.sequential import Sequential
from accord.rules.local import Training
from accord.training.loop import Loop
from accord.training.plan import Plan

HERE = Path(__file__).resolve().parent
PACKET, AGAIN_AFTER = 1448, 0.3  # bytes of a TCP packet, and seconds until a lost one was sent again
COMES_BACK_AFTER = 5.0  # seconds between two tries: Flower refuses a key for a minute after its node was lost


# ------------------------------------------------------------------------------------------------- a bad line


class BadLine(Proxy):
    """Passes bytes on `latency` seconds later, or later still if one of their packets is lost."""

    def __init__(self, target: int, latency: float, loss: float) -> None:
        self.latency, self.loss, self.held, self._draws = latency, loss, 0, random.Random(0)
        super().__init__(target)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        sender = asyncio.create_task(self._send(waiting, writer))
        last = 0.0
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                packets = -(-len(data) // PACKET)
                lost = self._draws.random() > (1 - self.loss) ** packets
                self.held += lost
                last = max(last, time.monotonic() + self.latency + (AGAIN_AFTER if lost else 0.0))
                await waiting.put((last, data))
        await waiting.put((last, b""))
        await sender

    async def _send(self, waiting: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        alive = True
        while (item := await waiting.get())[1]:
            await asyncio.sleep(max(0.0, item[0] - time.monotonic()))
            try:
                if alive:
                    writer.write(item[1])
                    await writer.drain()
            except OSError:  # the other side hung up: what is left goes nowhere
                alive = False
        writer.close()


# ----------------------------------------------------------------------------------------------- the deployment


class Soaked(WarmLoopback, Proxied):
    """A deployment whose nodes are those of `soak_node.py`, forked from a warm process as its apps are."""

    def __init__(self, folder: Path, latency: float, loss: float) -> None:
        super().__init__(HERE / "soak_app", CLIENTS, folder=folder)
        self.latency, self.loss = latency, loss
        usual = loopback.program_path
        loopback.program_path = lambda program: (
            str(own) if (own := self.programs / program).exists() else usual(program)
        )

    def scripts(self, warm: str) -> dict[str, str]:
        more = {name: f'{warm} {name} "$@"' for name in ("flwr", "flower-supernode")}
        # the SuperLink's own, which has certificates, is watched by it
        usual = f'exec {Path(sys.executable).parent / "flower-superexec"} "$@"'
        more["flower-superexec"] = f'case "$*" in *--insecure*) {warm} flower-superexec "$@";; *) {usual};; esac'
        return {**super().scripts(warm), **more}

    def _environment(self) -> dict[str, str]:
        found = super()._environment()
        paths = [str(HERE.parent / "src"), found.get("PYTHONPATH", "")]
        return {**found, "PYTHONPATH": ":".join(filter(None, paths)), "OMP_NUM_THREADS": "1"}

    def make_proxy(self) -> Proxy | None:
        return BadLine(self.port, self.latency, self.loss) if self.latency or self.loss else None


class Faults(threading.Thread):
    """Kills nodes while they are at work in the rounds that are due, and starts what has ended again."""

    def __init__(self, federation: Soaked, runs: Path) -> None:
        super().__init__(daemon=True)
        self.federation, self.runs, self.over = federation, runs, threading.Event()
        self.kills: list[tuple[int, int]] = []  # (round, node)
        self.tries = 0
        self._ended: dict[int, float] = {}

    def run(self) -> None:
        while not self.over.wait(0.2):
            number = len(rows_of(self.runs)) + 1
            node = killed(number)
            if node is not None and number not in dict(self.kills) and self._at_work(node, number):
                self.federation.kill(f"node-{node}")
                self.kills.append((number, node))
                print(f"round {number}: killed node {node}", flush=True)
            self._revive()

    def _at_work(self, node: int, number: int) -> bool:
        """Whether it has received this round's task; one that is away cannot be killed."""
        log = self.federation._log(f"node-{node}")
        text = log.read_text(errors="replace").rsplit(f"ROUND {number}]", 1)
        return (
            len(text) == 2
            and "Receiving: train" in text[1]
            and self.federation.processes.get(f"node-{node}") is not None
        )

    def _revive(self) -> None:
        for node in range(CLIENTS):
            process = self.federation.processes.get(f"node-{node}")
            if process is not None and process.poll() is None:
                self._ended.pop(node, None)
                continue
            if time.monotonic() - self._ended.setdefault(node, time.monotonic()) > COMES_BACK_AFTER:
                if process is not None:
                    self.federation.kill(f"node-{node}")  # what it had started, if anything is left of it
                self.tries += 1
                self.federation.start_node(node)
                self._ended.pop(node)


def rows_of(runs: Path) -> list[dict[str, Any]]:
    lines = [line for file in runs.glob("*/metrics.jsonl") for line in file.read_text().splitlines(True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


# ----------------------------------------------------------------------------------------------- the simulation


class LeavingOut(Sequential):
    """An engine that trains whom the deployment heard of, round by round, and adds them up in its order."""

    def __init__(self, job: Job, out: Mapping[int, Mapping[str, str]]) -> None:
        super().__init__(job)
        self.out = out

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        return whole(self.job.algorithm, (self._part(work, shard) for shard in shards(cohort)))

    def _part(self, work: Work, shard: Sequence[Member]) -> Part:
        out = self.out.get(work.round, {})
        part = self.train_shard(work, [member for member in shard if member.client not in out])
        rows = {row.client: row for row in part.rows}
        missing = {client: ClientRow(client, 0, 0, 0.0, 0.0, left_out_because=why) for client, why in out.items()}
        return Part(part.record, [(rows | missing)[member.client] for member in shard], part.kept)


def simulated(rows: Sequence[Mapping[str, Any]]) -> torch.nn.Module:
    """The last model of a simulation without those that the deployment left out."""
    torch.set_num_threads(1)  # as the nodes have: with more, sums have other last bits
    module, fed = model(), everybody()
    training, plan = Training(lr=LR), Plan(rounds=len(rows), evaluate_every=len(rows))
    layout, cpu = Layout.of(module), torch.device("cpu")
    job = Job(module, layout, fed, ALGORITHM, training, cross_entropy, {}, plan.seed, cpu)
    loop = Loop(job, plan, LeavingOut(job, {row["round"]: row["left_out"] for row in rows}), None, [])
    return loop.go().model()


# ---------------------------------------------------------------------------------------------------- the table


def reason(why: str, number: int, client: str) -> str:
    """What a client was left out for, in few words."""
    planned = fault(number, everybody().clients.index(client))
    if "excluded" in why:
        return "excluded after three bad replies"
    if "cannot be read" in why or "wrong" in why or "NaN" in why:
        return f"{planned or 'not planned'}: its reply does not fit"
    if "no reply" in why:
        return "slow: no reply in time" if planned == "slow" else "killed, or the machine too slow: no reply in time"
    return "not connected" if "not connected" in why else f"not planned: {why}"


def table(
    rows: Sequence[Mapping[str, Any]], faults: Faults, seconds: float, equal: bool, logs: Path
) -> list[tuple[str, str]]:
    sent = Counter[str]()
    for log in logs.glob("node-*.log"):
        for line in log.read_text(errors="replace").splitlines():
            if "soak: " in line:
                sent[" ".join(line.split("soak: ")[1].split()[:2])] += 1
    clients = everybody().clients
    back = [
        any(row["round"] > number and clients[node] not in row["left_out"] for row in rows)
        for number, node in faults.kills
    ]
    reasons = Counter(reason(why, row["round"], client) for row in rows for client, why in row["left_out"].items())
    asked, accepted = sum(row["invited"] for row in rows), sum(row["accepted"] for row in rows)
    lost = asked - accepted - sum(reasons.values())
    figures = [("rounds", f"{len(rows)}"), ("replies asked for", f"{asked}"), ("accepted", f"{accepted}")]
    figures += [(f"left out, {why}", f"{count}") for why, count in sorted(reasons.items())]
    figures += [("neither accepted nor named", f"{lost}")]
    figures += [("nodes killed at work, and came back", f"{len(back)}, {sum(back)}")]
    figures += [(f"on the wire, {what}", f"{count}") for what, count in sorted(sent.items())]
    figures += [
        ("bytes down, up", f"{sum(r['bytes_down'] for r in rows):,}, {sum(r['bytes_up'] for r in rows):,}"),
        ("seconds", f"{seconds:.0f}"),
        ("the last model is that of the simulation without them, bit for bit", "yes" if equal else "no"),
    ]
    return figures


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--timeout", type=float, default=20.0, help="seconds that a node has to answer")
    options.add_argument("--latency", type=float, default=0.0, help="seconds, each way")
    options.add_argument("--loss", type=float, default=0.0, help="share of packets")
    options.add_argument("--folder", type=Path, default=Path("soak"))
    asked = options.parse_args()
    runs = asked.folder.resolve() / "runs"
    with Soaked(asked.folder, asked.latency, asked.loss) as federation:
        print(f"SuperLink and {CLIENTS} SuperNodes; logs in {asked.folder / 'logs'}", flush=True)
        faults = Faults(federation, runs)
        faults.start()
        started = time.monotonic()
        settings = {"rounds": asked.rounds, "folder": str(runs), "timeout": asked.timeout}
        try:
            federation.run(settings, tell=lambda text: print(text, end="", flush=True))
        finally:
            faults.over.set()
            faults.join()
        seconds = time.monotonic() - started
    rows = rows_of(runs)
    (recorded,) = runs.glob("*/model.safetensors")
    weights, expected = load_file(recorded), simulated(rows).state_dict()
    equal = all(torch.equal(weights[name], value) for name, value in expected.items())
    figures = table(rows, faults, seconds, equal, federation.folder / "logs")
    print("\n| what | figure |\n|---|---|")
    for what, figure in figures:
        print(f"| {what} | {figure} |")
    (asked.folder / "table.json").write_text(json.dumps(figures, indent=1))
    return 0 if equal and dict(figures)["neither accepted nor named"] == "0" and len(rows) == asked.rounds else 1


if __name__ == "__main__":
    raise SystemExit(main())
