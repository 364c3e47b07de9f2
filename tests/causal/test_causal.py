"""CausalFed: a network cut in two learns what it would learn whole; its messages travel; it can run between
processes."""

import copy
import json
import math
import multiprocessing
from collections.abc import Iterable
from dataclasses import fields, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord import causal
from accord.causal import (
    Client,
    Extractor,
    Far,
    Gradient,
    Halved,
    Near,
    Representation,
    Server,
    Share,
    attend,
    cut,
    split_network,
    talk,
)
from accord.causal.engine import Causal
from accord.causal.rule import penalty_at
from accord.causal.traffic import traffic
from accord.core.losses import cross_entropy
from accord.data import Federation
from accord.engines.contract import Job, Member, Work, batches
from accord.experiments.cost import cost
from accord.experiments.experiment import parse
from accord.experiments.sweep import preview, read
from accord.rules.local import Training
from accord.training.engine_choice import make_engine
from accord.training.fit import make_job
from accord.training.plan import Plan
from conftest import THREADS, blobs, mlp, sentence

NO_BUFFERS = torch.zeros(0, dtype=torch.float64)
SPLITS = {
    "risk alone": split_network(2, penalty=0.0),
    "penalty": split_network(2, penalty=3.0),
    "summed": split_network(2, penalty=0.01, reduction="sum"),
    "another place": split_network(1, penalty=3.0),
}


def job_of(
    split: split_network = SPLITS["penalty"], fed: Federation | None = None, module: nn.Module | None = None, **training
) -> Job:
    algorithm = accord.causalfed(split.at, split.penalty, split.warmup, split.warmup_penalty, split.reduction)
    return make_job(module or mlp(), fed or blobs(clients=4), algorithm, Training(**training), Plan(), "cpu")


def own_objective(z: Tensor, y: Tensor, split: split_network, round: int = 1) -> Tensor:
    """One client's objective, written from the equation, with the penalty's inner derivative by hand: for cross-entropy
    the derivative of a sample's loss by a scale on its logits z is (softmax(z) - onehot(y)) . z."""
    slopes = ((F.softmax(z, 1) - F.one_hot(y, z.shape[1])) * z).sum(1)
    if split.reduction == "mean":
        return F.cross_entropy(z, y) + penalty_at(split, round) * slopes.mean() ** 2
    return F.cross_entropy(z, y, reduction="sum") + penalty_at(split, round) * slopes.sum() ** 2


def objective(module: nn.Module, fed: Federation, rows: list[Tensor], split: split_network, round: int = 1) -> Tensor:
    """That of the whole network: the mean over clients."""
    return torch.stack([own_objective(module(x), y, split, round) for x, y in map(fed.read, rows)]).mean()


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def parties(job: Job) -> tuple[Server, dict[str, Client]]:
    """A server in its first round, and its clients."""
    halved = Halved(job)
    server = Server(halved, 1, job.layout.pack(job.module), NO_BUFFERS)
    return server, {name: Client(halved, Member(name, rows)) for name, rows in job.fed.train.items() if len(rows)}


# ----------------------------------------------------------------------------------------- split equals whole


@pytest.mark.parametrize("name", SPLITS)
def test_split_equals_whole_gradient_by_gradient(name: str) -> None:
    split = SPLITS[name]
    job = job_of(split, batch=8, momentum=0.0, lr=1.0)
    server, clients = parties(job)
    before = server.vector.clone()
    gradients = server.respond([client.answer(server.extractor()) for client in clients.values()])
    shares = [clients[gradient.client].answer(gradient) for gradient in gradients]
    server.learn(shares)

    whole = copy.deepcopy(job.module)
    first = [batches(job, 1, Member(client, job.fed.train[client]))[0] for client in clients]
    objective(whole, job.fed, first, split).backward()
    for parameter, moved in zip(whole.parameters(), job.layout.unpack(before - server.vector).values(), strict=True):
        assert torch.allclose(moved, parameter.grad, atol=1e-5, rtol=1e-4)
    # What each client gets and gives back: the gradient of its own objective, at its representation and at the
    # extractor.
    extractor, classifier = cut(whole, split.at)
    for rows, gradient, share in zip(first, gradients, shares, strict=True):
        x, y = job.fed.read(rows)
        features = extractor(x)
        own = own_objective(classifier(features), y, split)
        at_features, *at_extractor = torch.autograd.grad(own, [features, *extractor.parameters()])
        assert torch.allclose(gradient.features, at_features, atol=1e-6, rtol=1e-4)
        assert torch.allclose(share.gradient, flat(at_extractor), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SPLITS)
