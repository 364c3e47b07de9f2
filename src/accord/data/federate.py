"""Gives one data set to participating and unseen clients, and cuts a participating client's rows into training and
held-out.

`deal` makes clients up by a split of the labels; `natural` takes the people the samples came from.
"""

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError, check_whole
from accord.core.metrics import TITLES
from accord.data.federated import AsIs, Federation, Prepare, Rows, Shifted
from accord.data.partition import SPLITS, Parts
from accord.data.samples import Samples
from accord.data.shift import Shift
from accord.data.unseen import check_named


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
    share: float = 1.0,
    **split_options: Any,
) -> Federation:
    """A federation of `clients` participating and `unseen` further clients over every row that is not a `test` row, or
    a `share` of these.

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
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise AccordError(
            f"share must be above 0 and at most 1, got {share!r}: it is the part of the data that clients get"
        )
    if share < 1:
        rows = rows[np.sort(draws.choose(len(rows), round(share * len(rows)), seed, "partition", "share"))]
    parts = _split(split, split_options, y.numpy()[rows], clients + unseen, seed)
    width = max(3, len(str(clients + unseen - 1)))
    owned = {f"client-{number:0{width}d}": torch.from_numpy(rows[part]) for number, part in enumerate(parts)}
    names = list(owned)
    apart = {names[i] for i in draws.choose(len(names), unseen, seed, "partition", "unseen")}
    return assemble(x, y, owned, apart, heldout=heldout, seed=seed, test=test, prepare=prepare, name=name)


def _split(split: str, options: Mapping[str, Any], y: np.ndarray, clients: int, seed: int) -> Parts:
    if split not in SPLITS:
        raise AccordError(
            f"there is no split {split!r}: the splits are {', '.join(SPLITS)}, and natural where data come with owners"
        )
    takes = [name for name in inspect.signature(SPLITS[split]).parameters if name not in ("y", "clients", "seed")]
    check_options(options, takes, split)
    return SPLITS[split](y, clients, seed, **options)


def check_options(options: Collection[str], takes: Sequence[str], split: str) -> None:
    """Refuses what a split cannot be told."""
    for option in options:
        if option not in takes:
            raise AccordError(f"split {split!r} takes {' and '.join(takes) or 'no options'}, not {option}")


def natural(
    samples: Samples,
    *,
    clients: int | None = None,
    unseen: int | Sequence[str] | None = None,
    population: str | None = None,
    heldout: float = 0.1,
    seed: int = 0,
    prepare: Prepare | None = None,
    name: str = "data",
) -> Federation:
    """A federation of the people the samples came from: `clients` of them participate, others are unseen.

    Where some are there to be tested on (the writers of MNIST's test set), those are the unseen ones; with a
    `population`, its members alone participate, and everybody else is unseen. Left out, `clients` is everybody who may
    participate, less the `unseen` asked for, and `unseen` everybody who may be: those set apart, or, where nobody is,
    those who do not participate. `unseen` may also name clients, and then nobody else is.
    """
    owned = _owned(samples, name)
    pool = may_participate(samples, population, name)
    if unseen is None or isinstance(unseen, int):
        others = [client for client in owned if client not in set(pool)]
        taking_part, apart = _counted(pool, others, clients, unseen, seed, name)
    else:
        apart = check_named(unseen, list(owned), name)
        pool = [client for client in pool if client not in set(apart)]
        if not pool:
            raise AccordError(f"unseen leaves nobody of {name} to train: at least one client must participate")
        count = len(pool) if clients is None else clients
        check_counts(count, 0)
        taking_part = _drawn(pool, count, seed, "clients", f"clients of {name} may participate")
    test = samples.test
    if test is not None and samples.owner is not None:
        test = test[samples.owner[test] < 0]  # a test sample with an owner is one of that owner's
    fed = assemble(
        samples.x,
        samples.y,
        {client: owned[client] for client in [*taking_part, *apart]},
        set(apart),
        heldout=heldout,
        seed=seed,
        test=test if test is not None and len(test) else None,
        prepare=prepare,
        name=name,
    )
    populations = {c: samples.populations[c] for c in [*taking_part, *apart] if c in samples.populations}
    return replace(fed, populations=populations, classes=samples.classes)


def may_participate(samples: Samples, population: str | None, name: str) -> list[str]:
    """The natural clients that are not there to be tested on; with a population, its members alone."""
    pool = [client for client in _owned(samples, name) if client not in samples.apart]
    if population is not None:
        groups = sorted(set(samples.populations.values()))
        if population not in groups:
            known = f"one of {', '.join(groups)}" if groups else f"left out: {name} has none"
            raise AccordError(f"population must be {known}, got {population!r}")
        pool = [client for client in pool if samples.populations[client] == population]
    if not pool:
        raise AccordError(
            f"nobody can participate: every sample of {name} is in a test set, or of a client that is there to be"
            " tested on"
        )
    return pool


def _counted(
    pool: list[str], others: list[str], clients: int | None, unseen: int | None, seed: int, name: str
) -> tuple[list[str], list[str]]:
    """Who participates, and who is unseen, where only their numbers are given, if anything is."""
    if clients is None:
        clients = len(pool) if others else len(pool) - (unseen or 0)
        if clients < 1:
            raise AccordError(
                f"unseen must be at most {len(pool) - 1}, got {unseen}: one of the {len(pool)} clients must participate"
            )
    check_counts(clients, unseen or 0)
    taking_part = _drawn(pool, clients, seed, "clients", f"clients of {name} may participate")
    away = others or [client for client in pool if client not in set(taking_part)]
    if unseen is None:
        return taking_part, away
    return taking_part, _drawn(away, unseen, seed, "unseen", f"clients of {name} are left to be unseen")


def _owned(samples: Samples, name: str) -> Rows:
    """Every natural client's rows, ascending."""
    if samples.owner is None:
        raise AccordError(
            f"split 'natural' needs data that say who they come from, and {name} does not: the splits are"
            f" {', '.join(SPLITS)}"
        )
    order = torch.argsort(samples.owner, stable=True)
    counts = torch.bincount(samples.owner[samples.owner >= 0], minlength=len(samples.owners)).tolist()
    nobody = int((samples.owner < 0).sum())
    parts = dict(zip(samples.owners, order[nobody:].split(counts), strict=True))
    for client, rows in parts.items():
        if not len(rows):
            raise AccordError(f"client {client} of {name} has no samples")
    return parts


def _drawn(names: Sequence[str], count: int, seed: int, key: str, what: str) -> list[str]:
    if count > len(names):
        raise AccordError(f"{key} must be at most {len(names)}, got {count}: so many {what}")
    return [names[i] for i in draws.choose(len(names), count, seed, "partition", f"natural {key}")]


def shifted(fed: Federation, shift: Shift, seed: int) -> Federation:
    """The federation with every owner's samples shifted its own way, and the test sets yet another way."""
    if fed.x.ndim != 4 or (shift.channels is not None and fed.x.shape[1] != 1):
        raise AccordError(
            f"shift {type(shift).__name__} needs grey pictures, and {fed.name} holds samples of shape"
            f" {tuple(fed.x.shape[1:])}"
        )
    if shift.channels is not None and fed.x.dtype != torch.uint8:
        raise AccordError(
            f"shift {type(shift).__name__} needs pixels from 0 to 255 (uint8), and those of {fed.name} are"
            f" {fed.x.dtype}"
        )
    if fed.y.is_floating_point():
        raise AccordError(
            f"shift {type(shift).__name__} goes by class, and the targets of {fed.name} are numbers, not classes"
        )
    owners = [*fed.train, *fed.unseen]
    owner = torch.full((len(fed.y),), len(owners))
    for number, client in enumerate(owners):
        for rows in (fed.train, fed.heldout, fed.unseen):
            owner[rows.get(client, [])] = number
    y = shift.relabel(fed.y)
    tables = shift.tables(owners, int(y.max()) + 1, seed)
    return replace(fed, y=y, shift=Shifted(shift, owner, tables), classes=fed.classes if y is fed.y else ())


def with_tests(fed: Federation, tests: Mapping[str, Samples]) -> Federation:
    """The federation with further test sets, which come from other places than its own data: another country, another
    scanner."""
    others, first = {}, len(fed.y)
    for name, test in tests.items():
        # figures stand side by side under these names, and one would be shown for the other
        if name in ("train", "heldout", "unseen") or (name == "test" and fed.test is not None):
            raise AccordError(f"test set {name} is called like the data's own {TITLES[name]} data: rename its file")
        if (test.x.shape[1:], test.x.dtype) != (fed.x.shape[1:], fed.x.dtype):
            raise AccordError(
                f"test set {name} holds {test.x.dtype} samples of shape {tuple(test.x.shape[1:])}, but {fed.name} "
                f"{fed.x.dtype} of shape {tuple(fed.x.shape[1:])}: they must be alike"
            )
        # joined, they would turn everybody's classes into numbers
        if test.y.is_floating_point() and not fed.y.is_floating_point():
            raise AccordError(
                f"test set {name} has targets that are floats, but {fed.name} has classes: save its y as whole numbers"
            )
        others[name] = torch.arange(first, first + len(test.y))
        first += len(test.y)
    if not tests:
        return fed
    x, y = [fed.x, *(test.x for test in tests.values())], [fed.y, *(test.y.to(fed.y.dtype) for test in tests.values())]
    return replace(fed, x=torch.cat(x), y=torch.cat(y), others=fed.others | others)


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
    """Training and held-out rows of each client. A client always keeps a row to train on; with a share of 0 nobody
    holds out."""
    if not isinstance(share, int | float) or not 0 <= share < 1:
        raise AccordError(
            f"heldout must be at least 0 and below 1, got {share!r}: it is the share of its rows a client holds out"
        )
    train, held = {}, {}
    for client, rows in owned.items():
        count = max(0, min(math.floor(share * len(rows) + 0.5), len(rows) - 1))
        away = torch.zeros(len(rows), dtype=torch.bool)
        away[torch.from_numpy(draws.choose(len(rows), count, seed, "partition", "heldout", client))] = True
        train[client], held[client] = rows[~away], rows[away]
    return train, held if share > 0 else {}
