"""What a client makes of its round before it leaves the machine: its report, or nothing but what is added up.

By default a client sends its report, and the server checks it and counts the votes. Where only sums may be seen
(`Sums`), the client lifts the algorithm's own record, so that checks for NaN and size are its own; with `secure` the
record is whole numbers modulo a power of two, in as few bits as they need; with `protocol` every share looks random
until those of enough clients are added, and with `masked` until all of a round are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError, check_whole
from accord.core.layout import Layout
from accord.core.protocols import Average
from accord.core.record import Field, Record, State
from accord.core.reports import Reports, why_leave_out
from accord.core.round import Round
from accord.deploy.flower.npy import Wanted
from accord.deploy.flower.packing import packed, packed_bytes, unpacked
from accord.deploy.flower.wire import Task, filled, part_in
from accord.engines.contract import ClientRow
from accord.privacy.secagg_graph import Graph, graph_of
from accord.privacy.secure_sum import SecureSum
from accord.rules.algorithm import Algorithm, Memory
from accord.rules.local import sgd
from accord.runs.fingerprint import describe, fingerprint


@dataclass(frozen=True)
class whole_report(Average):
    """An average in name: its record of one client is that client's report, for the server to lift from. A second
    exchange is that of the average that the server has."""

    needs: frozenset[str] = frozenset()
    asks: Average | None = None

    @property
    def passes(self) -> int:
        return 1 if self.asks is None else self.asks.passes

    def weights(self, reports: Reports) -> Tensor:
        return reports.one

    def lift(self, reports: Reports, sent: State) -> Record:
        fields = {"delta": reports.delta, **{name: reports.extra[name] for name in self.needs}}
        return Record(**{name: Field(value[..., 0, :]) for name, value in fields.items()})

    def second(self, kept: State, first: Record) -> Record:
        assert self.asks is not None
        return self.asks.second(kept, first)

    def lower(self, total: Record, state: State, round: Round) -> tuple[Tensor, State]:
        raise NotImplementedError("a report is no sum")


@dataclass(frozen=True)
class Sums:
    """Clients send nothing but what is added up. `secure` writes it as whole numbers.

    `protocol="secagg+"` hides every share behind keys that clients agree on anew in every round, and recovers the masks
    of those who drop out, as long as the share `threshold` of the cohort remains. `neighbours` is how many others a
    client shares keys with; left out, it is all of a small cohort, and of a large one as many as it takes (see
    `secagg_graph`). `masked` hides with one secret that all clients share, and a round in which anybody is missing
    counts for nothing.
    """

    secure: SecureSum | None = None
    masked: bool = False
    protocol: str | None = None
    threshold: float = 2 / 3
    neighbours: int | None = None

    def __post_init__(self) -> None:
        if self.masked and self.secure is None:
            raise AccordError(
                "masked needs secure, such as SecureSum(clients=10, bound=1.0): only whole numbers can be masked"
            )
        self._check_protocol()

    def _check_protocol(self) -> None:
        if self.protocol not in (None, SECAGG):
            raise AccordError(f"protocol must be {SECAGG!r}, or left out, got {self.protocol!r}")
        if self.protocol and (self.secure is None or self.masked):
            raise AccordError(
                "protocol needs secure, such as SecureSum(clients=10, bound=1.0), and stands in for masked: only whole"
                " numbers can be masked, and once"
            )
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float):
            raise AccordError(f"threshold must be a number, got {self.threshold!r}")
        if not 0.5 < self.threshold <= 1.0:
            raise AccordError(
                f"threshold must be above 0.5 and at most 1, got {self.threshold!r}: it is the share of a cohort that"
                " must remain, and half of one could be told another story than the other half"
            )
        if self.neighbours is not None:
            check_whole("neighbours", self.neighbours, least=2)
            if self.neighbours % 2:
                raise AccordError(f"neighbours must be even, half of them on either side, got {self.neighbours}")

    def graph(self, cohort: int) -> Graph:
        """Who shares keys with whom in a cohort of that size, and how many must remain."""
        return graph_of(cohort, float(self.threshold), self.neighbours)


SECAGG = "secagg+"
# Hides a record's whole numbers, field by field with their bits.
Hide = Callable[[Mapping[str, tuple[Field, int]]], State]
Rules = Mapping[str, Callable[..., Any]]  # parts of algorithms that a client knows, by name


def lifted_by(
    algorithm: Algorithm | None, sums: Sums | None, task: Task | None = None, rules: Rules | None = None
) -> Algorithm:
    """The algorithm as a client knows it: its local rule and what it lifts. Without sums a task says all of it, in
    names of `rules`."""
    if sums is not None and algorithm is not None:
        return algorithm if task is None else replace(algorithm, local=part_in(task.local, rules or {}))
    if task is None:
        assert algorithm is not None
        return Algorithm(algorithm.local, whole_report(algorithm.needs - algorithm.local.needs))
    asks, personal = None if task.average is None else part_in(task.average, rules or {}), tuple(task.personal)
    return Algorithm(part_in(task.local, rules or {}), whole_report(frozenset(task.needs), asks), personal=personal)


def check_protocol(algorithm: Algorithm | None, sums: Sums | None) -> None:
    """Refuses what a secure sum's one record cannot hold."""
    if algorithm is not None and sums is not None and sums.protocol and algorithm.asks_twice:
        raise AccordError(
            f"{algorithm.average.label} has a second exchange, whose sums would travel in the open: it cannot be used"
            f" with protocol {sums.protocol!r}"
        )


