"""What a client makes of its round before it leaves the machine: its report, or nothing but what is added up.

By default a client sends its report, and the server checks it and counts the votes. Where only sums may be seen (`Sums`), the client lifts
the algorithm's own record, so that checks for NaN and size are its own; with `secure` the record is whole numbers modulo a power of two, in
as few bits as they need, and with `masked` every share looks random until all of a round are added.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.record import Field, Record, State
from accord.core.reports import Reports, why_leave_out
from accord.core.round import Round
from accord.deploy.flower.wire import Task, fields_of, filled
from accord.engines.contract import ClientRow
from accord.privacy.secure_sum import SecureSum
from accord.rules.algorithm import Algorithm, Memory
from accord.rules.averages import corrective
from accord.runs.fingerprint import describe, fingerprint


@dataclass(frozen=True)
class whole_report:
    """An average in name: its record of one client is that client's report, for the server to lift from."""

    needs: frozenset[str] = frozenset()
    passes: int = 1

    def weights(self, reports: Reports) -> Tensor:
        return reports.one

    def init(self, layout: Layout, clients: int) -> State:
        return {}

    def lift(self, reports: Reports, sent: State) -> Record:
        told = {"delta": reports.delta, **{name: reports.extra[name] for name in self.needs}}
        return Record(**{name: Field(value[..., 0, :]) for name, value in told.items()})

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        raise NotImplementedError("a report is no sum")

    def second(self, kept: State, first: Record) -> Record:
        """What a client adds in a second exchange. One average has any, and what it adds does not depend on its settings."""
        return corrective(passes=2).second(kept, first)


@dataclass(frozen=True)
class Sums:
    """Clients send nothing but what is added up. `secure` writes it as whole numbers; `masked` hides every share with masks that cancel in
    the sum of a whole cohort, so that a round in which anybody is missing counts for nothing."""

    secure: SecureSum | None = None
    masked: bool = False

    def __post_init__(self) -> None:
        if self.masked and self.secure is None:
            raise AccordError("masked needs secure, such as SecureSum(clients=10, bound=1.0): only whole numbers can be masked")


def lifted_by(algorithm: Algorithm | None, sums: Sums | None, task: Task | None = None) -> Algorithm:
    """The algorithm as a client knows it: its local rule and what it lifts. Without sums a task says all of it."""
    if sums is not None and algorithm is not None:
        return algorithm if task is None else replace(algorithm, local=task.as_local())
    if task is None:
        assert algorithm is not None
        return Algorithm(algorithm.local, whole_report(algorithm.needs - algorithm.local.needs))
    return Algorithm(task.as_local(), whole_report(frozenset(task.needs), task.passes))


def form_name(algorithm: Algorithm | None, sums: Sums | None) -> str:
    """What both sides must agree on before anything is sent."""
    return "reports" if sums is None else f"sums {fingerprint([describe(algorithm), describe(sums)])}"


# ------------------------------------------------------------------------------------------------------------ at the client


def sent_form(record: Record, sums: Sums | None, task: Task, secret: int | None) -> State:
    """A client's record as it travels, field by field."""
    if sums is None or sums.secure is None:  # a client's votes are signs, and a sign is a byte
        return {path: entry.value.to(torch.int8) if _is_votes(path) else entry.value for path, entry in fields_of(record).items()}
    shares = fields_of(sums.secure.encode(record))
    return {path: _written(sums, path, share.value, task, secret) for path, share in shares.items()}


def _written(sums: Sums, path: str, share: Tensor, task: Task, secret: int | None) -> Tensor:
    assert sums.secure is not None
    if path == "clients":
        return share
    form = sums.secure.form(path.rsplit(".", 1)[-1])
    if sums.masked:
        if secret is None:
            raise AccordError("masked sums need a secret that all clients share and the server does not know: give client_app one")
        share = form.masked(share, task.client, task.cohort, draws.key(secret, "masks", task.round, path))  # never the same masks twice
    return packed(share, form.bits)


def packed(values: Tensor, bits: int) -> Tensor:
    """Whole numbers from 0 to 2^bits - 1 as bytes, `bits` bits each.

    >>> packed(torch.tensor([1, 2, 3]), 2)
    tensor([182], dtype=torch.uint8)
    """
    each = (values.numpy().reshape(-1, 1) >> np.arange(bits)) & 1
    return torch.from_numpy(np.packbits(each.astype(np.uint8), bitorder="little")).clone() if bits != 8 else values.to(torch.uint8)


