"""Jobs that engines are held to, and one way to run them all."""

from functools import partial

import torch
from torch import Tensor, nn

import accord
from accord import Conditions
from accord.core.layout import Layout
from accord.core.losses import accuracy, cross_entropy
from accord.data import Federation
from accord.engines.contract import Engine, Job, Member, Work
from accord.rules.algorithm import Algorithm
from accord.rules.local import Training
from accord.training.loop import Loop
from accord.training.plan import Plan
from conftest import blobs


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))


def make_job(
    algorithm: Algorithm | None = None, module: nn.Module | None = None, fed: Federation | None = None, **training
) -> Job:
    module, training = module or small_net(), {"batch": 8, "lr": 0.05, **training}
    algorithm, fed = algorithm or accord.fedavg(), fed or blobs()
    metrics = {"accuracy": accuracy}
    return Job(
        module,
        Layout.of(module, algorithm.personal),
        fed,
        algorithm,
        Training(**training),
        cross_entropy,
        metrics,
        0,
        torch.device("cpu"),
    )


def make_work(job: Job) -> tuple[Work, list[Member]]:
    vector, buffers = job.layout.pack(job.module), job.layout.pack_buffers(dict(job.module.named_buffers()))
    memory = job.algorithm.init(job.layout, len(job.fed.clients), vector)
    work = Work(1, vector, buffers, memory, job.training.lr_at(1))
    own = partial(job.algorithm.local.fresh, vector, buffers)
    return work, [Member(client, rows, own) for client, rows in job.fed.train.items()]


def run(
    engine: Engine, job: Job, rounds: int = 3, sample: int | None = None, conditions: Conditions | None = None
) -> Loop:
    loop = Loop(job, Plan(rounds, sample, 1, 10, 1, conditions or Conditions(), None, 0), engine, None, [])
    loop.go()
    return loop


def troubled() -> Federation:
    """More clients than shards; one has no samples, one a single sample, one a bad number that a straggler may not come
    to."""
    fed = blobs(clients=20)
    x = fed.x.clone()
    x[fed.train["c05"][0]] = float("nan")
    train = {**fed.train, "c02": fed.train["c02"][:1], "none": torch.zeros(0, dtype=torch.int64)}
    return Federation(x, fed.y, train, fed.heldout, fed.unseen, name=fed.name)


def unknown_loss(output: Tensor, target: Tensor) -> Tensor:
    """One of which accord cannot know ahead that it takes no label beyond the outputs."""
    return cross_entropy(output, target)
