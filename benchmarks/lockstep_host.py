"""What the host does for runs in lockstep, by what it does: microseconds for each round of a run, and for each of its
evaluations. The model is so small that a CPU shows it; what a device would do is listed, and not in the sum.

    python benchmarks/lockstep_host.py [runs [rounds]]     of at least 10 rounds, two evaluations
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import accord
from accord.engines.determinism import steady
from accord.engines.vectorised import Vectorised
from accord.engines.vectorised.descent import Descent
from accord.engines.vectorised.evaluation import Evaluation
from accord.engines.vectorised.replay import Eager
from accord.experiments import lockstep
from accord.rules.local import Training
from accord.runs.folder import RunFolder
from accord.training.fit import make_job
from accord.training.lockstep import Lockstep
from accord.training.loop import Loop
from accord.training.plan import Plan

CLIENTS, SAMPLED, EVERY = 500, 10, 5
ALGORITHMS = [
    accord.fedavg(),
    accord.fedavg(mask=accord.gma(0.4)),
    accord.fedavg(mask=accord.scaled(accord.gma(0.4))),
    accord.fedadam(lr=0.01),
]
DEVICE = {"Eager.run", "Evaluation._sums"}  # a device's work, on a device


def federation(seed: int, x: torch.Tensor, y: torch.Tensor) -> accord.data.Federation:
    """Samples that all deals have in common, dealt to the clients by a seed: eight to train on and four held out."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    deals = order[: 12 * CLIENTS].view(CLIENTS, 12)
    names = [f"client-{number:03d}" for number in range(CLIENTS)]
    train, heldout = (dict(zip(names, part.unbind(0), strict=True)) for part in (deals[:, :8], deals[:, 8:]))
    return accord.data.Federation(x, y, train, heldout=heldout, name="noise", test=order[12 * CLIENTS :])


def model() -> nn.Module:
    layers = [part for _ in range(4) for part in (nn.Linear(6, 6), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(6, 4))


def timed(spent: dict[str, float], owner: type, name: str) -> None:
    """Counts the time within a method, and takes it from whoever calls it among those that are counted."""
    inner: Callable[..., Any] = getattr(owner, name)
    label = f"{owner.__name__}.{name}"

    def outer(*args: Any, **more: Any) -> Any:
        before, started = sum(spent.values()), time.thread_time()
        try:
            return inner(*args, **more)
        finally:
            within = sum(spent.values()) - before
            spent[label] = spent.get(label, 0.0) + time.thread_time() - started - within

    setattr(owner, name, outer)


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    runs, rounds = (*given, *(128, 40)[len(given) :])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(14 * CLIENTS, 6), torch.randint(0, 4, (14 * CLIENTS,))
    feds, module = [federation(seed, x, y) for seed in range(4)], model()
    spent: dict[str, float] = {}
    for owner, name in [
        (Eager, "run"),
        (Evaluation, "_sums"),
        (Evaluation, "__call__"),
        (Loop, "ask"),
        (Descent, "__call__"),
        (Vectorised, "begin_many"),
        (lockstep._Company, "end"),
        (Lockstep, "absorb"),
        (Lockstep, "_learn"),
        (Lockstep, "_tables"),
        (Lockstep, "record"),
        (Loop, "_checkpoint"),
    ]:
        timed(spent, owner, name)

    def drive(rounds: int, every: int, root: Path) -> dict[str, float]:
        plan = Plan(rounds=rounds, sample=SAMPLED, evaluate_every=every, evaluate_samples=500)
        loops: list[Loop] = []
        for number in range(runs):
            seed, rule = number % 4, ALGORITHMS[number // 4 % 4]
            training = Training(batch=4, lr=accord.schedule.constant(0.01 * (1 + number // 16)))
            job = make_job(module, feds[seed], rule, training, replace(plan, seed=seed), "cpu")
            if not loops:
                engine = Vectorised(job)
                engine._evaluation = Evaluation(engine.descent.model)  # as on CUDA
            folder = RunFolder(root / str(number), {"number": number}, rounds)
            loops.append(Loop(job, replace(plan, seed=seed), engine, folder, ()))
        spent.clear()
        for loop in lockstep.together(iter(loops), engine, runs, cohorts=2):
            assert loop.folder is not None
            loop.folder.close()
        return dict(spent)

    with tempfile.TemporaryDirectory() as scratch, steady():
        drive(2, 1, Path(scratch) / "first")  # what is compiled or kept is then there
        plain, often = (drive(rounds, every, Path(scratch) / str(every)) for every in (10**6, EVERY))
    print(f"{runs} runs x {rounds} rounds\n{'':24} us a run-round  us an evaluation")
    total = [0.0, 0.0]
    for name in often:
        figures = plain[name] / (runs * rounds), (often[name] - plain[name]) / (runs * (rounds // EVERY - 1))
        if name not in DEVICE:
            total = [one + 1e6 * more for one, more in zip(total, figures, strict=True)]
        print(f"{name:24} {1e6 * figures[0]:14.1f} {1e6 * figures[1]:17.1f}")
    print(f"{'the host':24} {total[0]:14.1f} {total[1]:17.1f}")


if __name__ == "__main__":
    main()
