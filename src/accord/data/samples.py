"""A data set before it is dealt: samples, labels, its own test set, and who made what, where that is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from accord.data.federated import Federation


@dataclass(frozen=True, eq=False)
class Samples:
    """`x: [N, ...]` and `y: [N]`, whole numbers for classes, float32 for a regression; every other field is about these
    rows."""

    x: Tensor
    y: Tensor
    test: Tensor | None = None  # rows of its own test set
    owner: Tensor | None = None  # [N] int64, a number into `owners` for every row; -1: nobody's
    owners: tuple[str, ...] = ()  # its natural clients, by name
    apart: frozenset[str] = frozenset()  # natural clients that are there to be tested on, and never train
    populations: Mapping[str, str] = field(default_factory=dict)  # natural client -> the group of people it comes from
    classes: tuple[str, ...] = ()  # the classes' names, where they have any

    def ready(self, fed: Federation, natural: bool) -> Federation:
        """A federation of these samples, whose clients are natural or made up, as numbers that a model can read; most
        are so already."""
        return fed
