"""Mistakes in a part of somebody's own: one sentence that names the part and the method, before the first round."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import accord
from accord.core.layout import Layout
from accord.core.protocols import Average, Local, Mask, Server
from accord.core.record import Record, total
from accord.rules.algorithm import Algorithm
from accord.rules.rehearsal import rehearse
from conftest import sentence

LAYOUT = Layout.flat(6)


class Votes(Mask):
    def lift(self, reports: Any, sent: Any) -> Record:
        return Record(votes=total(reports.delta.sign()))

    def lower(self, total: Any, state: Any, round: Any) -> Any:
        return torch.ones_like(total["votes"]), state


class NoLower(Mask):
    lift = Votes.lift


class Double(Votes):
    def lower(self, total: Any, state: Any, round: Any) -> Any:
        return torch.ones_like(total["votes"], dtype=torch.float64), state


class Short(Votes):
    def lower(self, total: Any, state: Any, round: Any) -> Any:
        return torch.ones(3), state


@dataclass(frozen=True)
class ShortByField(Short):
    size: int = 3


class Alone(Votes):
    def lower(self, total: Any, state: Any, round: Any) -> Any:
        return torch.ones_like(total["votes"])


class Forgets(Votes):
    def init(self, layout: Layout, clients: int) -> Any:
        return {"h": torch.zeros(layout.size)}

    def lower(self, total: Any, state: Any, round: Any) -> Any:
        return torch.ones_like(total["votes"]), {}


class Table(Votes):
    def lift(self, reports: Any, sent: Any) -> Any:
        return {"votes": reports.delta}


class Mean(Votes):
    def lift(self, reports: Any, sent: Any) -> Any:
        return Record(votes=total(reports.delta / reports.delta.shape[-2]))


class Undeclared(Average):
    def lift(self, reports: Any, sent: Any) -> Record:
        return Record(gradient=total(reports.extra["mean_gradient"]))

    def lower(self, total: Any, state: Any, round: Any) -> Any:
        return total["gradient"], state


class Swapped(Server):
    lr = 1.0

    def direction(self, state: Any, update: Any) -> Any:
        return update, state


class Bare(Votes):
    def lift(self, reports: Any, sent: Any) -> Record:
        return Record(votes=reports.delta.sum(-2), count=reports.count)


class ShortApply(Votes):
    def apply(self, mask: Tensor, direction: Tensor) -> Tensor:
        return (mask * direction)[:3]


class Keepless(Local):
    remembers = ("h",)


class Number(Local):
    def init(self, layout: Layout, clients: int) -> Any:
        return {"c": 0.5}


class ShortDrift(Local):
    def drift(self, sent: Any, client_state: Any) -> Any:
        return torch.ones(3)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"mask": NoLower()}, "mask NoLower: lower must return (tensor, state) with a tensor [6] of float32"),
        ({"mask": Double()}, "mask Double: lower must return"),
        ({"mask": Short()}, "got a tensor [3] of float32"),
        ({"mask": accord.scaled(Short())}, "mask scaled: lower must return (tensor, state) with a tensor [6]"),
        ({"mask": accord.scaled(ShortByField())}, "mask scaled: lower must return"),
        ({"mask": Alone()}, "got a tensor [6] of float32"),
        ({"mask": ShortApply()}, "mask ShortApply: apply must return a tensor [6]"),
        ({"mask": Forgets()}, "mask Forgets: lower must keep the state {'h': '[6] of float32'}, and gave {}"),
        ({"mask": Table()}, "mask Table: lift must return a Record of sums"),
        ({"mask": Bare()}, "mask Bare: lift must return a Record of sums"),
        ({"mask": Mean()}, "mask Mean: votes of lift is no sum over clients"),
        ({"average": Undeclared()}, "average Undeclared: lift failed with KeyError: 'mean_gradient'"),
        ({"server": Swapped()}, "server rule Swapped: direction must return (state, tensor)"),
        ({"local": Keepless()}, "local rule Keepless: keep must keep the state"),
        ({"local": Number()}, "local rule Number: init must return a dictionary of tensors, got a dict"),
        ({"local": ShortDrift()}, "local rule ShortDrift: drift must return a tensor [6] or None"),
    ],
)
def test_a_mistake_in_a_part_is_a_sentence(parts: dict[str, Any], said: str) -> None:
    with sentence(said):
        rehearse(Algorithm(**parts), LAYOUT, 10)


def test_a_sound_part_passes() -> None:
    rehearse(Algorithm(mask=Votes()), LAYOUT, 10)


def test_needs_are_a_set() -> None:
    class Tuple(Votes):
        needs = ("mean_gradient",)  # type: ignore[assignment]

    with sentence("needs of mask must be a set of names", "got ('mean_gradient',)"):
        Algorithm(mask=Tuple())


@dataclass(frozen=True)
class Pull(Local):
    """A drift of every client alike, with nothing remembered."""

    by: float = 0.05

    def drift(self, sent: Any, client_state: Any) -> Any:
        return torch.full((7850,), self.by)


def test_a_drift_without_a_memory_counts_on_every_engine() -> None:
    fed = accord.data.digits(clients=4, seed=0)
    vectors = []
    for engine in ("sequential", "vectorised", "processes"):
        model = accord.models.logistic()
        run = accord.fit(model, fed, Algorithm(local=Pull()), rounds=2, engine=engine, verbose=False)
        vectors.append(torch.cat([value.flatten() for value in run.model().state_dict().values()]))
    plain = accord.fit(accord.models.logistic(), fed, rounds=2, engine="sequential", verbose=False)
    assert all(torch.allclose(vectors[0], vector, atol=1e-5) for vector in vectors)
    unmoved = torch.cat([value.flatten() for value in plain.model().state_dict().values()])
    assert float((vectors[0] - unmoved).abs().max()) > 0.01