def unpacked(data: Tensor, bits: int, size: int) -> Tensor:
    """The whole numbers that `packed` wrote, int64."""
    if data.dtype != torch.uint8 or data.shape != (-(-size * bits // 8),):
        raise AccordError(f"wrong length of packed numbers: {tuple(data.shape)}, expected ({-(-size * bits // 8)},)")
    if bits == 8:
        return data.to(torch.int64)
    each = np.unpackbits(data.numpy(), count=size * bits, bitorder="little").reshape(size, bits).astype(np.int64)
    return torch.from_numpy((each << np.arange(bits)).sum(1))


# ------------------------------------------------------------------------------------------------------------ at the server


class Receiver:
    """Turns what a client sent into a record that adds up, or says why it must not be added."""

    def __init__(self, algorithm: Algorithm, sums: Sums | None, layout: Layout) -> None:
        self.algorithm, self.sums, self.layout = algorithm, sums, layout
        lifts = lifted_by(algorithm, sums)
        start = torch.zeros(layout.size, dtype=layout.dtype)
        self.template = lifts.lift(_nothing(lifts, layout), lifts.init(layout, 1, start))
        if algorithm.asks_twice:
            still = _nothing(algorithm, layout)
            first = algorithm.lift(still, algorithm.init(layout, 1, start)).average
            self.unmoved: Record = algorithm.average.second(still.extra, first)  # type: ignore[attr-defined]

    def record(self, tensors: Mapping[str, Tensor], row: ClientRow, memory: Memory) -> Record:
        """The client's record, checked. A report is lifted here; a sum was lifted by the client."""
        if self.sums is not None and self.sums.secure is not None:
            return self._shares(self.sums.secure, tensors)
        record = filled(self.template, tensors if self.sums is None else self._signs(tensors))
        if self.sums is not None:
            return _finite(record)
        return self.algorithm.lift(self._reports(record, row), memory)

    def second(self, tensors: Mapping[str, Tensor]) -> Record:
        """What a client adds in a second exchange, checked."""
        return _finite(filled(self.unmoved, tensors))

    def total(self, record: Record | None, missing: int) -> Record | None:
        """The cohort's record as the algorithm lowers it."""
        if record is None or self.sums is None or self.sums.secure is None:
            return record
        if self.sums.masked and missing:
            raise AccordError(f"{missing} of a masked cohort are missing, and their masks with them")
        decoded = {path: entry.value for path, entry in fields_of(self.sums.secure.decode(record)).items()}
        wanted = fields_of(self.template)
        return filled(self.template, {path: value.to(wanted[path].value.dtype) for path, value in decoded.items()})

    def _signs(self, tensors: Mapping[str, Tensor]) -> State:
        """Votes as numbers that add up. A client has one vote on a coordinate, whatever it sends."""
        for path in filter(_is_votes, tensors):
            if tensors[path].dtype != torch.int8 or bool((tensors[path].abs() > 1).any()):
                raise AccordError("a vote must be -1, 0 or 1")
        wanted = {path: entry.value.dtype for path, entry in fields_of(self.template).items()}
        return {path: value.to(wanted.get(path, value.dtype)) if _is_votes(path) else value for path, value in tensors.items()}

    def _shares(self, secure: SecureSum, tensors: Mapping[str, Tensor]) -> Record:
        expected = fields_of(self.template)
        if tensors.keys() != {"clients", *(f"record.{path}" for path in expected)}:
            raise AccordError("wrong fields in a secure sum")
        if tensors["clients"].tolist() != [1]:
            raise AccordError(f"a share must be that of one client, got {tensors['clients'].tolist()}")
        values = {
            path: unpacked(tensors[f"record.{path}"], secure.form(path.rsplit(".", 1)[-1]).bits, entry.value.numel()).view(
                entry.value.shape
            )
            for path, entry in expected.items()
        }
        shares = filled(_whole(self.template), values)
        return Record(clients=Field(tensors["clients"]), record=shares)

    def _reports(self, record: Record, row: ClientRow) -> Reports:
        number = torch.ones(1, 1, dtype=self.layout.dtype)
        changes = {} if self.algorithm.local.variates is None else {"c": record.local.change[None]}
        extra = {name: entry.value[None] for name, entry in record.average if name != "delta" and isinstance(entry, Field)}
        delta, buffers = record.average.delta, record.buffers.change
        reason = why_leave_out(delta, row.samples, self.layout, buffers, [c[0] for c in changes.values()], [e[0] for e in extra.values()])
        if reason is not None:
            raise AccordError(reason)
        return Reports(
            delta=delta[None],
            weight=number * row.samples,
            steps=number * row.steps,
            buffers=buffers[None],
            extra=extra,
            before={name: torch.zeros_like(change) for name, change in changes.items()},
            after=changes,
        )


def _finite(record: Record) -> Record:
    if not all(bool(entry.value.isfinite().all()) for entry in fields_of(record).values() if entry.how == "sum"):
        raise AccordError("NaN or infinity in its sums")
    return record


def _is_votes(path: str) -> bool:
    return path.startswith("mask.") and path.endswith(".votes")  # a control has its mask's record within its own


def _nothing(algorithm: Algorithm, layout: Layout) -> Reports:
    """The report of a client that did not move, which shows what a record looks like."""
    zero, one = torch.zeros(1, layout.size, dtype=layout.dtype), torch.ones(1, 1, dtype=layout.dtype)
    extra: dict[str, Any] = {name: one * 0 if name.endswith("loss") else zero for name in algorithm.needs}
    state = {"c": zero} if algorithm.local.variates else {}
    buffers = torch.zeros(1, sum(entry.size for entry in layout.buffers), dtype=torch.float64)
    return Reports(zero, one, one, buffers, extra, state, state)


def _whole(template: Record) -> Record:
    """The template of a record written as whole numbers."""
    made: dict[str, Field | Record] = {}
    for name, entry in template:
        made[name] = _whole(entry) if isinstance(entry, Record) else Field(entry.value.to(torch.int64), entry.how)
    return Record(**made)
