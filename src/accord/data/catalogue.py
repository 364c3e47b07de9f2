"""The data sets by name: `accord.data.mnist(clients=100, split="labels", unseen=20)`, or `name = "mnist"` in an
experiment file."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import check_files
from accord.data import cache
from accord.data.cache import Progress
from accord.data.dataset import DataSet, Load, Source
from accord.data.federated import Scale
from accord.data.readers.bundled import bundled_digits
from accord.data.readers.femnist import only_digits
from accord.data.readers.npz import read_npz
from accord.data.readers.table import Categories, read_table
from accord.data.readers.tree import read_tree
from accord.data.readers.tree_digest import tree_digest
from accord.data.readers.writers import by_writer
from accord.data.recipes import CIFAR10, CIFAR100, FASHION_MNIST, FEMNIST, MNIST, TINY_IMAGENET, WRITERS
from accord.data.samples import Samples
from accord.data.sources import fetch

# ----------------------------------------------------------------------------------------------- in the cache


def get(name: str, source: Source = None, progress: Progress | None = None) -> Path:
    """The data set's file in the cache, got first if it is not there yet; if it is, `source` is not looked at."""
    if name in DATASETS:
        DATASETS[name].check_source(source)
        kept = DATASETS[name].kept
        if kept is None:
            raise AccordError(
                f"{name} is your own data, read where it lies: give its place as `source` when you use it"
            )
        name = kept
    if name not in _RECIPES:
        raise AccordError(f"there is no data set {name!r}: the data sets are {', '.join(DATASETS)}")
    return cache.once(name, lambda scratch: _RECIPES[name](scratch, source, progress), progress)


def available(name: str) -> bool:
    """Whether the data set is in the cache, so that using it needs no network."""
    if name not in DATASETS:
        raise AccordError(f"there is no data set {name!r}: the data sets are {', '.join(DATASETS)}")
    kept = DATASETS[name].kept
    return kept is None or cache.path(kept).exists()


_RECIPES: dict[str, Callable[[Path, Source, Progress | None], Samples]] = {
    recipe.name: partial(fetch, recipe)
    for recipe in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100, TINY_IMAGENET, FEMNIST, WRITERS)
} | {"digits": lambda scratch, source, progress: bundled_digits()}


def _kept(name: str) -> Load:
    def load(source: Source, progress: Progress | None) -> Samples:
        if source is not None and cache.path(name).exists() and progress:
            progress(f"{name} is kept already, so {source} is not looked at", 0, None)
        return cache.read(get(name, source, progress))

    return load


def _with_writers(mnist: Samples, source: Source, progress: Progress | None) -> Samples:
    known = _kept("mnist-writers")(source, progress)
    series, writers = known.x.T
    return by_writer(mnist, known.y, series, writers)


def _digits(source: Source, progress: Progress | None) -> Samples:
    try:
        return _kept("digits")(source, progress)
    except AccordError:  # no cache can be written here; who has scikit-learn has them all the same
        samples = bundled_digits()
        return replace(samples, y=samples.y.long())


def _femnist_digits(source: Source, progress: Progress | None) -> Samples:
    return only_digits(_kept("femnist")(source, progress))


# --------------------------------------------------------------------------------------- the user's own files


def _file(source: Source, what: str) -> Path:
    if source is None:
        raise AccordError(f"source is missing: say where {what} is")
    path = Path(source).expanduser()
    if not path.exists():
        raise AccordError(f"source must be {what}, got {str(source)!r}: there is no such file or folder")
    check_files(path)
    return path


def _arrays(source: Source, progress: Progress | None) -> Samples:
    return read_npz(_file(source, "a .npz file with x, y and, for natural clients, client"))


def _table(
    source: Any,
    progress: Progress | None,
    client: str = "client",
    label: str = "label",
    missing: str = "mean",
    categories: Categories = (),
    drop: Sequence[str] = (),
) -> Samples:
    if source is None or isinstance(source, str | Path):
        source = _file(source, "a .csv or .parquet file with a column of clients, or a folder with a file for each")
    return read_table(source, client, label, progress, missing=missing, categories=categories, drop=drop)


def _huggingface(source: Source, progress: Progress | None, client: str = "client", label: str = "label") -> Samples:
    from accord.data.readers.huggingface import read_saved  # here: few have such data

    return read_saved(_file(source, "a folder that a dataset's save_to_disk wrote"), client, label, progress)


def _folder(source: Source, progress: Progress | None, size: int | None = None, channels: int = 3) -> Samples:
    folder = _file(source, "a folder of pictures, as client/class/picture")
    name = f"folder-{tree_digest(folder)}-{size or 'as-is'}-{channels}"
    return cache.read(cache.once(name, lambda scratch: read_tree(folder, size, channels, progress), progress))


