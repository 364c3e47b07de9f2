"""Who owns which sample: pure functions from labels to one array of rows per client
(docs/explanation/mathematics.md, "Data").

Every sample goes to exactly one client. Every choice is a keyed draw, so the same seed gives the same owners whatever
ran before.

>>> [len(rows) for rows in iid(np.arange(10) % 2, clients=4, seed=0)]
[3, 3, 2, 2]
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from accord.core import draws
from accord.core.errors import AccordError

Parts = list[np.ndarray]  # one int64 array of rows per client, ascending

SMALLEST = 10  # samples a client must have under `quantity`
TRIES = 1000  # after so many unlucky draws it is the request that is wrong, not the luck


def iid(y: Any, clients: int, seed: int) -> Parts:
    """Shuffled, then cut into parts whose sizes differ by at most one. Labels may be of any shape."""
    y = _checked(np.arange(len(y)), clients)
    return [np.sort(part) for part in np.array_split(draws.permutation(len(y), seed, "partition", "iid"), clients)]


def labels(y: Any, clients: int, seed: int, classes: int = 2, noise: float = 0.1) -> Parts:
    """Label skew: a client owns `classes` main classes and an equal part of the `noise` share of all the data.

    Each class is shared by the clients that have it as a main class. `noise` counts against the data, not against each
    client, so sizes and shares differ from client to client.
    """
    y = _checked(y, clients)
    kinds, kind_of = np.unique(y, return_inverse=True)
    _check_labels(clients, classes, noise, len(kinds))
    hands = deal_classes(clients, classes, len(kinds), seed)
    order = draws.permutation(len(y), seed, "partition", "labels")
    spread = math.floor(noise * len(y) + 0.5)
    parts = [[part] for part in np.array_split(order[:spread], clients)]
    rest = order[spread:]
    for kind in range(len(kinds)):
        owners = [client for client, hand in enumerate(hands) if kind in hand]
        for owner, part in zip(owners, np.array_split(rest[kind_of[rest] == kind], len(owners)), strict=True):
            parts[owner].append(part)
    return [np.sort(np.concatenate(pieces)) for pieces in parts]


def exact(y: Any, clients: int, seed: int, classes: int = 2) -> Parts:
    """Label skew without noise: a client has samples of exactly `classes` classes, each class shared evenly by those
    who have it."""
    parts = labels(y, clients, seed, classes, noise=0.0)
    for client, part in enumerate(parts):
        there = len(np.unique(np.asarray(y)[part]))
        if there < classes:
            raise AccordError(
                f"classes must be smaller, got {classes}: with {clients} clients, client {client} would get {there}"
            )
    return parts


def deal_classes(clients: int, classes: int, kinds: int, seed: int) -> list[list[int]]:
    """Each client's main classes, dealt like cards: a freshly shuffled deck of all classes whenever the last one runs
    out.

    So a class has as many owners as any other, give or take one, yet clients do not fall into groups with equal hands.
    """
    hands: list[list[int]] = []
    deck: list[int] = []
    decks = 0
    for _ in range(clients):
        hand, deck = deck[:classes], deck[classes:]
        # the deck ran out within this hand: go on with a new one, without dealing a class twice
        if len(hand) < classes:
            fresh = draws.permutation(kinds, seed, "partition", "main classes", decks).tolist()
            more = [kind for kind in fresh if kind not in hand][: classes - len(hand)]
            hand, deck, decks = hand + more, [kind for kind in fresh if kind not in more], decks + 1
        hands.append(hand)
    return hands


def dirichlet(y: Any, clients: int, seed: int, alpha: float = 0.5) -> Parts:
    """Label skew: each class is spread over the clients by its own Dirichlet(alpha) draw. Small alpha, strong skew."""
    y = _checked(y, clients)
    _check_above_zero("alpha", alpha, "small values give each client few classes, large ones an even mix")
    kinds, kind_of = np.unique(y, return_inverse=True)
    counts = np.bincount(kind_of)
    for attempt in range(TRIES):
        shares = [
            draws.dirichlet([alpha] * clients, seed, "partition", "dirichlet", attempt, kind)
            for kind in range(len(kinds))
        ]
        if not np.isfinite(shares).all():  # a tiny alpha underflows every share of a class to 0 / 0
            continue
        cuts = [_cuts(share, int(count)) for share, count in zip(shares, counts, strict=True)]
        sizes = [np.diff(cut, prepend=0, append=count) for cut, count in zip(cuts, counts, strict=True)]
        if np.sum(sizes, axis=0).min() > 0:
            break
    else:
        raise AccordError(
            f"no draw of {TRIES:,} with alpha {alpha} left each of {clients} clients a sample: "
            "take a larger alpha, fewer clients or more data"
        )
    order = draws.permutation(len(y), seed, "partition", "dirichlet order")
    dealt = [np.split(order[kind_of[order] == kind], cut) for kind, cut in enumerate(cuts)]
    return [np.sort(np.concatenate(pieces)) for pieces in zip(*dealt, strict=True)]


def quantity(y: Any, clients: int, seed: int, beta: float = 0.5) -> Parts:
    """Size skew: sizes are a Dirichlet(beta) draw, redrawn where a client falls short of 10 samples; classes are mixed
    evenly.

    Only the clients that fall short draw again, the others keep their proportions. Sizes come out as if everybody drew
    again (simulated: equal means by rank), in a few passes: MNIST over 100 clients would take some 50,000 draws of
    everybody.
    """
    y = _checked(y, clients)
    _check_above_zero("beta", beta, "small values give sizes that differ much, large ones equal sizes")
    cuts = _quantity_cuts(len(y), clients, seed, beta)
    if cuts is None:
        raise AccordError(
            f"{len(y):,} samples could not be cut for {clients} clients with at least {SMALLEST} each and beta {beta}: "
            "take fewer clients, more data or a larger beta"
        )
    order = draws.permutation(len(y), seed, "partition", "quantity order")
    return [np.sort(part) for part in np.split(order, cuts)]


def _quantity_cuts(count: int, clients: int, seed: int, beta: float) -> np.ndarray | None:
    if count < SMALLEST * clients:
        return None
    # a tiny beta underflows to 0 / 0; as a share of 0 it is drawn again like any other that is too small
    shares = np.nan_to_num(draws.dirichlet([beta] * clients, seed, "partition", "quantity"))
    for attempt in range(TRIES):
        cuts = _cuts(shares, count)
        short = np.flatnonzero(np.diff(cuts, prepend=0, append=count) < SMALLEST).tolist()
        if not short:
            return cuts
        for client in short:
            pair = draws.dirichlet([beta, beta * (clients - 1)], seed, "partition", "quantity", attempt, client)
            share = np.nan_to_num(pair)[0]
            shares = shares * ((1 - share) / (1 - shares[client]))
            shares[client] = share
    return None


SPLITS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "labels": labels,
    "exact": exact,
    "dirichlet": dirichlet,
    "quantity": quantity,
}


def _cuts(shares: np.ndarray, count: int) -> np.ndarray:
    """Where to cut `count` rows so that the parts follow `shares`; rounding the running sum loses no row."""
    return np.minimum(np.floor(np.cumsum(shares[:-1]) * count + 0.5).astype(np.int64), count)


# ------------------------------------------------------------------------------------------ what may be asked


def _checked(y: Any, clients: int) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1:
        raise AccordError(f"a split needs one label per sample, got labels of shape {tuple(y.shape)}")
    if not _whole(clients) or clients < 1:
        raise AccordError(f"clients must be a whole number of at least 1, got {clients!r}")
    if clients > len(y):
        raise AccordError(f"clients must be at most the {len(y):,} samples, unseen ones included, got {clients:,}")
    return y


def _check_labels(clients: int, classes: int, noise: float, kinds: int) -> None:
    if not _whole(classes) or not 1 <= classes <= kinds:
        raise AccordError(f"classes must be a whole number from 1 to the {kinds} classes of the data, got {classes!r}")
    if not 0 <= noise <= 1:
        raise AccordError(
            f"noise must be between 0 and 1, got {noise}: it is the share of the data dealt evenly to all clients"
        )
    if clients * classes < kinds:
        raise AccordError(
            f"{clients} clients with {classes} main classes each leave some of the {kinds} classes without an owner: "
            f"take at least {math.ceil(kinds / clients)} main classes or {math.ceil(kinds / classes)} clients"
        )


def _check_above_zero(name: str, value: float, meaning: str) -> None:
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise AccordError(f"{name} must be a number above 0, got {value!r}: {meaning}")


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
