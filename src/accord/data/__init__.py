"""Data by owner: the data sets, the ways to give them to clients, and federations from data of your own."""

from accord.data.augment import AUGMENTS, CropFlip
from accord.data.bridges import from_flwr_datasets, from_huggingface, from_torch
from accord.data.catalogue import (
    DATASETS,
    arrays,
    available,
    binary_cmnist,
    cifar10,
    cifar100,
    digits,
    fashion_mnist,
    fedcmnist,
    fedrotfmnist,
    fedrotmnist,
    femnist,
    femnist_digits,
    folder,
    get,
    huggingface,
    mnist,
    multi_colour_mnist,
    table,
    tiny_imagenet,
)
from accord.data.colours import binary, coloured, two_by_two
from accord.data.dataset import DataSet
from accord.data.federate import deal, natural, shifted, with_tests
from accord.data.federated import AsIs, Federation, Scale
from accord.data.from_arrays import from_arrays, from_samples
from accord.data.partition import SPLITS
from accord.data.samples import Samples
from accord.data.shift import SHIFTS, rotated
from accord.data.standardise import Standardise, fitted
from accord.data.unseen import leave_out

__all__ = [
    "AUGMENTS",
    "DATASETS",
    "SHIFTS",
    "SPLITS",
    "AsIs",
    "CropFlip",
    "DataSet",
    "Federation",
    "Samples",
    "Scale",
    "Standardise",
    "arrays",
    "available",
    "binary",
    "binary_cmnist",
    "cifar10",
    "cifar100",
    "coloured",
    "deal",
    "digits",
    "fashion_mnist",
    "fedcmnist",
    "fedrotfmnist",
    "fedrotmnist",
    "femnist",
    "femnist_digits",
    "fitted",
    "folder",
    "from_arrays",
    "from_flwr_datasets",
    "from_huggingface",
    "from_samples",
    "from_torch",
    "get",
    "huggingface",
    "leave_out",
    "mnist",
    "multi_colour_mnist",
    "natural",
    "rotated",
    "shifted",
    "table",
    "tiny_imagenet",
    "two_by_two",
    "with_tests",
]
