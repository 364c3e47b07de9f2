"""What runs in Flower's worker processes. A module of its own, so that workers import it once instead of unpickling it
with every message, and keep data and model between messages."""

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from naive import train as train_one_epoch
from torch import Tensor, nn

from contestants.protocol import Stored, stored

app = ClientApp()


@cache
def at_hand(name: str, folder: str) -> tuple[Stored, Tensor, Tensor, nn.Module]:
    work = stored(name, folder)
    return work, *work.data(), work.module()


@app.train()
def train(message: Message, context: Context) -> Message:
    """A client's epoch, by the naive loop's own function, on a float copy of the client's samples."""
    config = message.content["config"]
    work, x, y, model = at_hand(config["work"], config["folder"])
    client = int(context.node_config["partition-id"])
    mine = slice(client * work.samples, (client + 1) * work.samples)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    generator = torch.Generator().manual_seed(1_000_003 * int(config["server-round"]) + client)
    train_one_epoch(model, x[mine].float() / 255.0, y[mine], 0, work, generator)
    metrics = MetricRecord({"num-examples": work.samples, "threads": torch.get_num_threads()})
    return Message(
        content=RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message
    )