def test_a_run_equals_the_whole_network_trained_in_one_place(name: str) -> None:
    """Three rounds with momentum, clipping, weight decay and warm-up, sampled clients of different sizes, against
    torch.optim.SGD."""
    split, fed = replace(SPLITS[name], warmup=1, warmup_penalty=0.1), blobs(clients=6)
    settings = {"batch": 9, "epochs": 2, "lr": 0.05, "momentum": 0.8, "weight_decay": 0.01, "clip": 0.5}
    job = job_of(split, fed, **settings)
    run = accord.fit(mlp(), fed, job.algorithm, rounds=3, sample=4, device="cpu", **settings)
    whole = mlp()
    for number in range(1, 4):
        chosen = [fed.clients[i] for i in accord.draws.choose(6, 4, 0, "sample", number)]
        plans = [batches(job, number, Member(client, fed.train[client])) for client in chosen]
        assert len({len(plan) for plan in plans}) > 1  # some have fewer batches than others, and rest at the end
        optimiser = torch.optim.SGD(whole.parameters(), lr=0.05, momentum=0.8, weight_decay=0.01)
        for step in range(max(map(len, plans))):
            optimiser.zero_grad()
            objective(whole, fed, [plan[step] for plan in plans if step < len(plan)], split, number).backward()
            torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.5)
            optimiser.step()
    assert torch.allclose(run.last.vector, flat(whole.parameters()), atol=1e-5)
    assert run.rows[2]["steps"] == sum(map(len, plans))


