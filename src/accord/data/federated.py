"""A federation: one tensor of samples, and for every client the rows that are its own.

Clients are either participating or unseen. A participating client's rows are cut into training and held-out data; an
unseen client's rows serve evaluation alone. No client has a copy of anything: 3,550 clients cost 3,550 short index
tensors.

On the way from a stored sample to what the model reads, in this order: the shift (it looks different at every owner),
augmentation (in training alone), and preparation (scaling).
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import vmap

from accord.core import draws
from accord.core.fields import Fields
from accord.data.shift import Shift

if TYPE_CHECKING:
    from accord.data.preparation import Column, Preparation, Refit

_READ = 256  # samples read at a time: pictures of that many stay in a core's cache

Rows = dict[str, Tensor]  # client id -> int64 row numbers into the data
Prepare = Callable[[Tensor], Tensor]  # stored samples -> what the model reads
Augment = Callable[[Tensor, "int | Tensor"], Tensor]  # (samples of a batch, key of its draws) -> samples


@functools.lru_cache(maxsize=256)
def constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers as a float32 tensor on the device, made once: a copy from the host for every batch would cost more than
    the arithmetic."""
    return torch.tensor(values, device=device)


@dataclass(frozen=True)
class Scale:
    """Whole-number pixels to floats: (x / 255 - mean) / std, by channel. `x: [B, C, H, W]`, uint8."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, x: Tensor) -> Tensor:
        x = x.float() / 255.0
        if not any(self.mean) and all(std == 1.0 for std in self.std):
            return x  # less 0 and over 1 would be two more passes over every batch
        return (x - constants(self.mean, x.device).view(-1, 1, 1)) / constants(self.std, x.device).view(-1, 1, 1)


@dataclass(frozen=True)
class AsIs:
    """Stored samples are what the model reads."""

    def __call__(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True, eq=False)
class Shifted:
    """A shift made ready for the owners of a federation. `owner: [N]` numbers them; the test set's number is the
    last."""

    shift: Shift
    owner: Tensor
    tables: dict[str, Tensor]

    def __call__(self, x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        return self.shift.apply(x, y, self.owner[rows], rows, self.tables)

    def to(self, device: torch.device | str) -> "Shifted":
        return replace(
            self, owner=self.owner.to(device), tables={name: table.to(device) for name, table in self.tables.items()}
        )


@dataclass(frozen=True, eq=False)
class Federation:
    """One data set dealt to many owners. `x: [N, ...]`, `y: [N, ...]`; the other fields say which rows are whose, or
    how they are read."""

    x: Tensor
    y: Tensor
    train: Rows
    heldout: Rows = field(default_factory=dict)
    unseen: Rows = field(default_factory=dict)
    test: Tensor | None = None  # rows of the data set's own test set, if it has one
    prepare: Prepare = AsIs()
    name: str = "data"
    others: Rows = field(default_factory=dict)  # further test sets, from other places, by name
    shift: Shifted | None = None
    augment: Augment | None = None
    populations: Mapping[str, str] = field(default_factory=dict)  # client -> the group of people it comes from
    classes: tuple[str, ...] = ()  # the classes' names, where they have any
    fields: Fields | None = None  # of samples that are several tensors: how they lie in `x`, flat
    columns: "tuple[Column, ...]" = ()  # of a table: how each became inputs of the model
    dropped: tuple[str, ...] = ()  # columns of a table that no model reads, such as an id
    notes: tuple[str, ...] = ()  # what a person should know of them
    # of a table: the same federation prepared by the clients that train now; see `refitted`
    refit: "Refit | None" = None
    applied: Prepare | None = None  # what `prepared` did ahead
    agreed: "Preparation | None" = None  # of a deployment's server, which has no samples: how its nodes prepare theirs
    pooled: bool = False  # all training data in one place: see `pool`

    def pool(self) -> "Federation":
        """The same data in one place: the baseline without a federation. A round trains one model on as many samples as
        its cohort would have, drawn from everybody's; evaluation is still by client."""
        return replace(self, pooled=True)

    def pooled_rows(self, clients: Sequence[str], seed: int, round: int) -> Tensor:
        """As many rows as these clients have, drawn from all that may be trained on."""
        everything = torch.cat(list(self.train.values()))
        count = sum(len(self.train[client]) for client in clients)
        return everything[torch.from_numpy(draws.choose(len(everything), count, seed, "pooled", round))]

    @property
    def clients(self) -> list[str]:
        """The participating clients, in their fixed order."""
        return list(self.train)

    def groups(self) -> Iterator[tuple[str, str, Tensor]]:
        """Everything that can be evaluated: (split, client, rows), with the test set as one group of its own."""
        for split in ("train", "heldout", "unseen"):
            for client, rows in getattr(self, split).items():
                yield split, client, rows
        if self.test is not None:
            yield "test", "test", self.test
        for name, rows in self.others.items():
            yield "other", name, rows

    def read(self, rows: Tensor, key: "int | Tensor | None" = None) -> tuple[Tensor, Tensor]:
        """What the model reads of these rows, and their labels. A training step gives the key that augmentation draws
        from.

        Rows may be those of several lanes, `[L, B]`, with a key for each lane, `[L]`.
        """
        x, y = self._seen(rows.reshape(-1))
        if self.augment is not None and key is not None:
            x = (
                self.augment(x, key)
                if rows.ndim == 1
                else vmap(self.augment)(x.view(*rows.shape, *x.shape[1:]), key).flatten(0, 1)
            )
        x = self.prepare(x)
        return x.view(*rows.shape, *x.shape[1:]), y.view(*rows.shape, *y.shape[1:])

    def read_steps(self, plan: Sequence[Tensor], keys: Callable[[int], int]) -> Iterator[tuple[Tensor, Tensor]]:
        """What the model reads at each training step, given the rows of every step and the key of a step's number.
        Unless augmentation draws for every step, several are read at once: reading is a handful of small operations,
        which take hardly longer for many samples than for few."""
        if self.augment is not None:
            return (self.read(rows, keys(number)) for number, rows in enumerate(plan))
        at_once = max(1, _READ // len(plan[0]))
        blocks = [plan[first : first + at_once] for first in range(0, len(plan), at_once)]
        return chain.from_iterable(map(self._read_block, blocks))

    def _read_block(self, steps: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.read(torch.cat(list(steps)))
        sizes = list(map(len, steps))
        return zip(x.split(sizes), y.split(sizes), strict=True)

    def look(self, rows: Tensor) -> Tensor:
        """These samples as their owners see them: shifted, but neither augmented nor prepared. For people, not for
        models."""
        return self._seen(rows)[0]

    def _seen(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        rows = rows.to(self.x.device)
        x, y = self.x[rows], self.y[rows]
        return (x if self.shift is None else self.shift(x, y, rows)), y

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample as the model reads it."""
        return tuple(self.read(torch.zeros(1, dtype=torch.int64, device=self.x.device))[0].shape[1:])

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for a sample, one per class or a single one where targets are not classes."""
        return 1 if self.y.is_floating_point() else max(int(self.y.max()) + 1, len(self.classes))

    def to(self, device: torch.device | str) -> "Federation":
        """The same federation with its samples on `device`; row numbers stay on the CPU, where batches are drawn."""
        return replace(self, x=self.x.to(device), y=self.y.to(device), shift=self.shift and self.shift.to(device))

    def prepared(self, most: int) -> "Federation":
        """The same federation with every sample stored as the model reads it, if that takes at most so many bytes: what
        a shift and preparation make of a sample is always the same. Augmentation is not, so with one nothing can be
        done ahead."""
        first = self.read(torch.zeros(1, dtype=torch.int64, device=self.x.device))[0]
        if (
            self.augment is not None
            or first.nbytes * len(self.y) > most
            or (self.shift is None and self.prepare == AsIs())
        ):
            return self
        x = first.new_empty(len(self.y), *first.shape[1:])
        for rows in torch.arange(len(self.y), device=self.x.device).split(8192):
            x[rows] = self.read(rows)[0]
        return replace(self, x=x, shift=None, prepare=AsIs(), applied=self.prepare)

    def fingerprint(self) -> str:
        """A hash of every sample and every client's rows, as stored: before shift, augmentation and preparation."""
        digest = hashlib.blake2b(digest_size=16)
        for tensor in (self.x, self.y):
            digest.update(str((tensor.dtype, tuple(tensor.shape))).encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        for split, client, rows in self.groups():
            digest.update(f"{split}/{client}/".encode() + rows.numpy().tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        sizes = [len(rows) for rows in self.train.values()]
        parts = [
            f"{self.name}: {len(self.x):,} samples",
            (
                f"{len(self.train)} participating clients ({min(sizes, default=0)} to {max(sizes, default=0)} training"
                " samples)"
            ),
            f"{len(self.unseen)} unseen",
        ]
        return ", ".join(parts) + (f", test set of {len(self.test):,}" if self.test is not None else "")
