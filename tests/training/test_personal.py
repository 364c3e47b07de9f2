"""Parameters that stay with the clients: by hand, against plain loops, and from the outside."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord import AccordError
from accord.core.layout import Layout
from accord.core.personal import personal_names
from accord.data import Federation
from accord.engines import contract
from accord.engines.contract import Member
from accord.engines.processes import Processes
from accord.engines.sequential import Sequential
from accord.engines.vectorised import Vectorised
from accord.training.engine_choice import make_engine
from accord.training.loop import Loop
from conftest import blobs, mlp
from engine_jobs import make_job, run

ENGINES = [Sequential, Vectorised, Processes]


class Net(nn.Module):
    """A base, a normalisation and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Linear(6, 8)
        self.bn = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn(self.base(x))))


def by_hand(job: contract.Job, fed: Federation, rounds: int, personal: Sequence[str]) -> dict[str, nn.Module]:
    """FedAvg with plain modules and torch.optim: each client has one of its own, of which all but the personal names
    is replaced by the weighted mean after every round."""
    clients = {client: Net() for client in fed.clients}
    sizes = {client: len(rows) for client, rows in fed.train.items()}
    for round in range(1, rounds + 1):
        for client, module in clients.items():
            optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
            for rows in contract.batches(job, round, Member(client, fed.train[client]), least=2):
                x, y = fed.read(rows)
                optimiser.zero_grad()
                F.cross_entropy(module(x), y).backward()
                optimiser.step()
        states = {client: module.state_dict() for client, module in clients.items()}
        for name in set(states[fed.clients[0]]) - set(personal):
            mean = sum(states[client][name].double() * sizes[client] for client in clients) / sum(sizes.values())
            for state in states.values():
                state[name].copy_(mean)
    return clients


def model_of(loop: Loop, client: str) -> nn.Module:
    job, now = loop.job, loop.progress
    return job.whole.load(Net(), *job.assembled(now.vector, now.buffers, loop._state_of(client)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["batchnorm"], {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}),
        (["head.*"], {"head.weight", "head.bias"}),
        (["last", "*.running_*"], {"head.weight", "head.bias", "bn.running_mean", "bn.running_var"}),
    ],
    ids=["FedBN", "FedPer", "both"],
)
def test_rounds_are_those_of_plain_modules_whose_personal_part_is_never_averaged(
    patterns: list[str], names: set[str], engine: Any
) -> None:
    """Two clients, three rounds: every parameter and buffer of both."""
    fed = blobs(clients=2)
    job = make_job(accord.fedavg().with_personal(*patterns), Net(), fed)
    loop = run(engine(job), job, rounds=3)
    expected = by_hand(job, fed, 3, sorted(names))
    for client, module in expected.items():
        found = model_of(loop, client).state_dict()
        for name, value in module.state_dict().items():
            if name == "bn.num_batches_tracked" and name not in names:
                continue  # an average of counters is not whole
            assert torch.allclose(found[name], value, atol=2e-5), (client, name)
    one, other = (module.state_dict() for module in expected.values())
    assert all(not torch.equal(one[name], other[name]) for name in names if "num_batches" not in name)


@pytest.mark.parametrize("engine", ENGINES)
def test_with_a_shared_part_that_stands_still_a_head_is_what_local_training_makes_of_it(engine: Any) -> None:
    """A server that adds nothing: every client's head goes on as if it trained alone over a base that is reset."""
    fed = blobs(clients=3)
    job = make_job(accord.fedavg(lr=1e-30).with_personal("head.*", "bn"), Net(), fed)
    loop = run(engine(job), job, rounds=2)
    for client in fed.clients:
        module, base = Net(), Net().base.state_dict()
        for round in (1, 2):
            module.base.load_state_dict(base)
            optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
            for rows in contract.batches(job, round, Member(client, fed.train[client]), least=2):
                x, y = fed.read(rows)
                optimiser.zero_grad()
                F.cross_entropy(module(x), y).backward()
                optimiser.step()
        assert torch.allclose(model_of(loop, client).head.weight, module.head.weight, atol=1e-5)


