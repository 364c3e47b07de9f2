"""One of accord's engines as a contestant: `--engine vectorised --speed compile,bf16 --optimiser adamw`.

It runs accord's own loop, so invitations, checks of reports, averaging, the server's step, diagnosis and rows are all
in the time. Two things differ from `accord.fit`, to make the work the same as everybody's: only the test set is
evaluated, where `fit` would evaluate every client's training data too; and the engine outlives a measurement, since
starting it is not what is measured.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import accord
from accord.core.layout import Layout
from accord.core.losses import default_loss, default_metrics
from accord.data import Federation, Scale
from accord.engines.contract import Job
from accord.engines.determinism import steady
from accord.engines.device import pick_device
from accord.engines.speed import checked
from accord.rules.local import Training
from accord.runs.environment import environment
from accord.training.engine_choice import make_engine, with_kernel
from accord.training.loop import Loop
from accord.training.plan import Plan
from contestants.protocol import Measured, Ready, Stored, compete, until

NEVER = 10**9


class TestSetOnly(Federation):
    """A federation whose test set is all there is to evaluate."""

    def groups(self) -> Iterator[tuple[str, str, Tensor]]:
        assert self.test is not None
        yield "test", "test", self.test


class Kept:
    """An engine that a loop cannot close."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        """Not yet."""


def make_job(
    work: Stored, device: str, speed: Sequence[str] = (), optimiser: str = "sgd", personal: Sequence[str] = ()
) -> Job:
    x, y = work.data()
    rows = torch.arange(len(x))
    held = work.clients * work.samples
    train = {f"c{number}": part for number, part in enumerate(rows[:held].split(work.samples))}
    fed = TestSetOnly(x, y, train, test=rows[held:], prepare=Scale(), name=work.name)
    module = work.module()
    settings = {"momentum": work.momentum} if optimiser == "sgd" else {"optimiser": optimiser}
    training = Training(epochs=1, batch=work.batch, lr=work.lr, **settings)
    algorithm = accord.fedavg().with_personal(*personal) if personal else accord.fedavg()
    layout, loss, metrics = Layout.of(module, personal), default_loss(y), default_metrics(y)
    return Job(module, layout, fed, algorithm, training, loss, metrics, 0, pick_device(device), checked(speed))


def prepare(work: Stored, asked: argparse.Namespace, personal: Sequence[str] = ()) -> Ready:
    job = make_job(work, asked.device, [way for way in asked.speed.split(",") if way], asked.optimiser, personal)
    job = with_kernel(asked.engine, job)
    # the last round of a run is evaluated, whatever the plan
    plan = Plan(rounds=1, sample=work.sample, evaluate_every=NEVER)
    loop = Loop(job, plan, Kept(make_engine(asked.engine, job)), None, [])
    start = loop.progress

    def run(rounds: int) -> Measured:
        """So many further rounds of one long run: every round invites other clients, as in everybody's loop."""
        started = time.perf_counter()
        with steady(job.speed):  # as `fit` has it
            loop.plan = replace(plan, rounds=loop.progress.round + rounds)
            evaluation = loop.go().recorded[-1].evaluation
        assert evaluation is not None
        if job.device.type == "cuda":
            torch.cuda.synchronize()
        return Measured(time.perf_counter() - started, rounds, evaluation.score("test"))

    def measure() -> Measured:
        if work.target is not None:
            loop.progress = replace(start, round=loop.progress.round)
        return until(work, run)

    return Ready(
        lambda: run(1),
        measure,
        {"accord": environment(job.device, asked.engine)["accord"]},
        "accord's own loop with all its checks and rows; samples stay bytes until a batch is read",
    )


if __name__ == "__main__":
    compete(prepare, "--engine", "--speed", "--optimiser")