def test_dropout_and_batch_norm_train_and_repeat() -> None:
    """A network with all that has draws or memory of its own: equal runs are equal, its statistics move, and it
    learns."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(6, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(16, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 4),
    )
    fed = blobs(clients=4)
    runs = [accord.fit(module, fed, accord.causalfed(4, penalty=0.5), rounds=15, batch=8, lr=0.05) for _ in range(2)]
    assert torch.equal(runs[0].last.vector, runs[1].last.vector) and torch.equal(
        runs[0].last.buffers, runs[1].last.buffers
    )
    trained = runs[0].model()
    assert int(trained[1].num_batches_tracked) == 15 * 4  # a round has four steps, and counters are averaged
    assert not torch.equal(trained[5].running_mean, module[5].running_mean)
    assert runs[0].history[-1][1]["splits"]["train"]["accuracy"]["by_sample"] > 0.6


def test_one_client_without_penalty_is_plain_sgd() -> None:
    fed = blobs(clients=1, unseen=0)
    runs = [
        accord.fit(mlp(), fed, algorithm, rounds=4, lr=0.1)
        for algorithm in (accord.causalfed(2, penalty=0.0), accord.fedavg())
    ]
    assert torch.allclose(runs[0].last.vector, runs[1].last.vector, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_a_round_tells_of_itself(reduction: str) -> None:
    """The risk by sample, whatever the reduction, and the penalty, whatever its weight: here those of the first
    network."""
    fed = blobs(clients=3)
    row = accord.fit(
        mlp(), fed, accord.causalfed(2, penalty=1e-3, warmup=1, reduction=reduction), rounds=1, batch=None
    ).rows[0]
    x, y = fed.read(torch.cat(list(fed.train.values())))
    assert row["train_loss"] == pytest.approx(F.cross_entropy(mlp()(x), y).item(), rel=1e-5)
    outputs = [(mlp()(x), y) for x, y in map(fed.read, fed.train.values())]
    one = split_network(penalty=1.0, reduction=reduction), split_network(penalty=0.0, reduction=reduction)
    penalties = [(own_objective(*output, one[0]) - own_objective(*output, one[1])).item() for output in outputs]
    assert row["penalty"] == pytest.approx(sum(penalties) / 3, rel=1e-3)
    assert (row["accepted"], row["steps"], row["samples"]) == (3, 3, len(y))


def test_the_order_of_clients_does_not_matter() -> None:
    fed = blobs(clients=5)
    turned = replace(fed, train=dict(reversed(fed.train.items())))
    runs = [accord.fit(mlp(), some, accord.causalfed(2), rounds=3) for some in (fed, turned)]
    assert torch.allclose(runs[0].last.vector, runs[1].last.vector, atol=1e-6)


# ----------------------------------------------------------------------------------------- the penalty itself


def logistic(output: Tensor, target: Tensor) -> Tensor:
    return F.softplus(-(2 * target - 1) * output[:, 0])


def test_penalty_against_numbers_worked_by_hand() -> None:
    # One sample with margin m = ln 3: loss ln(1 + 1/3), derivative by the scale -m sigmoid(-m) = -ln 3 / 4.
    risk, penalty = causal.risk_and_penalty(logistic, torch.tensor([[math.log(3)]]), torch.tensor([1]))
    assert risk.item() == pytest.approx(math.log(4 / 3))
    assert penalty.item() == pytest.approx((math.log(3) / 4) ** 2)
    # A second sample on the wrong side, m = -ln 3: its derivative is +3 ln 3 / 4. Mean ln 3 / 4, sum ln 3 / 2.
    output, labels = torch.tensor([[math.log(3)], [math.log(3)]]), torch.tensor([1, 0])
    risk, penalty = causal.risk_and_penalty(logistic, output, labels)
    assert (risk.item(), penalty.item()) == (
        pytest.approx((math.log(4 / 3) + math.log(4)) / 2),
        pytest.approx((math.log(3) / 4) ** 2),
    )
    risk, penalty = causal.risk_and_penalty(logistic, output, labels, "sum")
    assert (risk.item(), penalty.item()) == (
        pytest.approx(math.log(4 / 3) + math.log(4)),
        pytest.approx((math.log(3) / 2) ** 2),
    )


def test_penalty_vanishes_where_the_classifier_is_optimal() -> None:
    # Three of four samples of one kind are positive: the best logit is ln 3, and no scale improves on it.
    output, labels = torch.full((4, 1), math.log(3)), torch.tensor([1, 1, 1, 0])
    assert causal.risk_and_penalty(logistic, output, labels)[1].item() == pytest.approx(0.0, abs=1e-12)


def test_penalty_gradient_against_differences() -> None:
    output = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda z: causal.risk_and_penalty(cross_entropy, z, labels), (output,))


def two_worlds() -> Federation:
    """A cause that is right three times in four everywhere, and a sign that is right more often, but not equally
    often."""
    draw = torch.Generator().manual_seed(1)
    arrays = {}
    for name, right in {"a": 0.95, "b": 0.8, "test": 0.1}.items():
        y = torch.randint(0, 2, (1000,), generator=draw)
        cause = torch.where(torch.rand(1000, generator=draw) < 0.75, y, 1 - y)
        sign = torch.where(torch.rand(1000, generator=draw) < right, y, 1 - y)
        arrays[name] = (torch.stack([cause, sign], 1) * 2.0 - 1.0, y)
    return accord.data.from_arrays(arrays, unseen=["test"], heldout=0.0, name="two worlds")


def test_the_penalty_finds_the_cause() -> None:
    """Where a sign misleads unseen clients, risk alone follows it and the penalty does not."""

    def unseen(penalty: float) -> float:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        rule = accord.causalfed(-1, penalty=penalty, warmup=10)
        run = accord.fit(
            module, two_worlds(), rule, rounds=60, batch=None, epochs=4, lr=0.1, clip=1.0, evaluate_every=60
        )
        return run.history[-1][1]["splits"]["unseen"]["accuracy"]["by_sample"]

    assert unseen(0.0) < 0.3 and unseen(100.0) > 0.7


# ----------------------------------------------------------------------------------------------- the messages

MESSAGES = (
    Extractor(3, 0, torch.randn(7), NO_BUFFERS),
    Representation("hospital ä/1", 3, 1, torch.randn(4, 2, 5), torch.tensor([0, 1, 2, 1]), last=True),
    Gradient("b", 3, 1, torch.randn(4, 5, dtype=torch.float64).T),
    Share("b", 3, 1, torch.randn(7), torch.tensor([1.0, math.inf], dtype=torch.float64)),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_travel_as_bytes(message) -> None:
    again = causal.from_bytes(causal.to_bytes(message))
    assert type(again) is type(message)
    for field in fields(message):
        sent, got = getattr(message, field.name), getattr(again, field.name)
        assert (torch.equal(sent, got) and sent.dtype == got.dtype) if isinstance(sent, Tensor) else sent == got


def test_bytes_that_are_no_message_are_refused() -> None:
    whole = causal.to_bytes(MESSAGES[1])
    header = json.dumps(
        {"__metadata__": {"message": json.dumps(["Share", {"client": 5, "round": 1, "step": 0}])}}
    ).encode()
    for data in (b"", b"hello", whole[:-3], whole[:40], len(header).to_bytes(8, "little") + header):
        with sentence("bytes are no message of CausalFed"):
            causal.from_bytes(data)
    with sentence("a message of CausalFed has a round of the wrong type, got 'three'"):
        causal.from_bytes(causal.to_bytes(replace(MESSAGES[0], round="three")))


def test_messages_that_do_not_belong_to_the_step_are_refused() -> None:
    name = "c00"
    server, clients = parties(job_of())
    client = clients[name]
    with sentence("client c00 was sent a gradient for c00, round 1, step 0: it waits for none"):
        client.answer(Gradient(name, 1, 0, torch.zeros(1)))
    with sentence("client c00 has 1 steps in round 1 and was asked for step 5"):
        client.answer(replace(server.extractor(), step=5))
    sent = client.answer(server.extractor())
    assert isinstance(sent, Representation)
    with sentence("client c00 was sent a gradient of shape (1,), and its representation has (24, 8)"):
        client.answer(Gradient(name, 1, 0, torch.zeros(1)))
    with sentence("client c00 was sent a Representation: clients take Extractor and Gradient"):
        client.answer(sent)
    with sentence("client c00 sent a Representation for round 2, step 0, and the server is in round 1, step 0"):
        server.respond([replace(sent, round=2)])
    with sentence("client c00 sent 24 samples and 0 labels"):
        server.respond([replace(sent, labels=sent.labels[:0])])
    with sentence("client c00 could not train in round 1: mat1 and mat2"):
        server.respond([replace(sent, features=sent.features[:, :3])])
    with sentence("client c00 sent a gradient of shape (2,), and the extractor has (56,)"):
        server.learn([Share(name, 1, 0, torch.zeros(2), torch.zeros(0))])


# ------------------------------------------------------------------------------------------ between processes


def be_a_client(name: str, rows: Tensor, x: Tensor, y: Tensor, connection: Connection) -> None:
    """A process that has its own samples and nobody else's."""
    torch.set_num_threads(1)
    own = Federation(x, y, {name: torch.arange(len(rows))})
    attend(Client(Halved(job_of(fed=own, batch=8)), Member(name, own.train[name])), connection)


