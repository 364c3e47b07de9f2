"""The work that engines and peers are timed on, and the data it is done on: random pictures, since speed does not
depend on what they show.

A measurement is `rounds` rounds of FedAvg, then one evaluation of the global model on `test` samples; where there is a
`target`, on MNIST and from a fresh model, as often as it takes to reach that accuracy.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from accord.models import shaped


@dataclass(frozen=True)
class Work:
    """`sample` of `clients` clients take part in a round, each with `samples` samples, in batches of `batch`, for one
    epoch."""

    name: str
    what: str
    clients: int
    sample: int
    samples: int
    batch: int
    shape: tuple[int, int, int]
    classes: int
    model: str
    rounds: int = 1
    test: int = 10_000
    lr: float = 0.01
    momentum: float = 0.9
    target: float | None = None

    def module(self) -> nn.Module:
        return shaped(self.model, self.shape, self.classes, seed=0)

    def data(self) -> tuple[Tensor, Tensor]:
        """Bytes and labels: clients one after another, then the test set."""
        if self.target is not None:
            return label_skewed(self.clients, self.samples, self.test)
        count = self.clients * self.samples + self.test
        generator = torch.Generator().manual_seed(0)
        x = torch.randint(0, 256, (count, *self.shape), dtype=torch.uint8, generator=generator)
        return x, torch.randint(0, self.classes, (count,), generator=generator)


def label_skewed(clients: int, samples: int, test: int) -> tuple[Tensor, Tensor]:
    """MNIST: nine tenths of a client's samples are from two places in the order of labels, the others from
    anywhere."""
    from accord.data import mnist  # here: peers, which map the data from files, need not have what it imports

    fed = mnist(clients=1, heldout=0)
    assert fed.test is not None
    generator = torch.Generator().manual_seed(0)
    every = next(iter(fed.train.values()))[torch.randperm(clients * samples, generator=generator)]
    anywhere, rest = every.split([clients * samples // 10, clients * samples - clients * samples // 10])
    places = rest[fed.y[rest].argsort()].view(2 * clients, -1)[torch.randperm(2 * clients, generator=generator)]
    dealt = torch.cat([places.view(clients, -1), anywhere.view(clients, -1)], 1)
    # in no order: one of the peers takes a client's samples as they come
    mixed = dealt.gather(1, torch.rand(clients, samples, generator=generator).argsort(1))
    rows = torch.cat([mixed.flatten(), fed.test[:test]])
    return fed.x[rows], fed.y[rows]


W1 = Work("W1", "10 clients x 6000, LeNet, batch 32", 10, 10, 6000, 32, (1, 28, 28), 10, "lenet")
W2 = Work("W2", "10 of 500 clients x 120, LeNet, batch 20", 500, 10, 120, 20, (1, 28, 28), 10, "lenet", rounds=10)
W3 = Work(
    "W3", "30 of 3,550 clients x 200, LEAF CNN, batch 20", 3550, 30, 200, 20, (1, 28, 28), 62, "leaf-cnn", test=2000
)
W4 = Work(
    "W4",
    "10 clients x 5000, ResNet-18 with GroupNorm, batch 32",
    10,
    10,
    5000,
    32,
    (3, 32, 32),
    10,
    "resnet18",
    test=2000,
)
WORKS = {work.name: work for work in (W1, W2, W3, W4)}
# What a user waits for: benchmarks/target.py.
T1 = Work(
    "T1",
    "10 of 100 label-skewed clients x 600, LeNet, batch 20",
    100,
    10,
    600,
    20,
    (1, 28, 28),
    10,
    "lenet",
    5,
    lr=0.05,
    target=0.97,
)
# A few steps of W1, W2 and W3, for `make bench-smoke`.
SMOKE = {
    "S1": replace(W1, name="S1", what="W1 with 640 samples a client", samples=640, test=500),
    "S2": replace(W2, name="S2", what="W2 with 20 clients, 3 rounds", clients=20, rounds=3, test=500),
    "S3": replace(W3, name="S3", what="W3 with 4 of 8 clients x 100", clients=8, sample=4, samples=100, test=250),
}
