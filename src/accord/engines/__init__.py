"""Engines: ways to run the same cohort. `sequential` is the readable reference."""

import os
import warnings
from collections.abc import Callable

import torch

from accord.engines.batchable import CannotBatch
from accord.engines.contract import Engine, Job
from accord.engines.processes import Processes
from accord.engines.sequential import Sequential
from accord.engines.threads import take_threads
from accord.engines.vectorised import Vectorised
from accord.errors import AccordError

ENGINES: dict[str, Callable[[Job], Engine]] = {
    "auto": lambda job: make_engine("auto", job),
    "sequential": Sequential,
    "vectorised": Vectorised,
    "processes": Processes,
    "ray": lambda job: _cluster(job),
}
_WORTH_A_PROCESS = 1_000_000  # parameters times a client's samples: below, handing clients out costs more than it saves


def make_engine(name: str, job: Job, tell: Callable[[str], None] | None = None) -> Engine:
    """The engine of that name, ready to train; "auto" picks the best one there is for the job, and tells which and why. On a CPU torch's
    threads are set to what suits the job: whoever calls this within `steady` has them back after it."""
    if name not in ENGINES:
        raise AccordError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")
    if job.algorithm.local.split is not None:
        return _causal(name, job, tell)
    wanted, why = choose(job) if name == "auto" else (name, "")
    engine: Engine | None = None
    if wanted == "vectorised":
        try:
            engine = Vectorised(job)
        except CannotBatch as error:
            wanted, why = "sequential", str(error)
            if name == "vectorised":
                warnings.warn(f"{error}; clients are trained one by one", stacklevel=2)
    threads = take_threads(wanted, job)
    engine = engine or ENGINES[wanted](job)
    if tell and why:
        tell(f"engine {engine.name}: {', '.join(filter(None, (why, threads)))}")
    return engine


def _causal(name: str, job: Job, tell: Callable[[str], None] | None) -> Engine:
    from accord.causal.engine import Causal  # here, because it needs this package itself

    if name not in ("auto", "sequential"):
        warnings.warn(
            f"clients of causalfed need their server at every step: engine {name!r} cannot train them, {Causal.name!r} does", stacklevel=3
        )
    threads = take_threads(Causal.name, job)
    if tell:
        why = "clients and server exchange representations and gradients at every step"
        tell(f"engine {Causal.name}: {', '.join(filter(None, (why, threads)))}")
    return Causal(job)


def _cluster(job: Job) -> Engine:
    from accord.engines.ray import Cluster  # here, because Ray may not be installed

    return Cluster(job)


def choose(job: Job) -> tuple[str, str]:
    """The engine for a job, and why: by device, model and clients."""
    sizes = [len(rows) for rows in job.fed.train.values()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if job.device.type == "cuda":
        return "vectorised", f"a CUDA device trains all clients of a round at once ({job.layout.size:,} parameters)"
    if job.algorithm.local.pooled or len(sizes) < 2:
        return "sequential", "there is one client at a time"
    if cores < 2:
        return "sequential", "there is one core"
    if job.layout.size * sum(sizes) / len(sizes) < _WORTH_A_PROCESS:
        return "sequential", f"clients are done too soon to be handed out ({job.layout.size:,} parameters)"
    return "processes", f"{cores} cores train a client each ({job.layout.size:,} parameters)"


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is a CUDA device if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise AccordError(f"there is no device {name!r}: choose auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise AccordError(f"accord runs on cpu and cuda, got device {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise AccordError(f"device {name!r} was asked for, but torch sees no CUDA device here: choose cpu or auto")
    return device
