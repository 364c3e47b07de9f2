"""Clients that are unseen by name: those that a federation is told of, and those that are taken out of one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import torch

from accord.core.errors import AccordError, did_you_mean, nearest
from accord.data.federated import Federation
from accord.data.preparation import refitted

EACH: Literal["each"] = "each"  # in place of names: every client in turn
_LISTED = 20  # clients that a sentence names


def check_named(named: str | Sequence[str | int], clients: Sequence[str], of: str) -> list[str]:
    """The clients that are to be unseen, in the order of all `clients`, once they are seen to be among these and not
    all of them."""
    if not isinstance(named, Iterable):
        raise AccordError(f"unseen must be a whole number or names of clients, got {named!r}")
    wanted = [named] if isinstance(named, str) else [str(client) for client in named]
    for client in wanted:
        if client not in clients:
            raise AccordError(
                f"unseen names client {client!r}, which is not among the {len(clients)} clients of {of}:"
                f" {_meant(client, clients)}"
            )
    unseen = [client for client in clients if client in set(wanted)]
    if len(unseen) == len(clients):
        raise AccordError(
            f"unseen names all {len(clients)} clients of {of} and leaves nobody to train: at least one must participate"
        )
    return unseen


def _meant(client: str, clients: Sequence[str]) -> str:
    close = nearest(client, clients)
    if close is None and client == EACH:
        return "accord.leave_one_out leaves out each of them in turn"
    return did_you_mean(client, clients[:_LISTED] if close is None else [close])


def check_each(clients: Sequence[str], of: str) -> None:
    """Refuses to leave out each client in turn where fewer than two would be left: one client is no federation."""
    if len(clients) < 3:
        names = ", ".join(clients)
        raise AccordError(
            f"unseen = 'each' needs at least 3 clients, so that two or more train, and {of} has {len(clients)}: {names}"
        )


def as_count(unseen: int | str | Sequence[str] | None, split: str) -> int:
    """How many clients are unseen, of those that a split makes up: their names mean nothing."""
    if unseen is None or isinstance(unseen, int):
        return unseen or 0
    raise AccordError(
        f"unseen names clients, got {unseen!r}, and those of split {split!r} are made up: give a number, or split ="
        " 'natural' where data come with owners"
    )


def leave_out(fed: Federation, clients: str | Iterable[str]) -> Federation:
    """The same federation with these of its participating clients unseen, whatever was unseen before. Nothing of theirs
    is left in training: preparation that was fitted to the training clients is fitted again, to those who remain.

    >>> fed = accord.data.from_samples([[0.0], [1.0], [2.0]], [0, 1, 1], ["a", "b", "b"])
    >>> leave_out(fed, "b").unseen
    {'b': tensor([1, 2])}
    """
    unseen = check_named([clients] if isinstance(clients, str) else list(clients), fed.clients, fed.name)
    train = {client: rows for client, rows in fed.train.items() if client not in unseen}
    heldout = {client: rows for client, rows in fed.heldout.items() if client not in unseen}
    theirs = {client: [fed.train[client], fed.heldout.get(client, fed.train[client][:0])] for client in unseen}
    rest = replace(
        fed,
        train=train,
        heldout=heldout,
        unseen={client: torch.cat(rows).sort().values for client, rows in theirs.items()},
    )
    return refitted(rest, fed)