@pytest.mark.parametrize(
    "algorithm",
    [
        accord.fedavg(mask=accord.gma(0.4)),
        accord.scaffold(),
        accord.fedadam(),
        accord.Algorithm(average=accord.corrective(0.3)),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_lanes_do_what_the_sequential_engine_does(algorithm: accord.Algorithm) -> None:
    """Also what is reported besides: gradients and control variates of the shared part alone."""
    job = make_job(algorithm.with_personal("head"), Net(), blobs(clients=4))
    one, other = (run(engine(job), job, rounds=2) for engine in (Sequential, Vectorised))
    assert torch.allclose(one.progress.vector, other.progress.vector, atol=2e-5)
    for client in job.fed.clients:
        mine, its = one._state_of(client), other._state_of(client)
        assert mine.keys() == its.keys()
        assert all(torch.allclose(mine[name], its[name], atol=2e-5) for name in mine)


def test_a_mask_sees_what_is_shared_and_nothing_else() -> None:
    run = accord.fit(
        Net(),
        blobs(clients=4),
        accord.fedavg(mask=accord.gma(0.6)).with_personal("head", "bn"),
        rounds=2,
        verbose=False,
    )
    assert set(run.rows[-1]["agreement_by_layer"]) == {"base.weight", "base.bias"}
    assert len(run.last.vector) == 6 * 8 + 8 and len(run.last.buffers) == 0


def test_figures_are_those_of_each_clients_own_model_and_unseen_ones_have_the_first_part() -> None:
    fed = blobs(clients=3, unseen=2)
    job = make_job(accord.fedavg().with_personal("head", "bn"), Net(), fed)
    loop = run(Sequential(job), job, rounds=2)
    table = loop.evaluated()
    found = {group: int(sums) for group, sums in zip(table.groups, table.sums["accuracy"], strict=True)}

    @torch.no_grad()
    def right(module: nn.Module, rows: Tensor) -> int:
        x, y = fed.read(rows)
        return int((module.eval()(x).argmax(1) == y).sum())

    for client in fed.clients:
        assert found["heldout", client] == right(model_of(loop, client), fed.heldout[client])
    first = job.layout.load(Net(), loop.progress.vector, loop.progress.buffers)
    parts = [loop._state_of(client) for client in fed.clients]
    mean = {name: sum(part[name] for part in parts) / 3 for name in parts[0]}
    middle = job.whole.load(Net(), *job.assembled(loop.progress.vector, loop.progress.buffers, mean))
    for client, rows in fed.unseen.items():
        assert found["unseen", client] == right(first, rows)
        assert found["unseen, mean of personal parts (simulation only)", client] == right(middle, rows)


@pytest.mark.parametrize("algorithm", [accord.fedavg(), accord.fedavg().with_personal("head")], ids=["all", "FedPer"])
def test_unseen_clients_adapt_on_one_half_and_are_judged_on_the_other(algorithm: accord.Algorithm) -> None:
    fed = blobs(clients=4, unseen=2)
    settings = {"rounds": 2, "lr": 0.05, "engine": "sequential", "verbose": False}
    run = accord.fit(Net(), fed, algorithm, adapt_steps=30, **settings)
    rows = run.history[-1][1].parts
    before, after = rows["unseen, rest before adapting"], rows["unseen, rest after 30 steps"]
    assert before.samples == after.samples < sum(map(len, fed.unseen.values()))
    assert after.metrics["loss"].by_sample < before.metrics["loss"].by_sample
    plain = accord.fit(Net(), fed, algorithm, **settings)
    assert torch.equal(plain.last.vector, run.last.vector), "adapting changed the training"


@pytest.mark.parametrize("algorithm", [accord.fedavg().with_personal("head"), accord.ditto()], ids=["FedPer", "ditto"])
def test_metrics_of_a_whole_group_are_those_of_all_samples_each_by_its_own_model(algorithm: accord.Algorithm) -> None:
    fit = partial(
        accord.fit, Net(), blobs(clients=3, unseen=2), algorithm, rounds=2, engine="sequential", adapt_steps=5
    )
    both, one = (fit(metrics=metrics, verbose=False).history[-1][1] for metrics in (["accuracy", "f1"], ["accuracy"]))
    assert both.parts.keys() == one.parts.keys() and len(one.parts) >= 3
    for mine, theirs in ((both.splits, one.splits), (both.parts, one.parts)):
        for name, row in theirs.items():
            assert mine[name].metrics["accuracy"] == row.metrics["accuracy"]
            assert 0.0 <= mine[name].metrics["f1"].by_sample <= 1.0


def test_privacy_covers_what_is_shared_so_that_statistics_that_stay_home_are_allowed() -> None:
    pytest.importorskip("dp_accounting")
    private = accord.fedavg(weighting="uniform").with_privacy(clip=1.0, noise=0.1)
    fit = partial(accord.fit, Net(), blobs(clients=4), rounds=2, engine="sequential", verbose=False)
    with pytest.raises(AccordError, match="bn.running_mean"):
        fit(private)
    assert fit(private.with_personal("batchnorm")).rows[-1]["accepted"] == 4


def test_personal_parts_survive_a_stop_and_a_resume(tmp_path: Path) -> None:
    fit = partial(
        accord.fit, Net(), blobs(clients=4), accord.fedavg().with_personal("head"), sample=2, engine="sequential",
        verbose=False,
    )  # fmt: skip
    whole = fit(rounds=6, folder=tmp_path / "a")
    fit(rounds=3, folder=tmp_path / "b")
    resumed = fit(rounds=6, folder=tmp_path / "b")
    assert torch.equal(whole.last.vector, resumed.last.vector) and whole.clients == resumed.clients


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        (["heads.*"], "personal names 'heads.*', which no parameter, buffer or layer is called: did you mean 'head"),
        (["zzz"], "personal names 'zzz', which no parameter, buffer or layer is called: choose one of"),
        (["*"], "personal names every parameter of the model, got ['*'], and nothing would be shared"),
        (["base", "bn", "last"], "personal names every parameter of the model"),
    ],
)
def test_patterns_that_name_nothing_or_all_are_refused(patterns: list[str], told: str) -> None:
    with pytest.raises(AccordError) as error:
        accord.fit(Net(), blobs(clients=2), accord.fedavg().with_personal(*patterns))
    assert str(error.value).startswith(told)


