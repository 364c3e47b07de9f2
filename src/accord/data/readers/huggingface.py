"""The user's own Hugging Face dataset: a folder that `save_to_disk` wrote."""

from pathlib import Path

import torch

from accord.core.errors import AccordError
from accord.data.bridges import AT_ONCE, joined
from accord.data.cache import Progress
from accord.data.columns import Columns, library
from accord.data.readers.npz import owned
from accord.data.samples import Samples


def read_saved(
    folder: str | Path, client: str = "client", label: str = "label", progress: Progress | None = None
) -> Samples:
    """All rows of the dataset, or of its split `train`, with `test` as the test set; which columns hold the samples is
    found as in `from_huggingface`."""
    datasets = library("datasets", "huggingface")
    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError) as error:
        raise AccordError(f"{folder} is no dataset that save_to_disk wrote: {' '.join(str(error).split())}") from None
    splits = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"train": loaded}
    if "train" not in splits:
        raise AccordError(f"{folder} has no split train: its splits are {', '.join(splits)}")
    groups = {"the data": splits["train"]} | ({"the test set": splits["test"]} if "test" in splits else {})
    columns = Columns.of(groups, None, label, without=client)
    x, y = joined(columns.blocks(AT_ONCE), columns.rows, progress)
    owner, owners = owned([str(name) for name in columns.owners(client).tolist()])
    nobody = torch.full((len(y) - len(owner),), -1)
    test = torch.arange(len(owner), len(y)) if len(nobody) else None
    return Samples(x, y, test=test, owner=torch.cat([owner, nobody]), owners=owners, classes=columns.classes)
