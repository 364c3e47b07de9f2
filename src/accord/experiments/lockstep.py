"""Several runs in lockstep: the clients of all of them are lanes of one batch, and every run's record is what it would
be alone.

A run keeps its own folder, seed, cohort, algorithm and checkpoints; it shares the samples, the model's shapes and the
engine. Runs that end early leave, runs that wait take their place, and nothing that a run computes depends on who goes
along.
"""

import copy
import gc
import json
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from typing import Any

import torch
from torch import Tensor

from accord.core.itself import Itself
from accord.data.federated import Federation
from accord.engines.contract import Job, Outcome
from accord.engines.determinism import steady
from accord.engines.probe import draws_in_evaluation
from accord.engines.threads import take_threads
from accord.engines.vectorised import Request, Vectorised
from accord.engines.vectorised.descent import width_of
from accord.rules.algorithm import Algorithm
from accord.runs.fingerprint import describe
from accord.training.hooks import cut_short
from accord.training.lockstep import Lockstep
from accord.training.loop import Asked, Loop

MOST_RUNS = 512  # at a time; by then a device is full, and each holds a file open, its lock
_CHECKPOINT_SECONDS = 0.5  # a run, between two checkpoints of all
_COHORT = 16  # runs from which they go as two cohorts: half of fewer does not keep a device busy
_MEMORY = 4 << 30  # bytes, assumed where the system does not say (Windows)
STACKED = 256 << 20  # bytes that federations may take which are stacked
# of the model's size, that a run holds (progress, best model, moments), and that a lane holds while it trains
_VECTORS = 8


