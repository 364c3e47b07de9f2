"""What every engine has from the contract: draws with a key for each client, round and step, and one order of sums."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord.core.record import Record, State, total
from accord.data import CropFlip, Federation, Scale
from accord.engines.contract import ClientRow, Engine, Job, Member, Part, batches, shards, whole
from accord.engines.processes import Processes
from accord.engines.sequential import Sequential
from accord.engines.vectorised import Vectorised
from conftest import blobs, mlp
from engine_jobs import make_job, make_work


def members(count: int) -> list[Member]:
    return [Member(f"c{number:02d}", torch.arange(number, number + 1)) for number in range(count)]


def test_every_client_round_and_epoch_has_an_order_of_its_own() -> None:
    job = make_job(epochs=3, batch=40)
    rows = torch.arange(40)
    orders = [
        tuple(order.tolist())
        for round in (1, 2)
        for client in ("c00", "c01")
        for order in batches(job, round, Member(client, rows))
    ]
    assert all(sorted(order) == rows.tolist() for order in orders)
    assert len(set(orders)) == len(orders) == 2 * 2 * 3


class Drawing(nn.Module):
    """Notes what it draws in training, by torch's own generator and for dropout, and the augmented pictures it gets."""

    noted: ClassVar[dict[str, list[Tensor]]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            drawn = {"generator": torch.rand(4), "dropout": F.dropout(torch.ones(64), 0.5, True), "augment": x}
            for name, value in drawn.items():
                self.noted.setdefault(name, []).append(value.flatten())
        return self.inner(x.flatten(1))


@pytest.mark.parametrize("what", ["generator", "dropout", "augment"])
def test_no_step_of_any_client_or_round_draws_what_another_did(what: str) -> None:
    """Two steps of two clients in two rounds. All samples are the same picture."""
    x, y = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).repeat(16, 1, 1, 1), torch.zeros(16, dtype=torch.int64)
    clients = {"c00": torch.arange(8), "c01": torch.arange(8, 16)}
    fed = replace(Federation(x, y, clients, prepare=Scale((0.5,), (0.3,)), name="alike"), augment=CropFlip(4))
    job = make_job(module=Drawing(), fed=fed, epochs=2, batch=8)
    engine, (work, cohort) = Sequential(job), make_work(job)
    Drawing.noted.clear()  # of the look that an engine takes at a model
    for round in (1, 2):
        engine.train(replace(work, round=round), cohort)
    values = Drawing.noted[what]
    assert len({tuple(value.tolist()) for value in values}) == len(values) == 2 * 2 * 2


@pytest.mark.parametrize("clients", [1, 5, 16, 17, 40, 1000])
def test_a_cohort_is_summed_in_sixteen_consecutive_parts(clients: int) -> None:
    cohort = members(clients)
    parts = shards(cohort)
    assert [member for part in parts for member in part] == cohort
    assert len(parts) == min(16, clients)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_parts_are_added_in_their_order() -> None:
    def part(name: str, value: float) -> Part:
        return Part(Record(delta=total(torch.tensor([[value]]))), [ClientRow(name, 1, 1, 0.0, 0.0)])

    values = {"a": 1e8, "b": -1e8, "c": 1.0}  # in another order float32 loses the last one
    outcome = whole(accord.fedavg(), [part(name, value) for name, value in values.items()])
    assert outcome.record is not None and outcome.record["delta"].item() == 1.0
    assert [row.client for row in outcome.rows] == list(values)


def test_clients_are_added_in_their_order() -> None:
    for weight in (None, torch.ones(3, 1)):
        assert total(torch.tensor([[1e8], [-1e8], [1.0]]), weight).value.item() == 1.0


@pytest.mark.parametrize("engine", [Sequential, Vectorised, Processes])
def test_what_accepted_clients_remember_is_staged_and_no_more(engine: Callable[[Job], Engine]) -> None:
    fed = blobs()
    x = fed.x.clone()
    x[fed.train["c03"]] = torch.nan
    job = make_job(accord.scaffold(), module=mlp(), fed=replace(fed, x=x))
    (work, cohort), staged = make_work(job), dict[str, State]()
    trainer = engine(job)
    try:
        outcome = trainer.train(replace(work, stage=staged.__setitem__), cohort)
    finally:
        trainer.close()
    accepted = {row.client for row in outcome.accepted}
    assert staged.keys() == accepted == {member.client for member in cohort} - {"c03"}
    assert all(bool(state["c"].isfinite().all()) for state in staged.values())


def test_the_gradient_of_all_data_is_the_mean_over_all_samples() -> None:
    """Of more samples than fit into one part, whose parts differ in size."""
    fed = blobs(clients=1, samples=1400, unseen=0)
    job = make_job(accord.scaffold("I"), module=nn.Linear(6, 4), fed=fed, batch=None, momentum=0.0)
    engine, (work, cohort) = Sequential(job), make_work(job)
    staged: dict[str, Tensor] = {}
    engine.train(replace(work, stage=lambda _, state: staged.update(state)), cohort)
    (rows,) = fed.train.values()
    module = job.module
    gradients = torch.autograd.grad(F.cross_entropy(module(fed.x[rows]), fed.y[rows]), list(module.parameters()))
    assert len(rows) > 1024
    assert torch.allclose(staged["c"], torch.cat([gradient.flatten() for gradient in gradients]), atol=1e-6)
