"""Local optimisers against torch.optim, step for step: alone, as a client of every engine trains, and as lanes."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord import AccordError
from accord.engines import contract
from accord.engines.processes import Processes
from accord.engines.sequential import Sequential
from accord.engines.vectorised import Request, Vectorised
from accord.rules.local import Training
from accord.rules.local.step import Piece, Steps
from conftest import blobs, mlp
from engine_jobs import make_job, make_work

CASES: dict[str, tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": ({}, torch.optim.SGD, {"momentum": 0.9}),
    "sgd, set": ({"momentum": 0.5, "weight_decay": 0.1}, torch.optim.SGD, {"momentum": 0.5, "weight_decay": 0.1}),
    "adam": ({}, torch.optim.Adam, {}),
    "adam, set": (
        {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
        torch.optim.Adam,
        {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
    ),
    "adamw": ({}, torch.optim.AdamW, {}),
    "adamw, set": (
        {"betas": (0.0, 0.99), "eps": 1e-4, "weight_decay": 0.3},
        torch.optim.AdamW,
        {"betas": (0.0, 0.99), "eps": 1e-4, "weight_decay": 0.3},
    ),
}
cases = pytest.mark.parametrize("case", CASES)


def training_of(case: str, **settings: Any) -> Training:
    return Training(optimiser=case.partition(",")[0], **CASES[case][0], **settings)


@cases
def test_thirty_steps_are_those_of_torch(case: str) -> None:
    """In double precision, with gradients of very different sizes, and one that is zero for a while."""
    torch.manual_seed(0)
    _, theirs, settings = CASES[case]
    gradients = torch.randn(30, 7, dtype=torch.float64) * 10.0 ** torch.arange(-3.0, 4.0)
    gradients[:10, 3] = 0.0
    leaf = nn.Parameter(torch.randn(7, dtype=torch.float64))
    w, optimiser = leaf.detach().clone(), theirs([leaf], lr=0.05, **settings)
    steps = Steps(training_of(case).rule, w.new_tensor)
    piece = Piece(w, w, kept=steps.begin(w))
    for gradient, step in zip(gradients, steps.of_round(0.05, 30), strict=True):
        leaf.grad = gradient.clone()
        optimiser.step()
        step([gradient], [piece])
        assert torch.allclose(w, leaf, rtol=1e-12, atol=1e-14)


def by_torch(case: str, mu: float = 0.0, clip: float | None = None) -> tuple[contract.Job, dict[str, Tensor]]:
    """A job, and where each of its clients ends by a plain loop with torch.optim over the batches of its round."""
    algorithm = accord.fedprox(mu=mu) if mu else accord.fedavg()
    settings = {"epochs": 3, "lr": 0.02, "clip": clip, "optimiser": case.partition(",")[0], **CASES[case][0]}
    job = make_job(algorithm, mlp(), blobs(), **settings)
    work, cohort = make_work(job)
    ends = {}
    for member in cohort:
        module = job.layout.load(mlp(), work.vector, work.buffers)
        optimiser = CASES[case][1](module.parameters(), lr=0.02, **CASES[case][2])
        starts = [p.detach().clone() for p in module.parameters()]
        for rows in contract.batches(job, 1, member):
            x, y = job.fed.read(rows)
            optimiser.zero_grad()
            F.cross_entropy(module(x), y).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            for p, start in zip(module.parameters(), starts, strict=True):
                p.grad += mu * (p.detach() - start)
            optimiser.step()
        ends[member.client] = job.layout.pack(module) - work.vector
    return job, ends


@pytest.mark.parametrize("engine", [Sequential, Vectorised, Processes])
@cases
def test_a_round_of_an_engine_is_a_loop_with_torch_optim(case: str, engine: Any) -> None:
    """Clients of different sizes: as lanes some rest while others train on. Their average is all an engine gives."""
    job, ends = by_torch(case)
    assert len({len(rows) // 8 for rows in job.fed.train.values()}) > 1, "no lane would rest"
    trainer = engine(job)
    try:
        outcome = trainer.train(*make_work(job))
    finally:
        trainer.close()
    norms = {row.client: row.norm for row in outcome.rows}
    assert norms == pytest.approx({client: float(end.norm()) for client, end in ends.items()}, rel=2e-4)
    sizes = {client: len(rows) for client, rows in job.fed.train.items()}
    mean = sum(end * sizes[client] for client, end in ends.items()) / sum(sizes.values())
    total = outcome.record.part("average")
    assert torch.allclose(total["delta"] / total["weight"], mean, atol=2e-5)


@pytest.mark.parametrize("engine", [Sequential, Vectorised])
@pytest.mark.parametrize("case", ["adam", "adamw, set"])
def test_the_proximal_term_and_clipping_enter_the_gradient(case: str, engine: Any) -> None:
    job, ends = by_torch(case, mu=0.5, clip=0.3)
    outcome = engine(job).train(*make_work(job))
    norms = {row.client: row.norm for row in outcome.rows}
    assert norms == pytest.approx({client: float(end.norm()) for client, end in ends.items()}, rel=2e-4)
    _, without = by_torch(case, clip=0.3)
    assert max(abs(norms[client] - float(end.norm())) for client, end in without.items()) > 1e-3


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("name", ["scaffold", "fedgma", "fedadam", "local_only", "pooled", "causalfed"])
def test_algorithms_train_with_adam(name: str, engine: str) -> None:
    """And differently than with SGD; those that have one engine of their own take that."""
    algorithm = accord.causalfed(at=-1) if name == "causalfed" else getattr(accord, name)()
    settings = {"rounds": 2, "lr": 0.01, "engine": "auto" if name == "causalfed" else engine, "device": "cpu"}
    runs = [
        accord.fit(mlp(), blobs(), algorithm, optimiser=optimiser, verbose=False, **settings)
        for optimiser in ("adamw", "sgd")
    ]
    finite = [run.last.vector.isfinite().all() for run in runs]
    assert all(finite) and (name == "local_only" or not torch.equal(runs[0].last.vector, runs[1].last.vector))


def test_state_is_fresh_every_round() -> None:
    """Two rounds of one client are two plain loops, each with an optimiser of its own."""
    fed = blobs(clients=1)
    run = accord.fit(
        mlp(),
        fed,
        accord.fedavg(),
        rounds=2,
        batch=8,
        lr=0.02,
        optimiser="adam",
        engine="sequential",
        device="cpu",
        verbose=False,
    )
    job = make_job(accord.fedavg(), mlp(), fed, optimiser="adam", lr=0.02)
    module = mlp()
    for round in (1, 2):
        optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
        for rows in contract.batches(job, round, make_work(job)[1][0]):
            x, y = fed.read(rows)
            optimiser.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimiser.step()
    assert torch.allclose(run.last.vector, job.layout.pack(module), atol=1e-5)


def test_lanes_of_adam_and_adamw_with_their_own_settings_go_together() -> None:
    """What a run gets does not depend on the others: bit for bit."""
    settings = [{"optimiser": "adam", "betas": (0.5, 0.9)}, {"optimiser": "adamw", "eps": 1e-3, "lr": 0.01}]
    jobs = [make_job(module=mlp(), **one) for one in settings]
    shared = Vectorised(jobs[0])
    requests = [Request(job, *make_work(job)) for job in jobs]
    together = shared.train_many(requests)
    for job, request, outcome in zip(jobs, requests, together, strict=True):
        alone = Vectorised(job).train(request.work, request.cohort)
        mine, its = (one.record.part("average")["delta"] for one in (outcome, alone))
        assert torch.equal(mine, its)


def test_lanes_take_tokens_and_adamw_finds_the_word() -> None:
    """Rows of an embedding that no text has stay where they are but for decay, as torch has them."""
    torch.manual_seed(0)
    words = torch.randint(1, 9, (96, 5))
    has = (words == 3).any(1).long()
    fed = accord.data.from_arrays({f"c{n}": (words[n::4], has[n::4]) for n in range(4)}, heldout=0.2)
    model = nn.Sequential(nn.Embedding(12, 8), nn.Flatten(), nn.Linear(40, 16), nn.ReLU(), nn.Linear(16, 2))
    fit = partial(accord.fit, model, fed, rounds=2, batch=8, lr=0.01, optimiser="adamw", verbose=False)
    lanes, reference = (fit(engine=engine).last.vector for engine in ("vectorised", "sequential"))
    assert torch.allclose(lanes, reference, atol=2e-5)


def test_corrections_shrink_as_steps_go_on() -> None:
    """By hand: the first step's are 1 - beta; after many, the rate is the rate."""
    found = Training(optimiser="adam").rule.corrections(0.1, np.array([1.0, 1e6]))
    assert found["size"] == pytest.approx([0.1 * 0.001**0.5 / 0.1, 0.1])
    assert found["eps"] == pytest.approx([1e-8 * 0.001**0.5, 1e-8])
    assert all(later >= earlier for earlier, later in pairwise(found["eps"]))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"optimiser": "adma"}, "optimiser must be one of sgd, adam, adamw, got 'adma': did you mean 'adam'?"),
        ({"optimiser": "adam", "momentum": 0.9}, "momentum has no meaning with optimiser 'adam', got 0.9: it belongs"),
        ({"betas": (0.9, 0.99)}, "betas has no meaning with optimiser 'sgd', got (0.9, 0.99): it belongs to adam"),
        ({"eps": 1e-6}, "eps has no meaning with optimiser 'sgd'"),
        ({"optimiser": "adam", "betas": (0.9, 1.0)}, "betas must be two numbers of at least 0 and below 1"),
        ({"optimiser": "adam", "betas": 0.9}, "betas must be two numbers"),
        ({"optimiser": "adamw", "eps": 0.0}, "eps must be above 0, got 0.0"),
        ({"optimiser": "adamw", "eps": "small"}, "eps must be a number, got 'small'"),
        ({"optimiser": "adamw", "weight_decay": -0.1}, "weight_decay must be 0 or more, got -0.1"),
    ],
)  # fmt: skip
def test_settings_that_make_no_optimiser_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(AccordError) as error:
        accord.fit(mlp(), blobs(), **settings)
    assert str(error.value).startswith(told)


def test_option_two_of_scaffold_is_for_sgd_alone() -> None:
    with pytest.raises(AccordError, match="optimiser must be 'sgd' for SCAFFOLD's option II"):
        accord.fit(mlp(), blobs(), accord.scaffold(option="II"), optimiser="adam")