class Shared:
    """One copy of samples that several federations have in common: the deals of one data set differ, its pictures do
    not."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], list[Tensor]] = {}

    def federation(self, fed: Federation) -> Federation:
        """The same federation over samples, labels and tables of shifts that an earlier one brought, where they are the
        same."""
        shift = fed.shift
        if shift is not None:
            tables = {name: self._one(table) for name, table in shift.tables.items()}
            shift = replace(shift, owner=self._one(shift.owner), tables=tables)
        return replace(fed, x=self._one(fed.x), y=self._one(fed.y), shift=shift)

    def _one(self, tensor: Tensor) -> Tensor:
        """The first tensor seen that holds these bits."""
        alike = self._kept.setdefault((tensor.shape, tensor.dtype, tensor.device), [])
        for other in alike:
            if other is tensor or torch.equal(_bits(other), _bits(tensor)):
                return other
        alike.append(tensor)
        return tensor


def stacked(feds: Sequence[Federation]) -> list[Federation]:
    """Federations over small data whose samples are prepared differently, as one over all that their models read: their
    runs can then be lanes of one batch. Others are given back as they are."""
    shared = Shared()
    if any(fed.augment is not None for fed in feds) or sum(map(_bytes_read, feds)) > STACKED:
        return list(feds)
    ready = [shared.federation(fed.prepared(STACKED)) for fed in feds]
    # a level that only the client left out has is no input of the others: tables then differ in width
    wide: dict[Hashable, list[int]] = {}
    for number, fed in enumerate(ready):
        wide.setdefault((fed.x.shape[1:], fed.x.dtype, fed.y.shape[1:], fed.y.dtype), []).append(number)
    moved = list(feds)
    for numbers in wide.values():
        together = _over_one_table([ready[number] for number in numbers])
        if together is not None:
            for number, fed in zip(numbers, together, strict=True):
                moved[number] = fed
    return moved


def _over_one_table(feds: Sequence[Federation]) -> list[Federation] | None:
    """The same federations over one tensor of samples; None where they have one already."""
    keys = [(Itself(fed.x), Itself(fed.y)) for fed in feds]
    parts = dict(zip(keys, feds, strict=True))
    if len(parts) == 1:
        return None
    x, y = torch.cat([fed.x for fed in parts.values()]), torch.cat([fed.y for fed in parts.values()])
    begins = dict(zip(parts, accumulate((len(fed.y) for fed in parts.values()), initial=0), strict=False))
    moved = []
    for fed, key in zip(feds, keys, strict=True):
        first = begins[key]
        train, heldout, unseen, others = (
            {name: rows + first for name, rows in of.items()} for of in (fed.train, fed.heldout, fed.unseen, fed.others)
        )
        test = None if fed.test is None else fed.test + first
        resplit = replace(fed, train=train, heldout=heldout, unseen=unseen, others=others, test=test)
        moved.append(replace(resplit, x=x, y=y))
    return moved


def _bytes_read(fed: Federation) -> int:
    return fed.read(torch.zeros(1, dtype=torch.int64))[0].nbytes * len(fed.y)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)  # NaN equals NaN, and 0 is not -0


def why_alone(algorithm: Algorithm) -> str | None:
    """Why a run of the algorithm shares no batch with others, if it cannot: what it needs is not in a lane."""
    if algorithm.local.engine is not None:
        return "clients of causalfed need their server at every step"
    if algorithm.local.beside is not None:
        return "its clients train a second model when a round's reports are in"
    return None


def alike(job: Job) -> Hashable:
    """What runs must have in common to be lanes of one batch: the model but for its weights, the samples and how they
    are read, loss, metrics, batch size and kind of optimiser. Seeds, deals, rates, masks, rules and epochs may differ.
    Samples are the same if they are one tensor."""
    fed, whole = job.fed, job.whole
    blank = whole.load(
        copy.deepcopy(job.module), torch.zeros(whole.size, dtype=whole.dtype), torch.zeros(whole.buffer_size)
    )
    read: list[Any] = [blank, fed.prepare, fed.augment, fed.shift and fed.shift.shift]
    tensors = [fed.x, fed.y, *([fed.shift.owner, *fed.shift.tables.values()] if fed.shift else [])]
    return (
        job.layout,
        json.dumps([describe(part) for part in read]),
        tuple(map(Itself, tensors)),
        job.loss,
        tuple(job.metrics.items()),
        None if job.algorithm.local.full_batch else job.training.batch,
        width_of(job),
        job.device,
        job.speed,
        type(job.training.rule),
        job.seed if draws_in_evaluation(job) else None,
    )


def room(job: Job, cohort: int) -> int:
    """How many runs can go at a time, with so many clients each: half of the memory is for their vectors, the rest for
    what a step needs. Should it still not suffice, the engine takes fewer lanes at once."""
    if job.device.type == "cuda":
        memory = torch.cuda.mem_get_info(job.device)[0]
    else:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else _MEMORY
    run = _VECTORS * (1 + cohort) * job.layout.size * job.layout.dtype.itemsize
    return max(1, min(MOST_RUNS, memory // 2 // run, _open_files() - 64))


def _open_files() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows, whose C library starts with so many
        return 512
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def together(
    loops: Iterable[Loop],
    engine: Vectorised,
    at_once: int,
    interrupted: Callable[[], bool] = lambda: False,
    cohorts: int | None = None,
) -> Iterator[Loop]:
    """Drives runs that are alike round by round, at most `at_once` at a time, and gives each of them when it is over.
    `loops` is drawn from as there is room. Once interrupted, all stop after the round they are in, and none begins.

    With two `cohorts` of runs (None: on CUDA, where there are runs enough) the host sees to one while the device trains
    the other.
    """
    waiting = iter(loops)
    count = cohorts or (2 if engine.job.device.type == "cuda" and at_once >= _COHORT else 1)
    engines = [engine, *(engine.twin() for _ in range(count - 1))]
    companies = [_Company(each, -(-at_once // count), count > 1) for each in engines]
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)  # a round makes many small objects, and looking for cycles took half of its time
    try:
        while True:
            for company in companies:
                if company.end() and interrupted():
                    waiting = iter(())
                    company.stop("interrupted")
                yield from company.begin(waiting)
            if not any(company.going for company in companies):
                return
    except BaseException as error:
        for company in companies:
            for loop, _ in company.going:
                loop.end(cut_short(error))
        raise
    finally:
        gc.set_threshold(*thresholds)


def trained(
    loops: Iterable[Loop],
    engine: Vectorised,
    at_once: int,
    auto: bool,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Loop]:
    """The same with the threads and the determinism of training (`auto`: the engine was accord's choice), and each
    run's folder closed as it is over: there may be more runs than a process may hold files open."""
    with steady(engine.job.speed):
        if auto:
            take_threads("sequential", engine.job)  # on a CPU, where only small steps go in lockstep unless asked to
        for loop in together(loops, engine, at_once, interrupted):
            if loop.folder is not None:
                loop.folder.close()
            yield loop


class _Company:
    """Runs that train at the same time. With `defers`, a round is recorded while the next is trained."""

    def __init__(self, engine: Vectorised, at_once: int, defers: bool) -> None:
        self.engine, self.at_once, self.lockstep = engine, at_once, Lockstep(engine, defers)
        self.going: list[tuple[Loop, Iterator[Any]]] = []
        self._flight: tuple[float, list[tuple[Loop, Asked]], Callable[[], list[Outcome]]] | None = None

    def begin(self, waiting: Iterator[Loop]) -> Iterator[Loop]:
        """Lets in whom there is room for, and begins everybody's next round; gives runs that are over."""
        while True:
            new = [(loop, loop.rounds()) for loop in islice(waiting, self.at_once - len(self.going))]
            if new:  # the engine adds up neighbours of one algorithm at once
                self.going = sorted([*self.going, *new], key=lambda run: repr(run[0].job.algorithm))
                for loop, _ in self.going:  # a checkpoint of each takes as long as many rounds of all
                    loop.checkpoint_seconds = max(loop.checkpoint_seconds, _CHECKPOINT_SECONDS * len(self.going))
            turns = [(loop, rounds, next(rounds, None)) for loop, rounds in self.going]
            self.going = [(loop, rounds) for loop, rounds, asked in turns if asked is not None]
            yield from (loop for loop, _, asked in turns if asked is None)
            if self.going or not turns:
                break
        wanted = [(loop, asked) for loop, _, asked in turns if asked is not None]
        if wanted:
            requests = [Request(loop.job, asked.work, asked.cohort) for loop, asked in wanted]
            self._flight = time.monotonic(), wanted, self.engine.begin_many(requests)

    def end(self) -> bool:
        """Takes in the round that was begun, if there is one."""
        if self._flight is None:
            return False
        (started, wanted, outcomes), self._flight = self._flight, None
        self.lockstep.record()
        done = [(*turn, outcome) for turn, outcome in zip(wanted, outcomes(), strict=True)]
        self.lockstep.absorb(done, (time.monotonic() - started) / len(wanted))
        return True

    def stop(self, why: str) -> None:
        self.lockstep.record()
        for loop, _ in self.going:
            loop.stop(why)
