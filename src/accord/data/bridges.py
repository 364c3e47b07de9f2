"""A federation from data another library holds: a torch Dataset, a Hugging Face dataset, the partitions of Flower
Datasets.

Everything is read into one tensor, once, and clients are row numbers into it. The limit is memory: samples x bytes of
one sample, so that a million pictures of CIFAR's size (3 x 32 x 32 bytes) take 3 GB, and a million rows of 100 numbers
(4 bytes each) 0.4 GB. Above that, write the samples once to a file made by `numpy.lib.format.open_memmap` and give it
to `from_samples`, which reads batches from disk (examples/data/from_memmap.py). The libraries are imported when they
are needed: accord itself does without them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset

from accord.core.errors import AccordError
from accord.data.cache import Progress
from accord.data.columns import Block, Columns, check_alike, library, stacked, tensor
from accord.data.federate import deal
from accord.data.federated import Federation, Prepare
from accord.data.finite import check_finite
from accord.data.from_arrays import from_samples
from accord.data.inputs import flat_dataset
from accord.data.standardise import fitted

AT_ONCE = 1000  # samples between two calls of progress
_CLIENTS = 10  # made up, unless said


def from_torch(
    dataset: Any,
    client: Any = None,
    *,
    split: str = "iid",
    clients: int | None = None,
    unseen: int | Sequence[str | int] = 0,
    heldout: float = 0.1,
    test: Any = None,
    seed: int = 0,
    prepare: Prepare | None = None,
    name: str = "torch",
    progress: Progress | None = None,
    **split_options: Any,
) -> Federation:
    """All samples of a map-style Dataset of pairs (x, y); `test` is another, and nobody's. A sample may be several
    tensors: x is then a dict or a tuple of them, or the item a dict with its label under `labels` or `label`.

    `client` names the owner of each sample, in the Dataset's order. Left out, `clients` of them (10) and `unseen`
    others are made up by `split` and its options, as in `deal`. Every sample is asked for once and kept in one tensor,
    whose size is the limit (see this module): random augmentation in the Dataset would be frozen. A TensorDataset is
    taken as it is, without a copy if there is no test set. Pictures of Pillow become bytes [C, H, W]; bytes of pictures
    are scaled by `fitted`, everything else is left as it is, unless `prepare` is given.

    >>> data = TensorDataset(torch.eye(4), torch.tensor([0, 1, 0, 1]))
    >>> fed = from_torch(data, ["ann", "bob", "ann", "cem"], unseen=["cem"], heldout=0)
    >>> fed.clients, fed.train["ann"], list(fed.unseen)
    (['ann', 'bob'], tensor([0, 2]), ['cem'])
    """
    groups, fields = {"the data": dataset} | ({} if test is None else {"the test set": test}), None
    for who, data in groups.items():
        groups[who], fields = flat_dataset(who, data, fields)
    sizes = [_size(who, data) for who, data in groups.items()]
    blocks = (block for who, data in groups.items() for block in _items(who, data))
    x, y = joined(blocks, sum(sizes), progress)
    options = {
        "split": split,
        "clients": clients,
        "unseen": unseen,
        "heldout": heldout,
        "seed": seed,
        "prepare": prepare,
        "name": name,
    }
    fed = replace(_dealt(x, y, client, sizes[0], options | split_options), fields=fields)
    return replace(fed, prepare=fitted(fed)) if prepare is None and x.dtype == torch.uint8 else fed


def from_huggingface(
    dataset: Any,
    client: str | None = None,
    *,
    features: str | Sequence[str] | None = None,
    label: str = "label",
    split: str = "iid",
    clients: int | None = None,
    unseen: int | Sequence[str | int] = 0,
    heldout: float = 0.1,
    test: Any = None,
    seed: int = 0,
    prepare: Prepare | None = None,
    name: str = "huggingface",
    progress: Progress | None = None,
    **split_options: Any,
) -> Federation:
    """All rows of a `datasets.Dataset`; `test` is another, and nobody's.

    `client` is the column that says whose a row is; left out, clients are made up as in `from_torch`. `features` is a
    column of pictures or arrays, or columns of numbers; left out, it is the one column of pictures or arrays, or else
    all numbers but client and label. Pictures become bytes [N, C, H, W], the rest float32. What a tokeniser made
    (`input_ids`, `attention_mask`), and columns of lists among several, go to the model by their names, whole numbers
    as such; shorter lists are filled up with 0 where there is an attention mask. A label that is text or a ClassLabel
    names the classes; lists of labels, one for each word, are filled up with -100, which counts for nothing. Samples
    are scaled by `fitted` unless `prepare` is given. Everything is decoded once into one tensor, whose size is the
    limit (see this module).

    >>> columns = {"age": [31, 45], "pulse": [60, 71], "site": ["a", "b"], "label": ["ill", "well"]}
    >>> rows = datasets.Dataset.from_dict(columns)
    >>> fed = from_huggingface(rows, "site", heldout=0)
    >>> fed.x.shape, fed.clients, fed.classes
    (torch.Size([2, 2]), ['a', 'b'], ('ill', 'well'))
    """
    groups = {"the data": dataset} | ({} if test is None else {"the test set": test})
    columns = Columns.of(groups, features, label, without=client)
    owners = None if client is None else columns.owners(client)
    x, y = joined(columns.blocks(AT_ONCE), columns.rows, progress)
    options = {
        "split": split,
        "clients": clients,
        "unseen": unseen,
        "heldout": heldout,
        "seed": seed,
        "prepare": prepare,
        "name": name,
    }
    fed = _dealt(x, y, owners, len(dataset), options | split_options)
    fed = replace(fed, classes=columns.classes, fields=columns.fields)
    return replace(fed, prepare=prepare or fitted(fed))


def from_flwr_datasets(
    source: Any,
    *,
    split: str = "train",
    features: str | Sequence[str] | None = None,
    label: str = "label",
    unseen: int | Sequence[str | int] = 0,
    heldout: float = 0.1,
    test: Any = None,
    seed: int = 0,
    prepare: Prepare | None = None,
    name: str = "flower",
    progress: Progress | None = None,
) -> Federation:
    """Every partition that `source` makes of its `split` is a client: partition-000, partition-001 and so on.

    `source` is a `flwr_datasets.FederatedDataset`, or a `Partitioner` whose dataset is set (which has no splits).
    `test` is the name of a split that is not dealt, or a `datasets.Dataset`. `features`, `label` and the rest are as in
    `from_huggingface`; the column that a partitioner by natural id goes by is no feature. Everything is decoded once
    into one tensor (see this module).

    >>> partitioner = flwr_datasets.partitioner.IidPartitioner(num_partitions=2)
    >>> partitioner.dataset = datasets.Dataset.from_dict({"age": [31, 45, 52, 28], "label": [0, 1, 1, 0]})
    >>> from_flwr_datasets(partitioner, unseen=1, heldout=0)
    flower: 4 samples, 1 participating clients (2 to 2 training samples), 1 unseen
    """
    flwr = library("flwr_datasets", "flower-data")
    try:
        partitioner = _partitioner(flwr, source, split)
        count = partitioner.num_partitions
        parts = [partitioner.load_partition(number) for number in range(count)]
        if isinstance(test, str):
            test = _whole_split(flwr, source, test)
    except (
        IndexError,
        OSError,
        ValueError,
    ) as error:  # what flwr-datasets and datasets say of data they cannot find, read or cut
        raise AccordError(f"flwr-datasets cannot load or cut these data: {' '.join(str(error).split())}") from None
    width = max(3, len(str(count - 1)))
    groups = {f"partition-{number:0{width}d}": part for number, part in enumerate(parts)}
    # The partitions are read one after another. Reading the underlying dataset and looking up whose each row is would
    # need the private row numbers of a partition, and would read rows that no partition has; so every row is decoded
    # once here too, unless two share it.
    owners = np.repeat(list(groups), [len(part) for part in parts])
    natural = getattr(partitioner, "_partition_by", None) if "NaturalId" in type(partitioner).__name__ else None
    columns = Columns.of(groups | ({} if test is None else {"the test set": test}), features, label, without=natural)
    x, y = joined(columns.blocks(AT_ONCE), columns.rows, progress)
    options = {"unseen": unseen, "heldout": heldout, "seed": seed, "prepare": prepare, "name": name}
    fed = _dealt(x, y, owners, len(owners), options)
    fed = replace(fed, classes=columns.classes, fields=columns.fields)
    return replace(fed, prepare=prepare or fitted(fed))


def _size(who: str, data: Any) -> int:
    if isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise AccordError(
            f"{who} must be a map-style Dataset, one with __len__ and __getitem__, got {type(data).__name__}"
        )
    if not len(data):
        raise AccordError(f"{who} has no samples: at least one is needed")
    return len(data)


def _items(who: str, data: Any) -> Iterator[Block]:
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        yield who, 0, tensor(f"x of {who}", data.tensors[0]), tensor(f"y of {who}", data.tensors[1])
        return
    for first in range(0, len(data), AT_ONCE):
        items = [data[number] for number in range(first, min(first + AT_ONCE, len(data)))]
        for number, item in enumerate(items, first):
            if not isinstance(item, (tuple, list)) or len(item) != 2:
                raise AccordError(f"sample {number:,} of {who} must be a pair (x, y), got {type(item).__name__}")
        yield (
            who,
            first,
            stacked(who, first, [x for x, _ in items]),
            stacked(who, first, [y for _, y in items], "label"),
        )


def joined(blocks: Iterable[Block], total: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """All samples and all labels, each written once to where it stays: the peak is one tensor and one block. A single
    block is no copy."""
    x = y = torch.empty(0)
    done = 0
    for who, first, samples, labels in blocks:
        labels = labels if labels.is_floating_point() else labels.long()
        if len(samples) == total:
            return samples, labels
        if not done:
            x, y = samples.new_empty((total, *samples.shape[1:])), labels.new_empty((total, *labels.shape[1:]))
        check_alike(f"sample {first:,} of {who}", samples[0], x[0])
        check_alike(f"label {first:,} of {who}", labels[0], y[0])
        x[done : done + len(samples)], y[done : done + len(labels)] = samples, labels
        done += len(samples)
        if progress:
            progress("reading samples", done, total)
    return x, y


def _dealt(x: Tensor, y: Tensor, client: Any, count: int, options: Mapping[str, Any]) -> Federation:
    """The first `count` rows given to clients, which are known or made up; the rows after those are the test set."""
    test = torch.arange(count, len(y)) if count < len(y) else None
    if client is None:
        check_finite(x, y, lambda row: "the data" if row < count else "the test set")
        clients = options["clients"]
        return deal(x, y, test=test, **{**options, "clients": _CLIENTS if clients is None else clients})
    natural = {key: options[key] for key in ("unseen", "heldout", "seed", "prepare", "name")}
    for key, value in options.items():
        if key not in natural and (key, value) not in (("split", "iid"), ("clients", None)):
            raise AccordError(
                f"{key} is about clients that are made up, but client says whose each sample is: leave one of them out"
            )
    owner = np.asarray(client)
    owner = np.asarray(owner.tolist()) if owner.dtype == object else owner  # a column of pandas holds text as objects
    if owner.shape != (count,) or owner.dtype.kind not in "iuU":
        raise AccordError(
            f"client must be one text or whole number for each of the {count:,} samples, got {owner.dtype} of shape"
            f" {owner.shape}"
        )
    return from_samples(x, y, np.concatenate([owner, np.repeat(owner[:1], len(y) - count)]), test=test, **natural)


def _partitioner(flwr: Any, source: Any, split: str) -> Any:
    """What cuts the split, with its dataset."""
    if isinstance(source, flwr.partitioner.Partitioner):
        if not source.is_dataset_assigned():
            raise AccordError("the partitioner has no dataset to cut: set partitioner.dataset first")
        return source
    if not isinstance(source, flwr.FederatedDataset):
        raise AccordError(
            f"source must be a FederatedDataset or a Partitioner of flwr_datasets, got {type(source).__name__}"
        )
    if split not in source.partitioners:
        raise AccordError(
            f"split {split!r} has no partitioner: those that have one are {', '.join(source.partitioners)}"
        )
    return source.partitioners[split]


def _whole_split(flwr: Any, source: Any, split: str) -> Any:
    if not isinstance(source, flwr.FederatedDataset):
        raise AccordError(f"a partitioner has no split {split!r} to test on: give test as a datasets.Dataset")
    return source.load_split(split)
