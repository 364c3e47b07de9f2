"""Data by owner: the image sets, the ways to deal them to clients, and a federation from arrays of your own."""

from accord.data.arrays import from_arrays
from accord.data.federate import deal
from accord.data.federated import AsIs, Federation, Scale
from accord.data.images import DATASETS, ImageSet, available, cifar10, digits, fashion_mnist, get, mnist
from accord.data.partition import SPLITS

__all__ = [
    "DATASETS",
    "SPLITS",
    "AsIs",
    "Federation",
    "ImageSet",
    "Scale",
    "available",
    "cifar10",
    "deal",
    "digits",
    "fashion_mnist",
    "from_arrays",
    "get",
    "mnist",
]
