"""How many threads torch computes a step with on a CPU: as many as the step is worth.

Threads wait for each other at every operation. Where steps are small, or other programs keep the cores busy, they wait
longer than they compute: 40 rounds of logistic regression took 7.1 s with two threads and 0.3 s with one. Results are
bit-identical only for equal numbers of threads, so the number depends on model, batch and machine, never on a measured
time.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from accord.engines.contract import Job
from accord.engines.probe import copied, two_samples

# Multiply-adds of a local step that are worth a thread, about 10 ms of one core. LeNet's step with 32 pictures has 27
# million, that of ResNet-18 fifty billion.
_WORTH_A_THREAD = 250_000_000
_PASSES = 3  # that a step is worth: the forward pass, and as much again for the gradients of outputs and of weights
SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # a user who sets one of these has chosen


def threads_for(work: int, most: int) -> int:
    """Threads for a step of so many multiply-adds.

    >>> threads_for(27_000_000, most=16), threads_for(1_000_000_000, most=16), threads_for(5 * 10**10, most=16)
    (1, 4, 16)
    """
    return max(1, min(most, work // _WORTH_A_THREAD))


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it, or within a function that it decorates, torch computes with one thread: for simulations of many small
    steps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def take_threads(engine: str, job: Job) -> str | None:
    """Sets torch's threads for a job, and says how many and why; None where they do not matter. `steady` puts them
    back.

    What torch has been set to is the most it may be: `torch.set_num_threads(1)` keeps it at one."""
    if job.device.type != "cpu" or engine not in ("sequential", "processes", "causal"):
        return None
    threads, why = _threads(engine, job)
    torch.set_num_threads(threads)
    return why


def threads_of(engine: str, job: Job) -> int:
    """The threads that a step of this job gets on a CPU; torch's are left as they are."""
    return _threads(engine, job)[0]


def _threads(engine: str, job: Job) -> tuple[int, str]:
    most = torch.get_num_threads()
    if engine == "processes":
        # as each worker has: the parent's further threads would only take cores away from them
        return 1, "one thread each"
    if chosen := next((name for name in SETTINGS if name in os.environ), None):
        return most, f"{_in_words(most)}, by {chosen}"
    with one_thread():
        work = step_work(job)
    threads = threads_for(work, most)
    return threads, f"{_in_words(threads)} for steps of {work:,} multiply-adds"


def step_work(job: Job) -> int:
    """Multiply-adds of one local step of the largest client."""
    batch = max(map(len, job.fed.train.values()), default=0)
    if job.training.batch is not None and not job.algorithm.local.full_batch:
        batch = min(batch, job.training.batch)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            x, _ = two_samples(job)
            forward = _forward_work(copied(job.module).train(), x) // len(x)
    except Exception:
        forward = 0  # the model cannot read the samples, which the engine says, or its layers give no tensors
    return _PASSES * batch * max(forward, job.layout.size)  # every parameter is used once at least


def _forward_work(module: nn.Module, x: Tensor) -> int:
    """Multiply-adds of a pass: a layer uses each of its weights once for every position of its output. (torch's own
    counter needs a second to start.)"""
    total = 0

    def count(layer: nn.Module, _: Any, output: Any) -> None:
        nonlocal total
        values: Tensor = output[0] if isinstance(output, tuple) else output
        channels = values.shape[1 if isinstance(layer, _ConvNd) else -1]
        total += _weights(layer) * (values.numel() // channels)

    for layer in module.modules():
        # these look up, and multiply nothing
        if _weights(layer) and not isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            layer.register_forward_hook(count)
    module(x)
    return total


def _weights(layer: nn.Module) -> int:
    return sum(values.numel() for values in layer.parameters(recurse=False) if values.dim() > 1)


def _in_words(threads: int) -> str:
    return "one thread" if threads == 1 else f"{threads} threads"