def form_name(algorithm: Algorithm | None, sums: Sums | None) -> str:
    """What both sides must agree on before anything is sent."""
    return "reports" if sums is None else f"sums {fingerprint([describe(algorithm), describe(sums)])}"


# ---------------------------------------------------------------------------------------------- at the client


def sent_form(record: Record, sums: Sums | None, task: Task, secret: int | None, hide: Hide | None = None) -> State:
    """A client's record as it travels, field by field."""
    if sums is None or sums.secure is None:  # a client's votes are signs, and a sign is a byte
        return {
            path: entry.value.to(torch.int8) if entry.kind == "votes" else entry.value
            for path, entry in record.fields().items()
        }
    if sums.protocol:
        assert hide is not None, "a record that is to be hidden must not leave in the open"
        whole = sums.secure.encode(record).part("record").fields()
        return hide({path: (field, sums.secure.form(field.kind).bits) for path, field in whole.items()})
    shares = sums.secure.encode(record).fields()
    return {path: _written(sums, path, share, task, secret) for path, share in shares.items()}


def shared(secret: int | None) -> int:
    """The secret that masked sums are drawn from."""
    if secret is None:
        raise AccordError(
            "masked sums need a secret that all clients share and the server does not know: give client_app one"
        )
    return secret


def _written(sums: Sums, path: str, field: Field, task: Task, secret: int | None) -> Tensor:
    assert sums.secure is not None
    share = field.value
    if path == "clients":
        return share
    form = sums.secure.form(field.kind)
    if sums.masked:
        # never the same masks twice
        key = draws.key(shared(secret), "masks", task.experiment, task.round, path, *task.cohort)
        share = form.masked(share, task.client, task.cohort, key)
    return packed(share, form.bits)


# ---------------------------------------------------------------------------------------------- at the server


