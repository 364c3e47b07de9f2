"""A federation in numbers: who has how much of what, and how unlike each other the participating clients are.

A measure of unlikeness alone says little, since small clients differ by chance: each one stands beside what the same
measure gives when the same labels are dealt evenly to clients of the same sizes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.federated import Federation, Rows

PARTICIPATING, UNSEEN, TEST = "participating", "unseen", "test"  # kinds of owners


@dataclass(frozen=True)
class Owner:
    """A client with all its samples, held-out ones included, or a test set."""

    kind: str
    name: str
    samples: int
    counts: tuple[int, ...] = ()  # samples of each class
    mean: float | None = None  # of the targets, where these are numbers
    spread: float | None = None  # their standard deviation


@dataclass(frozen=True)
class Sizes:
    """How many samples clients have. `variation` is the standard deviation in units of the mean: 0 where all have the
    same."""

    clients: int
    least: int
    median: float
    most: int
    total: int
    variation: float


@dataclass(frozen=True)
class Measure:
    """A measure of the participating clients, and what an even deal of the same labels to clients of the same sizes
    gives."""

    found: float
    by_chance: float


@dataclass(frozen=True)
class Portrait:
    """What `accord data describe` tells. Plain data: `dataclasses.asdict` is ready for JSON."""

    what: str
    classes: tuple[str, ...]  # empty where targets are numbers
    owners: tuple[Owner, ...]
    sizes: dict[str, Sizes]  # of participating and of unseen clients, where there are any
    heterogeneity: Measure  # `label_skew`; of numbers, `between`
    effective_classes: Measure | None
    populations: dict[str, dict[str, Sizes]]
    shift: dict[str, Any] | None
    augment: dict[str, Any] | None
    memory: dict[str, int]  # bytes


def portray(fed: Federation, seed: int = 0) -> Portrait:
    """Everything at once. `seed` draws the even deal that unlikeness is compared with.

    >>> from accord.data import from_arrays
    >>> fed = from_arrays({"a": (np.zeros((4, 1)), [0, 0, 0, 1]), "b": (np.zeros((4, 1)), [1, 1, 1, 0])})
    >>> portrait = portray(fed)
    >>> [(owner.name, owner.counts) for owner in portrait.owners], portrait.heterogeneity.found
    ([('a', (3, 1)), ('b', (1, 3))], 0.25)
    """
    if fed.y.ndim != 1:
        raise AccordError(f"a portrait needs one label per sample, got labels of shape {tuple(fed.y.shape)}")
    owned = list(all_owned(fed))
    y = fed.y.cpu().numpy()
    mine = [rows.numpy() for kind, _, rows in owned if kind == PARTICIPATING and len(rows)]
    dealt = _even_deal(mine, seed)
    classes: tuple[str, ...] = ()
    effective = None
    if fed.y.is_floating_point():
        owners = [Owner(kind, name, len(rows), (), *_mean_and_spread(y[rows.numpy()])) for kind, name, rows in owned]
        heterogeneity = Measure(between([y[rows] for rows in mine]), between([y[rows] for rows in dealt]))
    else:
        kinds = np.union1d(y, np.arange(len(fed.classes)))
        classes = class_names(fed, kinds.tolist())
        which = np.searchsorted(kinds, y)
        table = _counts(which, [rows.numpy() for _, _, rows in owned], len(kinds))
        owners = [Owner(*owned[i][:2], len(owned[i][2]), tuple(table[i].tolist())) for i in range(len(owned))]
        counts, even = (_counts(which, parts, len(kinds)) for parts in (mine, dealt))
        heterogeneity = Measure(label_skew(counts), label_skew(even))
        effective = Measure(effective_classes(counts), effective_classes(even))
    return Portrait(
        what=repr(fed),
        classes=classes,
        owners=tuple(owners),
        sizes=_sizes_by_kind(owners),
        heterogeneity=heterogeneity,
        effective_classes=effective,
        populations={
            population: _sizes_by_kind(
                [o for o in owners if o.kind != TEST and fed.populations.get(o.name) == population]
            )
            for population in sorted(set(fed.populations.values()))
        },
        shift=_settings(fed.shift.shift) if fed.shift else None,
        augment=_settings(fed.augment) if fed.augment else None,
        memory=_memory(fed),
    )


def all_owned(fed: Federation) -> Iterator[tuple[str, str, Tensor]]:
    """(kind, name, rows): participating clients with training and held-out rows together, unseen ones, and the test
    sets."""
    for client, rows in fed.train.items():
        yield PARTICIPATING, client, torch.cat([rows, fed.heldout.get(client, rows[:0])]).sort().values
    for client, rows in fed.unseen.items():
        yield UNSEEN, client, rows
    tests: Rows = {} if fed.test is None else {"test": fed.test}
    for name, rows in {**tests, **{f"test, {name}": rows for name, rows in fed.others.items()}}.items():
        yield TEST, name, rows


def class_names(fed: Federation, kinds: Sequence[int]) -> tuple[str, ...]:
    """These classes' names, or their numbers where they have none."""
    return tuple(fed.classes[kind] if 0 <= kind < len(fed.classes) else str(kind) for kind in kinds)


