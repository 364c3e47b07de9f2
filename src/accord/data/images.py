"""The image sets: MNIST, Fashion-MNIST, CIFAR-10 and scikit-learn's digits, ready to be dealt to clients."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from accord.data import cache
from accord.data.bundled import bundled_digits
from accord.data.cache import Arrays, Progress
from accord.data.federate import deal
from accord.data.federated import Federation, Scale
from accord.data.recipes import CIFAR10, FASHION_MNIST, MNIST
from accord.data.sources import fetch
from accord.errors import AccordError

Obtain = Callable[[Path, "str | Path | None", "Progress | None"], Arrays]  # scratch folder, source, progress -> arrays


@dataclass(frozen=True)
class ImageSet:
    """A data set by name. Call it to deal it to clients: `mnist(clients=100, split="labels", unseen=20, classes=2)`."""

    name: str
    about: str
    size: str
    scale: Scale
    obtain: Obtain

    def __call__(
        self,
        *,
        clients: int = 100,
        split: str = "iid",
        unseen: int = 0,
        heldout: float = 0.1,
        seed: int = 0,
        source: str | Path | None = None,
        progress: Progress | None = None,
        **split_options: Any,
    ) -> Federation:
        """The training set dealt to `clients` participating and `unseen` other clients; the official test set is `test`.

        Got from `source` (a folder), mirrors or packages when it is needed for the first time. `split` is one of `SPLITS`, and
        `split_options` are its own: classes and noise, alpha, or beta.
        """
        get(self.name, source, progress)
        arrays = cache.load(self.name)
        first_test, end = len(arrays["train_y"]), len(arrays["train_y"]) + len(arrays["test_y"])
        return deal(
            torch.cat([arrays["train_x"], arrays["test_x"]]),
            torch.cat([arrays["train_y"], arrays["test_y"]]).long(),
            split=split,
            clients=clients,
            unseen=unseen,
            heldout=heldout,
            seed=seed,
            test=torch.arange(first_test, end),
            prepare=self.scale,
            name=self.name,
            **split_options,
        )


def get(name: str, source: str | Path | None = None, progress: Progress | None = None) -> Path:
    """The data set's file in the cache, got first if it is not there yet; if it is, `source` is not looked at."""
    chosen = _named(name)
    return cache.once(name, lambda scratch: chosen.obtain(scratch, source, progress), progress)


def available(name: str) -> bool:
    """Whether the data set is in the cache, so that using it needs no network."""
    return cache.path(_named(name).name).exists()


def _named(name: str) -> ImageSet:
    if name not in DATASETS:
        raise AccordError(f"there is no data set {name!r}: the data sets are {', '.join(DATASETS)}")
    return DATASETS[name]


mnist = ImageSet(
    name="mnist",
    about="handwritten digits, ten classes: 60,000 training and 10,000 test pictures of 28 x 28 grey pixels",
    size="55 MB",
    scale=Scale((0.1307,), (0.3081,)),
    obtain=partial(fetch, MNIST),
)
fashion_mnist = ImageSet(
    name="fashion-mnist",
    about="clothing, ten classes: 60,000 training and 10,000 test pictures of 28 x 28 grey pixels",
    size="55 MB",
    scale=Scale((0.2860,), (0.3530,)),
    obtain=partial(fetch, FASHION_MNIST),
)
cifar10 = ImageSet(
    name="cifar10",
    about="animals and vehicles, ten classes: 50,000 training and 10,000 test pictures of 32 x 32 colour pixels",
    size="184 MB",
    scale=Scale((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    obtain=partial(fetch, CIFAR10),
)
digits = ImageSet(
    name="digits",
    about="scikit-learn's own handwritten digits, no download: 1,500 training and 297 test pictures, enlarged to 28 x 28",
    size="1.4 MB",
    scale=Scale((0.3051,), (0.3233,)),
    obtain=lambda scratch, source, progress: bundled_digits(),
)

DATASETS: dict[str, ImageSet] = {data.name: data for data in (mnist, fashion_mnist, cifar10, digits)}