@pytest.mark.slow
def test_server_and_clients_in_processes_of_their_own_give_the_same_weights() -> None:
    torch.set_num_threads(1)
    fed = blobs(clients=2, unseen=0)
    job = job_of(fed=fed, batch=8)
    halved, start = Halved(job), job.layout.pack(job.module)
    context = multiprocessing.get_context("spawn")  # nothing is inherited: only bytes on the line
    lines, processes = {}, []
    for name, rows in fed.train.items():
        here, there = context.Pipe()
        processes.append(context.Process(target=be_a_client, args=(name, rows, fed.x[rows], fed.y[rows], there)))
        processes[-1].start()
        there.close()
        lines[name] = here
    ends = []
    for ports in ({name: Far(line) for name, line in lines.items()}, None):
        vector = start
        for number in (1, 2):
            server = Server(halved, number, vector, NO_BUFFERS)
            talk(server, ports or {name: Near(Client(halved, Member(name, rows))) for name, rows in fed.train.items()})
            vector = server.vector
        ends.append(vector)
    for line in lines.values():
        line.close()
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    assert torch.equal(*ends) and not torch.equal(ends[0], start)
    run = accord.fit(mlp(), fed, job.algorithm, rounds=2, batch=8, device="cpu")
    assert torch.allclose(run.last.vector, ends[0], atol=1e-6)  # to the loop a round is a difference, which rounds
    with sentence("a client of CausalFed hung up"):
        talk(Server(halved, 3, start, NO_BUFFERS), {"c00": _hung_up()})