def test_models_without_a_common_one_have_nothing_to_adapt() -> None:
    with pytest.raises(AccordError, match="adapt_steps has no meaning with local_only"):
        accord.fit(Net(), blobs(clients=2), accord.local_only(), adapt_steps=3)


@pytest.mark.parametrize("make", [accord.local_only, accord.pooled, accord.causalfed, accord.ditto])
def test_algorithms_without_a_shared_average_refuse_a_personal_part(make: Any) -> None:
    with pytest.raises(AccordError, match="personal has no meaning with"):
        make().with_personal("head")


def test_names_and_kinds() -> None:
    net = Net()
    assert personal_names(net, ["bn"]) == personal_names(net, ["batchnorm"]) == personal_names(net, ["norm"])
    assert personal_names(net, ["last"]) == {"head.weight", "head.bias"}
    layout = Layout.of(net, ["base.*"])
    whole = layout.whole(net)
    assert [entry.name for entry in whole.parameters][-2:] == ["base.weight", "base.bias"]
    assert whole.size == Layout.of(net).size and torch.equal(whole.pack(net)[: layout.size], layout.pack(net))
    assert Layout.of(net).whole(net) == Layout.of(net)


# -------------------------------------------------------------------------------------------------------- Ditto


@pytest.mark.parametrize("engine", ["sequential", "vectorised", "processes"])
def test_ditto_is_fedavg_and_a_model_of_ones_own_pulled_towards_it(engine: str) -> None:
    """Against plain modules with torch.optim: every client's own model after three rounds, and the common one."""
    fed, lam = blobs(clients=3), 0.7
    job = make_job(accord.ditto(lam=lam), mlp(), fed, momentum=0.5)
    loop = run(make_engine(engine, job), job, rounds=3)
    common = run(Sequential(plain := make_job(accord.fedavg(), mlp(), fed, momentum=0.5)), plain, rounds=3)
    assert torch.allclose(loop.progress.vector, common.progress.vector, atol=1e-5)
    own = {client: mlp() for client in fed.clients}
    for round in (1, 2, 3):
        sent = mlp()
        before = run(Sequential(plain), plain, rounds=round - 1).progress if round > 1 else None
        if before is not None:
            plain.layout.load(sent, before.vector, before.buffers)
        for client, module in own.items():
            optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.5)
            for rows in contract.batches(job, round, Member(client, fed.train[client])):
                x, y = fed.read(rows)
                pairs = zip(module.parameters(), sent.parameters(), strict=True)
                pull = sum((v - w.detach()).square().sum() for v, w in pairs)
                optimiser.zero_grad()
                (F.cross_entropy(module(x), y) + lam / 2 * pull).backward()
                optimiser.step()
    for client, module in own.items():
        assert torch.allclose(loop._state_of(client)["w"], job.layout.pack(module), atol=2e-5)


def test_ditto_without_a_pull_is_local_only_beside_fedavg_and_is_judged_by_clients_own_models() -> None:
    fit = partial(accord.fit, mlp(), blobs(), rounds=3, engine="sequential", verbose=False)
    ditto, alone, common = fit(accord.ditto(lam=0.0)), fit(accord.local_only()), fit(accord.fedavg())
    mine, theirs, shared = (run.history[-1][1] for run in (ditto, alone, common))
    assert mine.splits["heldout"] == theirs.splits["heldout"] and mine.splits["unseen"] == shared.splits["unseen"]
    assert mine.parts["held-out, common model"] == shared.splits["heldout"]


def test_ditto_survives_a_stop_and_a_resume(tmp_path: Path) -> None:
    fit = partial(accord.fit, mlp(), blobs(clients=4), accord.ditto(), sample=2, engine="sequential", verbose=False)
    whole = fit(rounds=6, folder=tmp_path / "a")
    fit(rounds=3, folder=tmp_path / "b")
    resumed = fit(rounds=6, folder=tmp_path / "b")
    assert torch.equal(whole.last.vector, resumed.last.vector) and whole.clients == resumed.clients
