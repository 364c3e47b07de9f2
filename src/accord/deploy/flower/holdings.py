"""What a node has when one data set plays a whole federation, or when its clients never train."""

from dataclasses import replace

import torch

from accord.core.errors import AccordError
from accord.data.federated import Federation
from accord.deploy.flower.wire import SPLITS


def owned(fed: Federation, number: int, of: int) -> Federation:
    """What node `number` of `of` owns when one data set plays a whole federation: every `of`-th client, unseen ones
    among them, and nobody else's rows. For examples and tests; a real owner has a federation of its own."""
    if not 0 <= number < of:
        raise AccordError(f"a node's number must be at least 0 and below {of}, got {number}")
    mine = set([*fed.clients, *fed.unseen][number::of])
    train, heldout, unseen = ({c: rows for c, rows in getattr(fed, split).items() if c in mine} for split in SPLITS)
    return replace(fed, train=train, heldout=heldout, unseen=unseen, test=None, others={})


def as_unseen(fed: Federation) -> Federation:
    """What a node has whose clients never train: all of their rows, to evaluate models on."""
    clients = {c: [rows, fed.heldout.get(c, rows[:0])] for c, rows in fed.train.items()}
    theirs = {client: torch.cat(rows).sort().values for client, rows in clients.items()}
    return replace(fed, train={}, heldout={}, unseen={**theirs, **fed.unseen})