def _hung_up() -> Far:
    here, there = multiprocessing.Pipe()
    there.close()
    return Far(here)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_cuda_as_on_the_cpu() -> None:
    runs = [accord.fit(mlp(), blobs(), accord.causalfed(2), rounds=3, device=device) for device in ("cpu", "cuda")]
    assert torch.allclose(runs[0].last.vector, runs[1].last.vector.cpu(), atol=1e-4)


# --------------------------------------------------------------------------------------- the machinery around


def test_a_run_is_recorded_resumed_and_evaluated_like_any_other(tmp_path) -> None:
    fed, rule = blobs(clients=4), accord.causalfed(2, penalty=2.0, warmup=2)
    straight = accord.fit(
        mlp(), fed, rule, rounds=6, sample=3, evaluate_every=2, folder=tmp_path / "a", checkpoint_every=2
    )
    part = accord.fit(mlp(), fed, rule, rounds=3, sample=3, evaluate_every=2, folder=tmp_path / "b", checkpoint_every=2)
    again = accord.fit(
        mlp(), fed, rule, rounds=6, sample=3, evaluate_every=2, folder=tmp_path / "b", checkpoint_every=2
    )
    assert "causalfed" in str(part.folder) and part.folder == again.folder
    assert torch.equal(straight.last.vector, again.last.vector)
    assert straight.rows == again.rows and all(row["penalty"] >= 0 for row in again.rows)
    assert {"train", "heldout", "unseen"} <= set(again.history[-1][1]["splits"])


@pytest.mark.filterwarnings("ignore::accord.training.loop.SkippedRound")
def test_clients_with_nothing_or_nonsense_are_left_out_and_named() -> None:
    fed = blobs(clients=4)
    x = fed.x.clone()
    x[fed.train["c01"]] = math.nan
    fed = replace(fed, x=x, train={**fed.train, "c02": fed.train["c02"][:0]})
    run = accord.fit(mlp(), fed, accord.causalfed(2), rounds=2)
    assert run.rows[0]["left_out"] == {
        "c01": "NaN or infinity in the representation or its gradient",
        "c02": "no samples",
    }
    assert run.rows[0]["accepted"] == 2 and bool(run.last.vector.isfinite().all())
    with sentence("client c02 has 0 samples and needs at least 1 to take part"):
        Client(Halved(job_of(fed=fed)), Member("c02", fed.train["c02"]))
    nobody = accord.fit(
        mlp(), replace(fed, train={name: fed.train[name] for name in ("c01", "c02")}), accord.causalfed(2), rounds=1
    )
    assert "skipped" in nobody.rows[0]
    with sentence("no participating client has any training data"):
        accord.fit(mlp(), replace(fed, train={"c02": fed.train["c02"]}), accord.causalfed(2), rounds=1)


