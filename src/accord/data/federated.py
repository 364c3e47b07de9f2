"""A federation: one tensor of samples, and for every client the rows that are its own.

Clients are either participating or unseen. A participating client's rows are cut into training and held-out data; an unseen
client's rows serve evaluation alone. No client has a copy of anything: 3,550 clients cost 3,550 short index tensors.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

Rows = dict[str, Tensor]  # client id -> int64 row numbers into the data
Prepare = Callable[[Tensor], Tensor]  # stored samples -> what the model reads


@dataclass(frozen=True)
class Scale:
    """Whole-number pixels to floats: (x / 255 - mean) / std, by channel. `x: [B, C, H, W]`, uint8."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, x: Tensor) -> Tensor:
        mean = torch.tensor(self.mean, device=x.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=x.device).view(-1, 1, 1)
        return (x.float() / 255.0 - mean) / std


@dataclass(frozen=True)
class AsIs:
    """Stored samples are what the model reads."""

    def __call__(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True, eq=False)
class Federation:
    """One data set dealt to many owners. `x: [N, ...]`, `y: [N, ...]`; every other field says which rows are whose."""

    x: Tensor
    y: Tensor
    train: Rows
    heldout: Rows = field(default_factory=dict)
    unseen: Rows = field(default_factory=dict)
    test: Tensor | None = None  # rows of the data set's own test set, if it has one
    prepare: Prepare = AsIs()
    name: str = "data"

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

    def to(self, device: torch.device | str) -> "Federation":
        """The same federation with its samples on `device`; row numbers stay on the CPU, where batches are drawn."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def fingerprint(self) -> str:
        """A hash of every sample and every client's rows, before `prepare`."""
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
            f"{len(self.train)} participating clients ({min(sizes, default=0)} to {max(sizes, default=0)} training samples)",
            f"{len(self.unseen)} unseen",
        ]
        return ", ".join(parts) + (f", test set of {len(self.test):,}" if self.test is not None else "")
