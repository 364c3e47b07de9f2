"""The life of a worker process of the engine `processes`: it computes on one thread, and asks its parent for whatever
clients remember."""

import ctypes
import os
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.engines.compiled import one_by_one
from accord.engines.contract import Batch, Job, Member, Part, Work
from accord.engines.measuring import Values
from accord.engines.sequential import Sequential
from accord.engines.shared_memory import Area, Line, check_sendable
from accord.kernels.library import choose, chosen


def serve(line: Line, sent: Area, brings: "Sequential | Luggage", parent: int) -> None:
    """A worker's life: one task after another until it is killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever the parent does when it is terminated
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # One thread a worker. It is also what makes a fork safe: OpenMP's threads stay with the parent, and who calls for
    # them here hangs.
    torch.set_num_threads(1)
    keep_memory()
    engine: Sequential | None = brings if isinstance(brings, Sequential) else None
    while True:
        try:
            what, *content = line.receive()
        except (EOFError, OSError):
            return
        answer: Any
        try:
            engine = engine or brings.unpack()  # type: ignore[union-attr]
            answer = _train(line, engine, sent, *content) if what == "train" else _evaluate(engine, sent, *content)
        except AccordError as error:
            answer = AccordError(str(error))  # without what it was made from, which may not travel
        except Exception:
            answer = RuntimeError(f"a worker process failed:\n{traceback.format_exc()}")
        line.send("answer", answer)


def _train(
    line: Line, engine: Sequential, sent: Area, work: bytes, members: Sequence[tuple[str, Tensor | None, float]]
) -> Part:
    """A shard, whose clients' memories are with the parent."""
    round, vector, buffers, memory, lr = sent.load(work)
    remembers = engine.job.remembers
    shard = [
        Member(
            client,
            engine.fed.train[client] if rows is None else rows,
            partial(line.ask, "state", number) if remembers else dict,
            share,
        )
        for number, (client, rows, share) in enumerate(members)
    ]
    return engine.train_shard(Work(round, vector, buffers, memory, lr, partial(line.ask, "stage")), shard)


def _evaluate(engine: Sequential, sent: Area, work: bytes, batches: Sequence[Batch]) -> list[Values]:
    _, vector, buffers, *_ = sent.load(work)
    return [engine.evaluate_batch(vector, buffers, batch) for batch in batches]


def _end_with(parent: int) -> None:
    """Ends this process once its parent is gone, however that went."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def keep_memory() -> None:
    """Keeps freed memory for the next step: glibc may return it each time, and faulting it in again took a fifth of
    LeNet's step."""
    with suppress(OSError, AttributeError):  # other C libraries have no such call
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        libc.mallopt(-3, 2**28)  # M_MMAP_THRESHOLD


class Luggage:
    """What a spawned worker needs, packed once: the job, and settings that it would otherwise not have."""

    def __init__(self, job: Job) -> None:
        self.area = Area()
        settings = (
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            chosen(),
        )
        named = {"model": job.module, "data": job.fed, "loss": job.loss, "metrics": job.metrics}
        for what, value in {**named, "algorithm": job.algorithm, "training": job.training}.items():
            check_sendable(what, value)
        self.packed = self.area.dump((job, *settings))

    def unpack(self) -> Sequential:
        try:
            job, dtype, precision, deterministic, native = self.area.load(self.packed)
        except Exception as error:
            raise AccordError(
                f"model, data, loss or metrics cannot be rebuilt in a spawned process: {error}"
            ) from error
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic)
        choose(native)
        return one_by_one(job)