def test_a_half_that_overflows_is_left_out() -> None:
    server, clients = parties(job_of())
    gradients = server.respond([client.answer(server.extractor()) for client in clients.values()])
    shares = [clients[gradient.client].answer(gradient) for gradient in gradients]
    before = server.vector.clone()
    server.learn([replace(shares[0], gradient=shares[0].gradient * math.inf), *shares[1:]])
    assert server.heard["c00"].left_out_because == "NaN or infinity in the extractor's gradient"
    assert bool(server.vector.isfinite().all()) and not torch.equal(server.vector, before)


def test_only_the_engine_that_can_is_taken() -> None:
    job, told = job_of(), []
    assert isinstance(make_engine("auto", job, told.append), Causal) and isinstance(
        make_engine("sequential", job), Causal
    )
    why = f"clients and server exchange representations and gradients at every step, {THREADS}"
    assert told == [f"engine causal: {why}"]
    with pytest.warns(
        UserWarning, match="need their server at every step: engine 'vectorised' cannot train them, 'causal' does"
    ):
        assert isinstance(make_engine("vectorised", job), Causal)
    with sentence("speed 'bf16' cannot be used with causalfed"):
        accord.fit(mlp(), blobs(), accord.causalfed(2), rounds=1, speed=["bf16"])
    with sentence("algorithm 'fedavg' trains whole networks: take causalfed()"):
        Halved(replace(job, algorithm=accord.fedavg()))
    outcome = make_engine("auto", job).train(Work(1, job.layout.pack(job.module), torch.zeros(0), {}, 0.1), [])
    assert outcome.record is None and outcome.rows == []


def test_experiment_files_take_it() -> None:
    text = (
        '[algorithm]\nname = "causalfed"\n[algorithm.local]\npenalty = 10\nwarmup = 5\nat = 7\n[model]\nname = "lenet"'
    )
    experiment = parse(text)
    assert experiment.algorithm == accord.causalfed(7, penalty=10, warmup=5)
    assert experiment.resolved()["algorithm"]["local"]["reduction"] == "mean"
    with sentence("algorithm.local.penalty must be 0 or more, got -1"):
        parse(text, ["algorithm.local.penalty=-1"])
    with sentence("algorithm.local.penalty is not a field of sgd, got 1: choose one of full_batch"):
        parse('[algorithm]\nname = "fedavg"\nlocal = { penalty = 1 }')
    with sentence("algorithm.mask has no meaning with algorithm.name = 'causalfed'"):
        parse(text, ["algorithm.mask=gma"])


def test_a_sweep_trains_it_by_itself(tmp_path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        '[data]\nname = "digits"\n[model]\nname = "mlp"\n[run]\nengine = "vectorised"\n[sweep]\n"algorithm.name" ='
        ' ["fedavg", "causalfed"]'
    )
    groups = preview(read(file))["groups"]
    assert [group["apart"] for group in groups] == [None, "clients of causalfed need their server at every step"]


@pytest.mark.parametrize("name", ["binary-cmnist", "rotated-mnist", "rotated-fashion-mnist"])
def test_the_experiment_files_are_valid(name: str) -> None:
    experiment = parse((Path(__file__).parents[2] / "experiments" / f"causalfed-{name}.toml").read_text())
    assert isinstance(experiment.algorithm.local, split_network) and experiment.algorithm.local.penalty > 0


def test_bytes_of_an_exchange_are_those_of_its_messages() -> None:
    job = job_of(batch=8)
    server, clients = parties(job)
    client = clients["c00"]
    sent = client.answer(server.extractor())
    assert isinstance(sent, Representation)
    (gradient,) = server.respond([sent])
    share = client.answer(gradient)
    down, up = size(server.extractor()) + size(gradient), size(sent) + size(share)
    assert traffic(mlp(), job.fed, 2, steps=1, samples=8) == (down, up)


