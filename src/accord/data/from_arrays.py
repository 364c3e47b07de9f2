"""A federation from data the user already has: arrays by client, or all samples at once with a client for each.

Everything ends up in one tensor, so it must fit in memory (on a GPU: in its memory). `from_samples` takes no copy: a
`numpy.memmap` stays on disk, and only what a batch needs is read.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from accord.core import draws
from accord.core.errors import AccordError
from accord.data.columns import contents
from accord.data.federate import assemble, check_counts
from accord.data.federated import Federation, Prepare
from accord.data.finite import check_finite
from accord.data.inputs import laid_flat
from accord.data.labels import Labels
from accord.data.unseen import check_named

_TEST = ("the test set",)  # among clients, whose ids are never tuples


def from_arrays(
    clients: Mapping[str | int, Any],
    *,
    unseen: int | Sequence[str | int] = 0,
    heldout: float = 0.1,
    test: Any = None,
    seed: int = 0,
    prepare: Prepare | None = None,
    name: str = "arrays",
) -> Federation:
    """`clients` maps an id to `(x, y)` or to a map-style `Dataset` of such pairs; `test` is one more of either.

    Samples may be several tensors: `x` is then a dict of arrays by the names of the model's arguments, or a tuple of
    them. `unseen` says how many clients are unseen (drawn by `seed`), or which. A client without samples stays in the
    federation with no rows. float64 becomes float32, whole-number labels int64; labels that are text name the classes.

    >>> fed = from_arrays({"a": ([[0.0], [1.0]], [0, 1]), "b": ([[2.0]], [1])}, unseen=["b"], heldout=0)
    >>> fed.x.shape, fed.clients, list(fed.unseen)
    (torch.Size([3, 1]), ['a'], ['b'])
    """
    if not isinstance(clients, Mapping) or not clients:
        raise AccordError("from_arrays got no clients: give a dict from client id to (x, y)")
    flat, fields = laid_flat({**clients, **({} if test is None else {_TEST: test})})
    clients, test, classes = _with_numbered_labels({client: flat[client] for client in clients}, flat.get(_TEST))
    pairs = {str(client): _pair(f"client {client}", data) for client, data in clients.items()}
    if len(pairs) < len(clients):
        raise AccordError("two client ids are the same when written as text: give each client an id of its own")
    apart = _which_unseen(list(pairs), unseen, seed, name)
    groups = {f"client {client}": pair for client, pair in pairs.items()}
    if test is not None:
        groups["the test set"] = _pair("the test set", test)
    for who, (samples, labels) in groups.items():
        check_finite(samples, labels, lambda row, who=who: who)  # type: ignore[misc]
    x, y = _joined(groups)
    ends = np.cumsum([len(labels) for _, labels in groups.values()]).tolist()
    spans = [torch.arange(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    owned = dict(zip(pairs, spans, strict=False))  # the test set's span, if there is one, is the last and nobody's
    test_rows = spans[-1] if test is not None else None
    fed = assemble(x, y, owned, apart, heldout=heldout, seed=seed, test=test_rows, prepare=prepare, name=name)
    return replace(fed, classes=classes, fields=fields)


def from_samples(
    x: Any,
    y: Any,
    client: Any,
    *,
    unseen: int | Sequence[str | int] = 0,
    heldout: float = 0.1,
    test: Any = None,
    seed: int = 0,
    prepare: Prepare | None = None,
    name: str = "samples",
) -> Federation:
    """All samples at once: `x[i]` with label `y[i]` belongs to client `client[i]`, whatever the order. Nothing is
    copied but float64, which becomes float32: a file of it would be read whole. Labels that are text name the classes.
    `x` may be a dict, or a tuple, of arrays, as in `from_arrays`.

    Rows marked in `test` (true or false for each, or row numbers) are the test set, and nobody's. `unseen` as in
    `from_arrays`.

    >>> fed = from_samples([[0.0], [1.0], [2.0]], [0, 1, 1], ["b", "a", "b"], heldout=0)
    >>> fed.clients, fed.train["b"]
    (['a', 'b'], tensor([0, 2]))
    """
    y, classes = _numbered("the data", y)
    flat, fields = laid_flat({"the data": (x, y)})
    x, y = _pair("the data", flat["the data"])
    ids, owner = np.unique(np.asarray(client), return_inverse=True)
    if owner.shape != (len(y),):
        raise AccordError(
            f"client must have one entry for each of the {len(y):,} samples, got shape {np.shape(client)}"
        )
    rows = None if test is None else _marked(test, len(y))
    if rows is not None:
        owner[rows.numpy()] = -1
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(len(ids) + 1))
    owned = {
        str(name): torch.from_numpy(order[ends[i] : ends[i + 1]])
        for i, name in enumerate(ids.tolist())
        if ends[i] < ends[i + 1]
    }
    if not owned:
        raise AccordError("no client has a sample: give at least one client data")
    check_finite(x, y, lambda row: "the test set" if owner[row] < 0 else f"client {ids[owner[row]]}")
    apart = _which_unseen(list(owned), unseen, seed, name)
    fed = assemble(x, y, owned, apart, heldout=heldout, seed=seed, test=rows, prepare=prepare, name=name)
    return replace(fed, classes=classes, fields=fields)


def _is_text(y: Any) -> bool:
    """Whether labels are text, of which a CSV file's are read the same way."""
    if isinstance(y, Tensor) or not hasattr(y, "__len__") or (isinstance(y, np.ndarray) and y.dtype.kind not in "UO"):
        return False
    return len(y) > 0 and all(isinstance(label, str) for label in y)


