"""What both sides know: the model, and who owns which digits."""

from functools import cache

from flwr.app import Context
from torch import nn

import accord
from accord.data import Federation
from accord.deploy.flower import owned

CLIENTS, UNSEEN = 6, 2


@cache
def everybody() -> Federation:
    """All owners' digits. A real owner has its own and nothing else; here one data set plays them all."""
    return accord.data.digits(clients=CLIENTS, split="labels", unseen=UNSEEN, seed=0)


def mine(context: Context) -> Federation:
    """The digits of the owners that live on this node."""
    return owned(everybody(), int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))


def keys(files: str) -> dict[str, str]:
    """The public key that each owner's name is bound to: its node's. `files` has the nodes' by partition-id, separated
    by commas."""
    nodes = [file.strip() for file in files.split(",") if file.strip()]
    homes = {file: owned(everybody(), number, len(nodes)) for number, file in enumerate(nodes)}
    return {owner: file for file, home in homes.items() for owner in (*home.clients, *home.unseen)}


def model() -> nn.Module:
    return accord.models.shaped("mlp", everybody().shape, everybody().outputs, seed=0)