def test_a_dry_run_counts_the_bytes_of_exchanges() -> None:
    text = '[data]\nname = "digits"\nclients = 4\n[model]\nname = "mlp"\n[train]\nbatch = "all"\n[algorithm]\n'
    experiment = parse(text + 'name = "causalfed"\nlocal = { at = 2 }')
    fed = experiment.federation(0)
    samples = sum(len(rows) for rows in fed.train.values())
    spent = cost(experiment, SimpleNamespace(data=None))  # type: ignore[arg-type]
    down, up = traffic(experiment.module(fed, 0), fed, 2, steps=4, samples=samples)
    assert (spent["bytes_down_a_round"], spent["bytes_up_a_round"], spent["client_steps_a_round"]) == (down, up, 4)


def size(message: causal.Message) -> int:
    parts = [getattr(message, field.name) for field in fields(message)]
    return sum(part.nbytes for part in parts if isinstance(part, Tensor))


# -------------------------------------------------------------------------------------------------- bad input


def test_cut() -> None:
    module = accord.models.lenet()
    x = torch.randn(2, 1, 28, 28)
    for at in (1, 7, -1, -5):
        extractor, classifier = cut(module, at)
        assert torch.equal(classifier(extractor(x)), module(x))
        assert [*extractor.state_dict(), *classifier.state_dict()] == [*module.state_dict()]
    relu = nn.ReLU()  # a layer without parameters may stand on both sides
    assert [len(half) for half in cut(nn.Sequential(nn.Linear(2, 2), relu, relu, nn.Linear(2, 2)), 2)] == [2, 2]


class Backwards(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(-input)


def test_networks_that_cannot_be_cut() -> None:
    linear = nn.Linear(4, 4)
    with sentence("the network must be a plain nn.Sequential to be cut in two, got Linear"):
        cut(linear)
    with sentence("the network must be a plain nn.Sequential to be cut in two, got Backwards"):
        cut(Backwards(linear, nn.Linear(4, 4)))
    with sentence("the network must have at least two layers to be cut in two, got 1"):
        cut(nn.Sequential(linear))
    for at in (0, 3, -3, 1.0, True):
        with sentence(f"at must be a place between the 3 layers, 1 to 2 or -1 to -2, got {at!r}"):
            cut(mlp(), at)
    with sentence("the network cannot be cut at 1: there is nothing to train before it"):
        cut(accord.models.logistic(), 1)
    with sentence("the network cannot be cut at 2: there is nothing to train after it"):
        cut(nn.Sequential(linear, nn.ReLU(), nn.ReLU()), 2)
    with sentence("the network cannot be cut at 1: 0.weight and 1.weight are one tensor"):
        cut(nn.Sequential(linear, linear), 1)
    recurrent = nn.Sequential(nn.Linear(6, 4), nn.RNN(4, 4), _Last(), nn.Linear(4, 4))
    with sentence("the network cannot be cut at 2: no gradient comes back through what is before it"):
        accord.fit(recurrent, blobs(), accord.causalfed(2), rounds=1)


class _Last(nn.Module):
    def forward(self, output: tuple[Tensor, Tensor]) -> Tensor:
        return output[0]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"penalty": -1.0}, ("penalty must be 0 or more, got -1.0", "lambda")),
        ({"penalty": math.nan}, ("penalty must be 0 or more, got nan",)),
        ({"penalty": "much"}, ("penalty must be 0 or more, got 'much'",)),
        ({"warmup_penalty": math.inf}, ("warmup_penalty must be 0 or more, got inf",)),
        ({"warmup": -1}, ("warmup must be a whole number of at least 0, got -1",)),
        ({"at": 0}, ("at must be a whole number other than 0, got 0",)),
        ({"reduction": "median"}, ("reduction must be 'mean' or 'sum', got 'median'",)),
    ],
)
def test_settings_that_make_no_sense(settings: dict, parts: tuple[str, ...]) -> None:
    with sentence(*parts):
        accord.causalfed(**settings)


def test_warm_up() -> None:
    rule = split_network(penalty=5.0, warmup=3, warmup_penalty=0.5)
    assert [penalty_at(rule, round) for round in (1, 3, 4)] == [0.5, 0.5, 5.0]