# --------------------------------------------------------------------------------------------------- measures


def sizes(samples: Sequence[int]) -> Sizes:
    """How many samples clients have.

    >>> sizes([1, 1, 4])
    Sizes(clients=3, least=1, median=1.0, most=4, total=6, variation=0.7071067811865476)
    """
    values = np.array(samples, dtype=np.int64)
    variation = float(values.std() / values.mean()) if values.any() else 0.0
    return Sizes(
        len(values), int(values.min()), float(np.median(values)), int(values.max()), int(values.sum()), variation
    )


def label_skew(counts: np.ndarray) -> float:
    """The mean over clients of the total variation distance between a client's label distribution and that of all
    together.

    `counts: [clients, classes]`. 0: all clients are alike; towards 1: nobody shares a class with anybody.

    >>> label_skew(np.array([[2, 2], [1, 1]])), label_skew(np.array([[3, 0], [0, 3]])), label_skew(3 * np.eye(10))
    (0.0, 0.5, 0.9)
    """
    if not len(counts):
        return float("nan")
    shares = counts / counts.sum(axis=1, keepdims=True)
    together = counts.sum(axis=0) / counts.sum()
    # sums of shares miss round numbers by a few 1e-17
    return round(float(np.abs(shares - together).sum(axis=1).mean() / 2), 12)


def effective_classes(counts: np.ndarray) -> float:
    """The mean over clients of exp(entropy of its labels): as many classes as would, in equal parts, be as varied.

    >>> effective_classes(np.array([[5, 5, 0], [0, 0, 9]]))
    1.5
    """
    if not len(counts):
        return float("nan")
    shares = counts / counts.sum(axis=1, keepdims=True)
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
    return round(float(np.exp(entropy).mean()), 12)


def between(targets: Sequence[np.ndarray]) -> float:
    """The share of the targets' variance that lies between clients: 0 if all have the same mean, 1 if a client's
    targets are all equal.

    >>> between([np.array([1.0, 3.0]), np.array([5.0, 7.0])])
    0.8
    """
    if not len(targets):
        return float("nan")
    together = np.concatenate(targets).astype(np.float64)
    whole = float(np.square(together - together.mean()).sum())
    apart = sum(len(values) * (float(values.mean(dtype=np.float64)) - together.mean()) ** 2 for values in targets)
    return round(float(apart) / whole, 12) if whole > 0 else 0.0


# ---------------------------------------------------------------------------------------------------- helpers


def _even_deal(parts: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """The same rows, shuffled, in parts of the same sizes."""
    if not len(parts):
        return []
    rows = np.concatenate(parts)
    return np.split(
        rows[draws.permutation(len(rows), seed, "portrait", "even deal")], np.cumsum([len(part) for part in parts])[:-1]
    )


def _counts(which: np.ndarray, parts: Sequence[np.ndarray], kinds: int) -> np.ndarray:
    """[parts, kinds]: how many rows of each part are of each kind, `which[row]`."""
    table = [np.bincount(which[rows], minlength=kinds) for rows in parts]
    return np.stack(table) if table else np.zeros((0, kinds), dtype=np.int64)


def _mean_and_spread(values: np.ndarray) -> tuple[float | None, float | None]:
    return (float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))) if len(values) else (None, None)


def _sizes_by_kind(owners: Sequence[Owner]) -> dict[str, Sizes]:
    groups = {kind: [owner.samples for owner in owners if owner.kind == kind] for kind in (PARTICIPATING, UNSEEN)}
    return {kind: sizes(group) for kind, group in groups.items() if group}


def _settings(part: Any) -> dict[str, Any]:
    """What a shift or an augmentation is, and with which settings."""
    kind = getattr(part, "__name__", type(part).__name__)
    values = {field.name: getattr(part, field.name) for field in fields(part)} if is_dataclass(part) else {}
    return {"kind": kind.replace("_", "-")} | {name: value for name, value in values.items() if value is not None}


def _memory(fed: Federation) -> dict[str, int]:
    tables: Mapping[str, Tensor] = fed.shift.tables if fed.shift else {}
    rows = sum(rows.nbytes for _, _, rows in fed.groups()) + (fed.shift.owner.nbytes if fed.shift else 0)
    return {"data": fed.x.nbytes + fed.y.nbytes + sum(table.nbytes for table in tables.values()), "rows": rows}