def _numbered(who: str, y: Any) -> tuple[Any, tuple[str, ...]]:
    """Labels that are text as numbers, and the classes' names; others as they are."""
    if not _is_text(y):
        return y, ()
    labels = Labels("y")
    labels.extend([str(label) for label in y], lambda place: f"row {place} of {who}")
    return labels.targets()


def _with_numbered_labels(
    clients: Mapping[str | int, Any], test: Any
) -> tuple[Mapping[str | int, Any], Any, tuple[str, ...]]:
    """The same clients with labels of text as numbers, the same for all of them."""
    by_owner: dict[Any, Any] = {**clients, **({} if test is None else {_TEST: test})}
    pairs = {who: data for who, data in by_owner.items() if isinstance(data, tuple | list) and len(data) == 2}
    texts = {who: list(y) for who, (_, y) in pairs.items() if _is_text(y)}
    numbers, classes = _numbered("all clients", [label for labels in texts.values() for label in labels])
    if not texts:
        return clients, test, ()
    parts = dict(zip(texts, numbers.split([len(labels) for labels in texts.values()]), strict=True))
    by_owner |= {who: (pairs[who][0], part) for who, part in parts.items()}
    by_owner |= {who: (x, numbers[:0]) for who, (x, y) in pairs.items() if who not in parts and not len(y)}
    return {who: by_owner[who] for who in clients}, by_owner.get(_TEST), classes


def _marked(test: Any, count: int) -> Tensor:
    """Row numbers, from row numbers or from one truth value per row."""
    marks = np.asarray(test)
    if marks.dtype == bool and marks.shape == (count,):
        return torch.from_numpy(np.flatnonzero(marks))
    if marks.ndim != 1 or not np.issubdtype(marks.dtype, np.integer) or (marks < 0).any() or (marks >= count).any():
        raise AccordError(
            f"test must be row numbers from 0 to {count - 1:,}, or true or false for each of {count:,} samples"
        )
    return torch.from_numpy(np.unique(marks).astype(np.int64))


def _which_unseen(ids: list[str], unseen: int | Sequence[str | int], seed: int, name: str) -> set[str]:
    if not isinstance(unseen, int):
        return set(check_named(unseen, ids, name))
    check_counts(len(ids), unseen)
    if unseen >= len(ids):
        raise AccordError(
            f"{len(ids)} clients with {unseen} unseen leave nobody to train: at least one must participate"
        )
    return {ids[i] for i in draws.choose(len(ids), unseen, seed, "partition", "unseen")}


def _pair(who: str, data: Any) -> tuple[Tensor, Tensor]:
    """`who`'s samples and labels as two tensors of the same length."""
    if isinstance(data, Dataset):
        data = _items(who, data)
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise AccordError(
            f"{who} must come as a pair (x, y) or a torch Dataset of such pairs, got {type(data).__name__}"
        )
    x, y = as_tensor(f"x of {who}", data[0]), as_tensor(f"y of {who}", data[1])
    if x.ndim == 0 or y.ndim == 0:
        raise AccordError(
            f"{who} has a single number where a list of samples belongs: x and y need one entry per sample"
        )
    if len(x) != len(y):
        raise AccordError(f"{who} has {len(x)} samples in x but {len(y)} labels in y: each sample needs one label")
    return x, y if y.is_floating_point() else y.long()


def _items(who: str, data: Dataset[Any]) -> tuple[list[Any], list[Any]]:
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise AccordError(
            f"{who} is a Dataset without a length: give a map-style Dataset, one with __len__ and __getitem__"
        )
    items = [data[i] for i in range(len(data))]
    if not all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
        raise AccordError(f"{who} is a Dataset whose items are not pairs (x, y)")
    return [as_tensor(f"a sample of {who}", x) for x, _ in items], [as_tensor(f"a label of {who}", y) for _, y in items]


def as_tensor(what: str, values: Any) -> Tensor:
    """Numbers of one shape for all samples as a tensor, without a copy where that can be."""
    try:
        if isinstance(values, list) and values and all(isinstance(value, Tensor) for value in values):
            values = torch.stack(values)
        if not isinstance(values, Tensor):
            array = np.asarray(values)
            with warnings.catch_warnings():
                # of memory that may not be written to, such as a file's: nothing here writes
                warnings.simplefilter("ignore", UserWarning)
                # torch wants native byte order and rows in order: a plain array has both, so no copy
                values = torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C"]))
    except (TypeError, ValueError, RuntimeError) as error:
        raise AccordError(f"{what} is not an array of numbers with one shape for all samples: {error}") from None
    values = values.detach().cpu()
    return values.float() if values.dtype == torch.float64 else values


def _joined(groups: Mapping[str, tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """All samples as one tensor and all labels as another, once they are seen to fit; a group without samples fits
    anything."""
    filled = {who: pair for who, pair in groups.items() if len(pair[1])}
    if not filled:
        raise AccordError("no client has a sample: give at least one client data")
    first = next(iter(filled))
    for who, pair in filled.items():
        for part, mine, theirs in zip("xy", pair, filled[first], strict=True):
            if (mine.shape[1:], mine.dtype) != (theirs.shape[1:], theirs.dtype):
                raise AccordError(
                    f"{part} of {who} holds {contents(mine[0])} per sample, but that of {first} {contents(theirs[0])}:"
                    " they must be alike"
                )
    return torch.cat([x for x, _ in filled.values()]), torch.cat([y for _, y in filled.values()])
