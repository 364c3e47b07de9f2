"""Which engine trains: by name, or the best there is for the job."""

import os
import warnings
from collections.abc import Callable
from dataclasses import replace

from accord import kernels
from accord.causal.engine import Causal
from accord.core.errors import AccordError
from accord.engines.compiled import chain_of, has_blocks, one_by_one
from accord.engines.contract import Engine, Job
from accord.engines.processes import Processes
from accord.engines.second_model import SecondModel
from accord.engines.threads import take_threads, threads_of
from accord.engines.vectorised import Vectorised, batched_if_possible
from accord.kernels.library import chosen, undecided
from accord.runs.folder import RunFolder

ENGINES: dict[str, Callable[[Job], Engine]] = {
    "auto": lambda job: make_engine("auto", job),
    "sequential": one_by_one,
    "vectorised": Vectorised,
    "processes": Processes,
    "ray": lambda job: _cluster(job),
}
_WORTH_A_PROCESS = 1_000_000  # parameters times a client's samples: below, handing clients out costs more than it saves


def with_kernel(name: str, job: Job, folder: RunFolder | None = None, tell: Callable[[str], None] | None = None) -> Job:
    """The job as it will be run: on a CPU `auto` has the compiled kernel train where it is faster, unless the user
    decided otherwise, or the run goes on in a folder and began without. Tells before the kernel is built, which takes
    seconds, and if it cannot be."""
    before = None if folder is None else folder.environment
    ran_without = before is not None and before.get("native", "off") == "off"
    over = folder is not None and folder.over  # and will only be read
    if name != "auto" or over or ran_without or not undecided() or not _gains(job):
        return job
    tell = tell or (lambda _: None)
    if kernels.available(lambda: tell("building the compiled kernel for this machine's processor: seconds, once ...")):
        return replace(job, speed=job.speed | {"native"})
    tell(f"torch trains without the compiled kernel, which is slower: {kernels.why_not()}")
    return job


def _gains(job: Job) -> bool:
    """Whether the compiled kernel, which uses one thread, trains this job faster than torch. It depends on the job, the
    number of cores and the threads that torch may have, so that equal runs have equal bits."""
    if job.device.type != "cpu" or "bf16" in job.speed or job.algorithm.local.engine == Causal.name or soon_done(job):
        return False
    if chain_of(job) is None and not has_blocks(job.module):
        return False
    return threads_of(choose(job)[0], job) == 1


def make_engine(name: str, job: Job, tell: Callable[[str], None] | None = None) -> Engine:
    """The engine of that name, ready to train; "auto" picks the best one there is for the job, and tells which and why.
    On a CPU torch's threads are set to what suits the job: whoever calls this within `steady` has them back after
    it."""
    if name not in ENGINES:
        raise AccordError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")
    if job.algorithm.local.engine == Causal.name:
        return _causal(name, job, tell)
    wanted, why = choose(job) if name == "auto" else (name, "")
    threads = take_threads(wanted, job)
    if wanted != "vectorised":
        engine = ENGINES[wanted](job)
    else:
        engine, why_not = batched_if_possible(job)
        if why_not:
            why, threads = why_not, take_threads(engine.name, job)
            if name == "vectorised":
                warnings.warn(f"{why_not}; clients are trained one by one", stacklevel=2)
    kernel = "the compiled kernel" if why and "native" in job.speed else None
    notes = [f"engine {engine.name}: {', '.join(filter(None, (why, threads, kernel)))}"] if why else []
    if chosen() and job.device.type == "cpu" and not kernels.available():
        notes.append(f"torch does without the compiled kernel of ACCORD_NATIVE, because {kernels.why_not()}")
    if tell and notes:
        tell("; ".join(notes))
    return engine if job.beside is None else SecondModel(engine, make_engine(engine.name, job.beside))


def _causal(name: str, job: Job, tell: Callable[[str], None] | None) -> Engine:
    if name not in ("auto", "sequential"):
        warnings.warn(
            f"clients of causalfed need their server at every step: engine {name!r} cannot train them, {Causal.name!r}"
            " does",
            stacklevel=3,
        )
    threads = take_threads(Causal.name, job)
    if tell:
        why = "clients and server exchange representations and gradients at every step"
        tell(f"engine {Causal.name}: {', '.join(filter(None, (why, threads)))}")
    return Causal(job)


def _cluster(job: Job) -> Engine:
    if job.beside is not None:
        raise AccordError(
            f"engine 'ray' cannot train {job.algorithm.name}: its clients train a second model each round"
        )
    from accord.engines.ray import Cluster  # here, because Ray may not be installed

    return Cluster(job)


def soon_done(job: Job) -> bool:
    """Whether a client is done sooner than it would be handed to another process."""
    sizes = [len(rows) for rows in job.fed.train.values()]
    return job.layout.size * sum(sizes) / len(sizes) < _WORTH_A_PROCESS


def choose(job: Job) -> tuple[str, str]:
    """The engine for a job, and why: by device, model and clients."""
    sizes = [len(rows) for rows in job.fed.train.values()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if job.device.type == "cuda":
        return "vectorised", f"a CUDA device trains all clients of a round at once ({job.layout.size:,} parameters)"
    if job.fed.pooled or len(sizes) < 2:
        return "sequential", "there is one client at a time"
    if cores < 2:
        return "sequential", "there is one core"
    if not hasattr(os, "fork"):
        return "sequential", "this system cannot fork a process for each core"
    if soon_done(job):
        return "sequential", f"clients are done too soon to be handed out ({job.layout.size:,} parameters)"
    return "processes", f"{cores} cores train a client each ({job.layout.size:,} parameters)"
