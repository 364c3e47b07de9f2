"""The work of `benchmarks/bytes.py`: a model of a million parameters that is quick to train, and clients for Flower. A
module of its own, so that workers import it, instead of getting it with every message."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

import accord
from accord.data import Federation
from accord.deploy.flower import client_app, owned

SAMPLES, LR = 8, 0.05


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 1000), nn.Tanh(), nn.Linear(1000, 1000), nn.Tanh(), nn.Linear(1000, 4))


def federation(clients: int) -> Federation:
    generator = torch.Generator().manual_seed(1)
    x, y = (
        torch.randn(clients * SAMPLES, 6, generator=generator),
        torch.randint(0, 4, (clients * SAMPLES,), generator=generator),
    )
    rows = torch.arange(len(y)).split(SAMPLES)
    return accord.data.from_arrays({f"c{number:03d}": (x[own], y[own]) for number, own in enumerate(rows)}, heldout=0.0)


def mine(context: Context) -> Federation:
    number, of = (int(context.node_config[name]) for name in ("partition-id", "num-partitions"))
    return owned(federation(of), number, of)


def module(context: Context) -> nn.Module:
    return model()


accords = client_app(module, mine)  # accord's local training, for accord's strategy
plain = ClientApp()  # a client as Flower's tutorials write it, for Flower's strategies


@plain.train()
def train(message: Message, context: Context) -> Message:
    """One step on all of the client's samples."""
    net, fed = model(), mine(context)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    (rows,) = fed.train.values()
    x, y = fed.read(rows)
    loss = nn.functional.cross_entropy(net(x), y)
    for parameter, gradient in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
        parameter.data -= LR * gradient
    metrics = MetricRecord({"num-examples": len(rows)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)
