"""Deals one data set to participating and unseen clients, and cuts a participating client's rows into training and held-out."""

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord import draws
from accord.data.federated import AsIs, Federation, Prepare, Rows
from accord.data.partition import SPLITS, Parts
from accord.errors import AccordError, check_whole


def deal(
    x: Tensor,
    y: Tensor,
    *,
    split: str = "iid",
    clients: int = 100,
    unseen: int = 0,
    heldout: float = 0.1,
    seed: int = 0,
    test: Tensor | None = None,
    prepare: Prepare | None = None,
    name: str = "data",
    **split_options: Any,
) -> Federation:
    """A federation of `clients` participating and `unseen` further clients over every row that is not a `test` row.

    All clients come from one split, so unseen ones differ from participating ones as those differ from each other.

    >>> fed = deal(torch.zeros(100, 4), torch.arange(100) % 10, split="labels", clients=8, unseen=2, classes=3)
    >>> len(fed.train), len(fed.unseen), len(fed.heldout["client-007"])
    (8, 2, 1)
    """
    check_counts(clients, unseen)
    dealt = np.ones(len(y), dtype=bool)
    if test is not None:
        dealt[test.numpy()] = False
    rows = np.flatnonzero(dealt)
    parts = _split(split, split_options, y.numpy()[rows], clients + unseen, seed)
    width = max(3, len(str(clients + unseen - 1)))
    owned = {f"client-{number:0{width}d}": torch.from_numpy(rows[part]) for number, part in enumerate(parts)}
    names = list(owned)
    apart = {names[i] for i in draws.choose(len(names), unseen, seed, "partition", "unseen")}
    return assemble(x, y, owned, apart, heldout=heldout, seed=seed, test=test, prepare=prepare, name=name)


def _split(split: str, options: Mapping[str, Any], y: np.ndarray, clients: int, seed: int) -> Parts:
    if split not in SPLITS:
        raise AccordError(f"there is no split {split!r}: the splits are {', '.join(SPLITS)}")
    takes = [name for name in inspect.signature(SPLITS[split]).parameters if name not in ("y", "clients", "seed")]
    for option in options:
        if option not in takes:
            raise AccordError(f"split {split!r} takes {' and '.join(takes) or 'no options'}, not {option}")
    return SPLITS[split](y, clients, seed, **options)


def check_counts(clients: int, unseen: int) -> None:
    """Both are whole numbers, and somebody is left to train."""
    check_whole("clients", clients)
    check_whole("unseen", unseen, least=0)


def assemble(
    x: Tensor,
    y: Tensor,
    owned: Rows,
    apart: set[str],
    *,
    heldout: float,
    seed: int,
    test: Tensor | None,
    prepare: Prepare | None,
    name: str,
) -> Federation:
    """A federation of the clients that own rows: those `apart` are unseen, the others hold out a share of theirs."""
    train, held = cut_heldout({client: rows for client, rows in owned.items() if client not in apart}, heldout, seed)
    unseen = {client: rows for client, rows in owned.items() if client in apart}
    return Federation(x, y, train, held, unseen, test, prepare or AsIs(), name)


def cut_heldout(owned: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Training and held-out rows of each client. A client always keeps a row to train on; with a share of 0 nobody holds out."""
    if not 0 <= share < 1:
        raise AccordError(f"heldout must be at least 0 and below 1, got {share}: it is the share of its rows a client holds out")
    train, held = {}, {}
    for client, rows in owned.items():
        count = max(0, min(math.floor(share * len(rows) + 0.5), len(rows) - 1))
        away = torch.zeros(len(rows), dtype=torch.bool)
        away[torch.from_numpy(draws.choose(len(rows), count, seed, "partition", "heldout", client))] = True
        train[client], held[client] = rows[~away], rows[away]
    return train, held if share > 0 else {}
