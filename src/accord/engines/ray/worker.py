"""What runs on a device of the cluster: a local engine, which trains the shards it is handed and adds up records."""

import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.record import Record, State
from accord.engines.compiled import one_by_one
from accord.engines.contract import Batch, ClientRow, Job, Member, Work, added
from accord.engines.determinism import steady
from accord.engines.ray.payload import Luggage, Parcel
from accord.engines.sequential import Sequential
from accord.engines.vectorised import Vectorised, batched_if_possible
from accord.engines.worker_process import keep_memory


@dataclass(frozen=True)
class Piece:
    """Some clients of a shard: who (with rows only where the worker has others), what each remembers, and whether the
    shard begins or ends with them."""

    members: Sequence[tuple[str, Tensor | None, float]]
    client_states: Sequence[State]
    first: bool
    last: bool


@dataclass(frozen=True)
class Answer:
    """What the driver is told of a piece: a row per client, what accepted ones would remember, what they keep for a
    second exchange, and whether their record grows with the cohort."""

    rows: list[ClientRow] = field(default_factory=list)
    staged: list[tuple[str, State]] = field(default_factory=list)
    kept: list[State] = field(default_factory=list)
    grows: bool = False


def _answered(parcels: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Errors are answers too, so that the driver can tell the first of several as one process would. Of a method that
    gives several parcels the error is the first, and the others are empty."""

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: "Worker", *arguments: Any) -> Any:
            try:
                return method(self, *arguments)
            except AccordError as error:
                answer: Exception = AccordError(str(error))  # without what it was made from, which may not travel
            except Exception:
                answer = RuntimeError(f"a worker of the cluster failed:\n{traceback.format_exc()}")
            error_parcel = Parcel.of(answer)
            return error_parcel if parcels == 1 else (error_parcel, *(Parcel.of(None) for _ in range(parcels - 1)))

        return call

    return wrapped


class Worker:
    """One device's worker: `sequential` on one thread of a CPU, `vectorised` on a GPU. It has the job from its node's
    shared memory, and looks for modules also where the driver does (`places`)."""

    def __init__(self, luggage: Parcel, local: str, kind: str, places: Sequence[str]) -> None:
        sys.path += [place for place in places if place not in sys.path]
        self._luggage, self._local = luggage, local
        self._device = torch.device("cuda" if kind == "GPU" else "cpu")
        self._engine: Any = None
        self._record: Record | None = None  # of the shard at hand, so far
        self._settings = ExitStack()

    @_answered()
    def hello(self) -> Parcel:
        """Makes ready, and says which torch computes here."""
        if self._device.type == "cpu":
            torch.set_num_threads(1)
            keep_memory()
        try:
            luggage: Luggage = self._luggage.open()
        except Exception as error:
            raise AccordError(
                f"model, data, loss or metrics cannot be rebuilt on another node: {error} (install the modules that"
                " define them there)"
            ) from error
        luggage.apply()
        self._engine = self._made(replace(luggage.job, device=self._device))
        return Parcel.of(torch.__version__)

    def _made(self, job: Job) -> Sequential | Vectorised:
        self._settings.enter_context(steady(job.speed))
        if self._local == "sequential":
            return one_by_one(job)
        if self._local != "vectorised":
            raise AccordError(f"the engine of a worker is sequential or vectorised, got {self._local!r}")
        engine, why_not = batched_if_possible(job)
        if why_not:
            warnings.warn(f"{why_not}; clients are trained one by one", stacklevel=2)
        return engine

    @_answered(parcels=2)
    def train(self, sent: Parcel, packed: Parcel) -> tuple[Parcel, Parcel]:
        """Trains some clients of a shard: what the driver is told of them, and the shard's record once it is whole."""
        piece: Piece = packed.open()
        round, vector, buffers, memory, lr = self._here(sent.open())
        staged: list[tuple[str, State]] = []
        work = Work(round, vector, buffers, memory, lr, lambda client, state: staged.append((client, state)))
        part = self._engine.train_shard(work, [self._member(piece, number) for number in range(len(piece.members))])
        # Client by client within a piece, piece by piece here: one sum from left to right, however the shard was cut.
        self._record = part.record if piece.first else added(self._record, part.record)
        grows = part.record is not None and any(field.how == "rows" for field in part.record.fields().values())
        whole, self._record = self._record, None if piece.last else self._record
        return Parcel.of(Answer(part.rows, staged, part.kept, grows)), Parcel.of(whole if piece.last else None)

    def _member(self, piece: Piece, number: int) -> Member:
        client, rows, share = piece.members[number]
        known = self._engine.job.fed.train
        return Member(
            client, known[client] if rows is None else rows, partial(self._client_state, piece, number), share
        )

    def _client_state(self, piece: Piece, number: int) -> State:
        return self._here(piece.client_states[number]) if piece.client_states else {}

    def _here(self, value: Any) -> Any:
        """With its tensors on this device."""
        if isinstance(value, Tensor):
            return value.to(self._device)
        if isinstance(value, dict):
            return {name: self._here(each) for name, each in value.items()}
        return tuple(self._here(each) for each in value) if isinstance(value, tuple) else value

    def fold(self, before: Parcel | None, *records: Parcel) -> tuple[bool, Parcel]:
        """Adds shards' records, in their order, to the sum of all shards before them. The driver waits for the first
        value alone."""
        total: Record | None = before.open() if before is not None else None
        ours = False  # until something was added, the total is memory that others read
        for record in (parcel.open() for parcel in records):
            if total is not None and record is not None and ours:
                total.add_(record)
            else:
                ours = total is not None and record is not None
                total = added(total, record)
        return True, Parcel.of(total)

    @_answered()
    def evaluate(self, sent: Parcel, batches: Parcel) -> Parcel:
        """Loss and metrics of every sample of some batches."""
        vector, buffers = self._here(sent.open())
        some: Sequence[Batch] = batches.open()
        return Parcel.of([self._engine.evaluate_batch(vector, buffers, batch) for batch in some])
