# A shift of your own: every client's pen has another strength, and the test set is written with one fainter than all of
# them. `tables` says once what each owner's pictures look like; `apply` is tensor code that looks it up, so it runs on
# every engine and device. Run it with: python examples/custom_shift.py

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import accord
from accord.core import draws


@dataclass(frozen=True)
class pens:
    """Ink times a strength from `low` to 1, drawn for each client by its name; times `test` in the test set."""

    low: float = 0.5
    test: float = 0.2
    channels: ClassVar[int | None] = None  # pictures keep as many as they had

    def relabel(self, y: Tensor) -> Tensor:
        return y  # labels stay as they are

    def tables(self, owners: Sequence[str], classes: int, seed: int) -> dict[str, Tensor]:
        strengths = [
            self.low + (1 - self.low) * float(draws.uniform(1, seed, "shift", "pen", name)[0]) for name in owners
        ]
        return {"strength": torch.tensor([*strengths, self.test])}  # the last row is the test set's

    def apply(self, x: Tensor, y: Tensor, owner: Tensor, sample: Tensor, tables: Mapping[str, Tensor]) -> Tensor:
        return x.float() * tables["strength"][owner].view(-1, 1, 1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Digits whose ink differs by client, and more so in the test set.")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for shift in ("none", pens()):
        fed = accord.data.digits(clients=20, split="iid", unseen=5, shift=shift)
        run = accord.fit(accord.models.logistic(), fed, accord.fedavg(mask=accord.gma(0.4)), rounds=rounds, lr=0.05)
        print(f"\nshift: {shift}\n{run}")


if __name__ == "__main__":
    main()
