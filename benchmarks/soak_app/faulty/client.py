"""An honest client, and around it what a registered node may do: answer too late, with what it answered in an earlier
round, or with bytes that are no answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import Array, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from accord.deploy.flower import client_app, owned

from .faults import CLIENTS, fault
from .task import everybody, model

honest = client_app(model(), lambda context: owned(everybody(), int(context.node_config["partition-id"]), CLIENTS))
app = ClientApp()
app.query()(honest)
app.query("statistics")(honest)
app.evaluate()(honest)
app.train("again")(honest)


@app.train()
def train(message: Message, context: Context) -> Message:
    task = json.loads(message.content["accord"]["json"])
    kind = fault(task["round"], everybody().clients.index(task["client"]))
    reply = honest(message, context)
    if kind == "slow":
        time.sleep(float(context.run_config["timeout"]) + 5.0)
    if kind == "tampered":
        return TAMPERINGS[task["round"] % len(TAMPERINGS)](reply)
    kept = Path(str(context.node_config["accord-state"])) / "an-old-reply.npy"
    if kind == "replay" and kept.exists():
        told, delta = json.loads(kept.with_suffix(".json").read_text()), np.load(kept)
        reply.content["accord"] = ConfigRecord({**reply.content["accord"], "json": json.dumps(told)})
        reply.content.array_records["record"]["average.delta"] = Array(delta)
    elif kind is None and not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.with_suffix(".json").write_text(str(reply.content["accord"]["json"]))
        np.save(kept, reply.content.array_records["record"]["average.delta"].numpy())
    return reply


# -------------------------------------------------------------------------------------------------- tamperings


def words(change: Callable[[str], str]) -> Callable[[Message], Message]:
    def tamper(reply: Message) -> Message:
        reply.content["accord"]["json"] = change(str(reply.content["accord"]["json"]))
        return reply

    return tamper


def delta(change: Callable[[Array], Array]) -> Callable[[Message], Message]:
    def tamper(reply: Message) -> Message:
        record = reply.content.array_records["record"]
        record["average.delta"] = change(record["average.delta"])
        return reply

    return tamper


def bytes_of(change: Callable[[bytes], bytes]) -> Callable[[Message], Message]:
    return delta(lambda old: Array(old.dtype, old.shape, old.stype, change(old.data)))


def nothing(reply: Message) -> Message:
    reply.content = RecordDict()
    return reply


TAMPERINGS = [
    words(lambda text: text[: len(text) // 2]),
    words(lambda text: "[" * 100_000),
    words(lambda text: text.replace('"samples": ', '"samples": 1e999, "more": ')),
    words(lambda text: text.replace('"steps": ', '"steps": -')),
    bytes_of(lambda data: data[: len(data) // 2]),
    bytes_of(lambda data: data[:60] + bytes([data[60] ^ 0x40]) + data[61:]),
    bytes_of(lambda data: data.replace(b"(50890,)", b"(9999999999999,)"[:8])),
    bytes_of(lambda data: b"\x00" * len(data)),
    delta(lambda old: Array(old.numpy().astype("complex64"))),
    delta(lambda old: Array(np.full(1, "text"))),
    nothing,
]
