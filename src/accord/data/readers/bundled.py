"""scikit-learn's 1,797 handwritten digits, which come with it: data for a first run without a network."""

import numpy as np
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.samples import Samples

TRAINING = 1500  # the first so many; the other 297 are the test set


def bundled_digits() -> Samples:
    """The digits in MNIST's shape, so that the same models read them."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise AccordError(
            "the digits come with scikit-learn, which is not installed: pip install 'scikit-learn>=1.4'"
        ) from None
    bundle = load_digits()
    x, y = enlarge(bundle.images), torch.from_numpy(bundle.target.astype(np.uint8))
    return Samples(x, y, test=torch.arange(TRAINING, len(y)))


def enlarge(pictures: np.ndarray) -> Tensor:
    """Pictures of 8 x 8 whole numbers from 0 to 16 as [N, 1, 28, 28] bytes, bilinearly.

    Pixel i of 28 lies at (4 i - 5) / 14 of 8: weights are fourteenths, and whole numbers give the same bytes
    everywhere.
    """
    weights = np.zeros((28, 8), dtype=np.int64)
    for i in range(28):
        # beyond the outer pixels' middles the edge goes on unchanged
        below, part = divmod(min(max(4 * i - 5, 0), 98), 14)
        weights[i, below] += 14 - part
        weights[i, min(below + 1, 7)] += part
    total = weights @ pictures.astype(np.int64) @ weights.T  # [N, 28, 28], 16 * 14 * 14 where the picture is white
    white = 16 * 14 * 14
    return torch.from_numpy(((2 * 255 * total + white) // (2 * white)).astype(np.uint8)).unsqueeze(1)