class Receiver:
    """Turns what a client sent into a record that adds up, or says why it must not be added."""

    def __init__(self, algorithm: Algorithm, sums: Sums | None, layout: Layout) -> None:
        self.algorithm, self.sums, self.layout = algorithm, sums, layout
        self.template = lifted_by(algorithm, sums).sample_record(layout)
        if algorithm.asks_twice:
            first = algorithm.broadcast(algorithm.sample_record(layout))
            self.unmoved: Record = algorithm.average.second(algorithm.sample_reports(layout).extra, first)

    def wanted(self) -> Wanted:
        """The arrays that a client sends, each with its type and shape."""
        fields = self.template.fields()
        if self.sums is None:
            return {path: (field.value.dtype, tuple(field.value.shape)) for path, field in fields.items()}
        if self.sums.secure is None:
            kinds = {path: torch.int8 if field.kind == "votes" else field.value.dtype for path, field in fields.items()}
            return {path: (kinds[path], tuple(field.value.shape)) for path, field in fields.items()}
        bits = {path: self.sums.secure.form(field.kind).bits for path, field in fields.items()}
        prefix = "" if self.sums.protocol else "record."
        shares: Wanted = {
            prefix + path: (torch.uint8, (packed_bytes(field.value.numel(), bits[path]),))
            for path, field in fields.items()
        }
        return shares if self.sums.protocol else {"clients": (torch.int64, (1,)), **shares}

    def wanted_again(self) -> Wanted:
        """The same of a second exchange."""
        return {path: (field.value.dtype, tuple(field.value.shape)) for path, field in self.unmoved.fields().items()}

    def record(self, tensors: Mapping[str, Tensor], row: ClientRow, memory: Memory) -> Record:
        """The client's record, checked. A report is lifted here; a sum was lifted by the client."""
        if self.sums is not None and self.sums.secure is not None:
            return self._shares(self.sums.secure, tensors)
        record = _one_client(filled(self.template, tensors if self.sums is None else self._signs(tensors)), row)
        if self.sums is not None:
            return _finite(record)
        # The local rule's part was lifted by the client, whose memory it is about.
        lifted = replace(self.algorithm, local=sgd()).lift(self._reports(record, row), memory)
        return Record(**{**dict(lifted), "local": record.part("local")})

    def second(self, tensors: Mapping[str, Tensor]) -> Record:
        """What a client adds in a second exchange, checked."""
        return _finite(filled(self.unmoved, tensors))

    def total(self, record: Record | None, missing: int) -> Record | None:
        """The cohort's record as the algorithm lowers it."""
        if record is None or self.sums is None or self.sums.secure is None:
            return record
        if self.sums.masked and missing:
            raise AccordError(f"{missing} of a masked cohort are missing, and their masks with them")
        decoded = {path: entry.value for path, entry in self.sums.secure.decode(record).fields().items()}
        wanted = self.template.fields()
        clients = int(record["clients"])
        if any(bool((decoded[path] != clients).any()) for path, field in wanted.items() if field.kind == "count"):
            raise AccordError(f"the sum does not count {clients} clients: one of them sent what is no record")
        return filled(self.template, {path: value.to(wanted[path].value.dtype) for path, value in decoded.items()})

    def _signs(self, tensors: Mapping[str, Tensor]) -> State:
        """Votes as numbers that add up. A client has one vote on a coordinate, whatever it sends."""
        ballots = {path: field.value.dtype for path, field in self.template.fields().items() if field.kind == "votes"}
        for path in ballots.keys() & tensors.keys():
            if tensors[path].dtype != torch.int8 or bool(((tensors[path] > 1) | (tensors[path] < -1)).any()):
                raise AccordError("a vote must be -1, 0 or 1")
        return {path: value.to(ballots.get(path, value.dtype)) for path, value in tensors.items()}

    def _shares(self, secure: SecureSum, tensors: Mapping[str, Tensor]) -> Record:
        expected = self.template.fields()
        if tensors.keys() != {"clients", *(f"record.{path}" for path in expected)}:
            raise AccordError("wrong fields in a secure sum")
        if tensors["clients"].tolist() != [1]:
            raise AccordError(f"a share must be that of one client, got {tensors['clients'].tolist()}")
        values = {}
        for path, field in expected.items():
            numbers = unpacked(tensors[f"record.{path}"], secure.form(field.kind).bits, field.value.numel())
            values[path] = numbers.view(field.value.shape)
        whole = self.template.mapped(lambda field: replace(field, value=field.value.to(torch.int64)))
        return Record(clients=Field(tensors["clients"]), record=filled(whole, values))

    def _reports(self, record: Record, row: ClientRow) -> Reports:
        number = torch.ones(1, 1, dtype=self.layout.dtype)
        sent = {path: field.value for path, field in record.part("average").fields().items()}
        delta, buffers = sent.pop("delta"), record.part("buffers")["change"]
        local = [field.value for field in record.part("local").fields().values()]
        reason = why_leave_out(delta, row.samples, self.layout, buffers, local, list(sent.values()))
        if reason is not None:
            raise AccordError(reason)
        extra = {name: value[None] for name, value in sent.items()}
        return Reports(delta[None], number * row.samples, number * row.steps, buffers[None], extra)


def _one_client(record: Record, row: ClientRow) -> Record:
    """A record of one client counts one, and weighs no more than its samples."""
    for path, entry in record.fields().items():
        most = {"count": 1, "weight": max(1, row.samples)}.get(entry.kind)
        low = 1 if entry.kind == "count" else 0
        if most is not None and not bool(((entry.value >= low) & (entry.value <= most)).all()):
            raise AccordError(f"{path} must be that of one client with {row.samples} samples")
    return record


def _finite(record: Record) -> Record:
    for entry in record.fields().values():
        # a minimum may be infinite: nobody bounds it
        bad = entry.value.isnan() if entry.how == "min" else ~entry.value.isfinite()
        if bool(bad.any()):
            raise AccordError("NaN or infinity in its sums")
    return record