# ------------------------------------------------------------------------------------------------ all of them

_GREY = Scale((0.1307,), (0.3081,))
_FASHION = Scale((0.2860,), (0.3530,))

mnist = DataSet(
    name="mnist",
    about=(
        "handwritten digits, ten classes: 60,000 training and 10,000 test pictures of 28 x 28 grey pixels; natural: 836"
        " writers"
    ),
    size="55 MB",
    load=_kept("mnist"),
    kept="mnist",
    prepare=_GREY,
    owners=_with_writers,
)
fashion_mnist = DataSet(
    name="fashion-mnist",
    about="clothing, ten classes: 60,000 training and 10,000 test pictures of 28 x 28 grey pixels",
    size="55 MB",
    load=_kept("fashion-mnist"),
    kept="fashion-mnist",
    prepare=_FASHION,
)
cifar10 = DataSet(
    name="cifar10",
    about="animals and vehicles, ten classes: 50,000 training and 10,000 test pictures of 32 x 32 colour pixels",
    size="184 MB",
    load=_kept("cifar10"),
    kept="cifar10",
    prepare=Scale((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
)
cifar100 = DataSet(
    name="cifar100",
    about=(
        "animals, plants and things, a hundred classes: 50,000 training and 10,000 test pictures of 32 x 32 colour"
        " pixels"
    ),
    size="184 MB",
    load=_kept("cifar100"),
    kept="cifar100",
    pinned=False,
    prepare=Scale((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
)
tiny_imagenet = DataSet(
    name="tiny-imagenet",
    about="photographs, two hundred classes: 100,000 training and 10,000 test pictures of 64 x 64 colour pixels",
    size="1.4 GB",
    load=_kept("tiny-imagenet"),
    kept="tiny-imagenet",
    pinned=False,
    prepare=Scale((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
)
femnist = DataSet(
    name="femnist",
    about=(
        "handwritten digits and letters by writer, 62 classes: some 800,000 pictures of 28 x 28 grey pixels; from a"
        " folder of yours"
    ),
    size="640 MB",
    load=_kept("femnist"),
    kept="femnist",
    pinned=False,
    prepare=Scale(),
    split="natural",
    tested_on=0.1,
)
femnist_digits = replace(
    femnist,
    name="femnist-digits",
    about="the digits among FEMNIST, ten classes: some 400,000 pictures by writer",
    load=_femnist_digits,
)
digits = DataSet(
    name="digits",
    about=(
        "scikit-learn's own handwritten digits, no download: 1,500 training and 297 test pictures, enlarged to 28 x 28"
    ),
    size="1.4 MB",
    load=_digits,
    kept="digits",
    bundled=True,
    prepare=Scale((0.3051,), (0.3233,)),
)
fedcmnist = replace(
    mnist,
    name="fedcmnist",
    shift="coloured",
    about="MNIST, every client's digits in colours of its own; the test set's in others",
)
multi_colour_mnist = replace(
    mnist,
    name="multi-colour-mnist",
    shift="two-by-two",
    about="MNIST, two colours and two backgrounds a digit; the test set's are free",
)
binary_cmnist = replace(
    mnist,
    name="binary-cmnist",
    shift="binary",
    about="MNIST, below five or not: red or green tells in training and misleads in the test",
)
fedrotmnist = replace(
    mnist,
    name="fedrotmnist",
    shift="rotated",
    about="MNIST, each digit turned by an angle of its own; the test set upright",
)
fedrotfmnist = replace(
    fashion_mnist,
    name="fedrotfmnist",
    shift="rotated",
    about="Fashion-MNIST, each class turned by an angle of its own; the test set upright",
)
folder = DataSet(
    name="folder",
    about="your pictures: a folder as client/class/picture, with test/class/picture beside the clients",
    load=_folder,
    split="natural",
)
table = DataSet(
    name="table",
    about="your table: a .csv or .parquet file with a column of clients and one of labels, or a folder of such files",
    load=_table,
    split="natural",
)
arrays = DataSet(
    name="arrays",
    about="your arrays: an .npz file with x, y and, for natural clients, client",
    load=_arrays,
    split="natural",
)
huggingface = DataSet(
    name="huggingface",
    about="your Hugging Face dataset: a folder that save_to_disk wrote, with a column of clients and one of labels",
    load=_huggingface,
    split="natural",
)

_ALL = (
    *(mnist, fashion_mnist, cifar10, cifar100, tiny_imagenet, femnist, femnist_digits, digits),
    *(fedcmnist, multi_colour_mnist, binary_cmnist, fedrotmnist, fedrotfmnist),
    *(folder, table, arrays, huggingface),
)
DATASETS: dict[str, DataSet] = {data.name: data for data in _ALL}
