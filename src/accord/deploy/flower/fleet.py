"""A federation of Flower nodes as an accord engine: it trains a cohort into one record, and evaluates a model, by
messages.

Replies are added as they arrive, in the cohort's order, so that a deployed round is the simulated one bit by bit. One
that comes before its turn waits on disk: the server's memory does not grow with the cohort.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.app import ArrayRecord, Message, MessageType
from safetensors.torch import load_file
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.files import tensor_bytes
from accord.core.record import Record, State
from accord.deploy.flower.exchange import exchange, unanswered
from accord.deploy.flower.figures import Gathered
from accord.deploy.flower.roster import Roster
from accord.deploy.flower.sums import Receiver, Sums
from accord.deploy.flower.wire import AGAIN, arrays_of, content, message_in, payload, row_in, task_of, tensors_in
from accord.engines.contract import ClientRow, Group, Job, Member, Outcome, Part, Table, Work, added, shards

Answer = tuple[ClientRow, State]  # a client's row, and its record as it travelled


class Fleet:
    """The engine. `versions(client)` gives the rounds of the client's state that counts, and of the one the last
    checkpoint names."""

    name = "flower"
    lanes_at_once = None
    holds_clients = True

    def __init__(
        self,
        job: Job,
        roster: Roster,
        sums: Sums | None,
        experiment: str,
        timeout: float,
        versions: Callable[[str], tuple[int, int]],
    ) -> None:
        self.job, self.roster, self.sums, self.experiment, self.timeout, self.versions = (
            job,
            roster,
            sums,
            experiment,
            timeout,
            versions,
        )
        self.receiver = Receiver(job.algorithm, sums, job.layout)
        self.bytes_down = self.bytes_up = 0

    def close(self) -> None:
        """Nothing is held open."""

    # ----------------------------------------------------------------------------------------------- training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Sends the cohort its tasks and adds what comes back."""
        messages = self.messages(work, cohort)
        return self.outcome(work, cohort, exchange(self.roster.grid, messages, self.timeout), messages)

    def messages(self, work: Work, cohort: Sequence[Member]) -> list[Message]:
        """A task for every client of the cohort whose node is there."""
        told = {"model": {"vector": work.vector, "buffers": work.buffers}, "sent": work.memory["local"]}
        if self.sums:  # clients then lift what the average and the mask add up, which may go by what these remember
            told |= {part: work.memory[part] for part in ("average", "mask")}
        return self._messages(work, cohort, MessageType.TRAIN, told)

    def _messages(self, work: Work, cohort: Sequence[Member], kind: str, told: dict[str, State]) -> list[Message]:
        self.roster.meet()
        arrays = {group: arrays_of(tensors) for group, tensors in told.items()}
        names = [member.client for member in cohort] if self.sums and self.sums.masked else []
        asked = [member for member in cohort if member.client in self.roster.where]
        return [self._message(work, member, kind, arrays, names) for member in asked]

    def _message(
        self, work: Work, member: Member, kind: str, arrays: dict[str, ArrayRecord], cohort: list[str]
    ) -> Message:
        version, kept = self.versions(member.client)
        task = task_of(
            self.job.algorithm,
            self.job.training,
            work.round,
            experiment=self.experiment,
            client=member.client,
            seed=self.job.seed,
            share=member.share,
            version=version,
            kept=kept,
            cohort=cohort,
        )
        node = self.roster.where[member.client]
        return Message(content(arrays, asdict(task)), node, kind, ttl=self.timeout, group_id=str(work.round))

    def outcome(
        self,
        work: Work,
        cohort: Sequence[Member],
        replies: Iterable[tuple[int, Message | None]],
        messages: Sequence[Message],
    ) -> Outcome:
        """A cohort's round from its replies, in whatever order they come."""
        self.bytes_down = self.bytes_up = 0
        answers = self._answers(work, cohort, replies, messages)
        done = sum((self._part(work, shard, answers) for shard in shards(cohort)), start=Part())
        record, rows = done.record, done.rows
        silent: dict[str, str] = {}
        try:
            record = self.receiver.total(record, sum(row.left_out_because is not None for row in rows))
        except AccordError as error:  # sums that cannot be told: nobody's report counts
            record, rows = (
                None,
                [row if row.left_out_because else replace(row, left_out_because=str(error)) for row in rows],
            )
        if record is not None and self.job.algorithm.asks_twice:
            reported = [member for member, row in zip(cohort, rows, strict=True) if row.left_out_because is None]
            record, silent = self._again(work, reported, record)
        told = {"bytes_down": self.bytes_down, "bytes_up": self.bytes_up}
        return Outcome(record, rows, {**told, "left_out_again": silent} if silent else told)

    def _again(self, work: Work, cohort: Sequence[Member], record: Record) -> tuple[Record, dict[str, str]]:
        """The second exchange: those who reported are told the first one's sums, and add to others. Who does not answer
        now adds nothing to these, and is named; its update is in the mean already."""
        algorithm = self.job.algorithm
        first = {name: field.value for name, field in algorithm.broadcast(record).fields().items()}
        messages = self._messages(work, cohort, f"{MessageType.TRAIN}.{AGAIN}", {"first": first})
        answers = self._answers(work, cohort, exchange(self.roster.grid, messages, self.timeout), messages)
        second: Record | None = None
        silent: dict[str, str] = {}
        for row, tensors in answers:
            try:
                if row.left_out_because:
                    raise AccordError(row.left_out_because)
                second = added(second, self.receiver.second(tensors))
            except AccordError as error:
                silent[row.client] = str(error)
        return algorithm.joined(record, second or self.receiver.unmoved), silent

    def _answers(
        self,
        work: Work,
        cohort: Sequence[Member],
        replies: Iterable[tuple[int, Message | None]],
        messages: Sequence[Message],
    ) -> Iterator[Answer]:
        """What every client of the cohort answered, in the cohort's order, as soon as it can be told."""
        self.bytes_down += sum(map(payload, messages))
        turn = {member.client: number for number, member in enumerate(cohort)}
        asked = [_client_of(message) for message in messages]
        return in_turn(len(cohort), self._arriving(work, cohort, turn, asked, replies))

    def _arriving(
        self,
        work: Work,
        cohort: Sequence[Member],
        turn: dict[str, int],
        asked: Sequence[str],
        replies: Iterable[tuple[int, Message | None]],
    ) -> Iterator[tuple[int, Answer]]:
        """(the client's turn, its answer), as they come."""
        for member in cohort:
            if member.client not in asked:
                yield turn[member.client], (_silent(member.client, "its node is not connected"), {})
        for number, reply in replies:
            client = asked[number]
            self.bytes_up += 0 if reply is None else payload(reply)
            yield turn[client], self._answer(work, client, reply)

    def _answer(self, work: Work, client: str, reply: Message | None) -> Answer:
        if unanswered(reply):
            self.roster.doubt(client)
            return _silent(client, f"no reply within {self.timeout:g} s"), {}
        assert reply is not None
        if reply.has_error():
            return _silent(client, f"its node failed: {_one_line(reply.error.reason or '')}"), {}
        try:
            told = message_in(reply.content)
            if "error" in told:
                return _silent(client, _one_line(str(told["error"]))), {}
            return row_in(told, client, work.round), tensors_in(reply.content, "record")
        except (
            AccordError,
            ValueError,
            TypeError,
            KeyError,
            OSError,
            EOFError,
        ) as error:  # whatever a broken client may send
            return _silent(client, f"its reply cannot be read: {_one_line(str(error))}"), {}

    def _part(self, work: Work, shard: Sequence[Member], answers: Iterator[Answer]) -> Part:
        record: Record | None = None
        rows = []
        for member in shard:
            row, tensors = next(answers)
            if row.left_out_because is None:
                try:
                    record = added(record, self.receiver.record(tensors, row, work.memory))
                    if self.job.remembers:
                        work.stage(member.client, {})  # its state is its own; the server only counts versions
                except AccordError as error:
                    row = replace(row, left_out_because=str(error))
            rows.append(row)
        return Part(record, rows)

    # --------------------------------------------------------------------------------------------- evaluation

    def evaluate(self, vector: Tensor, buffers: Tensor, groups: Sequence[Group]) -> Table:
        """Every node that is there evaluates the model on its own data. Groups that nobody answered for have no
        samples."""
        self.roster.meet()
        told: dict[str, Any] = {}
        if self.job.algorithm.personal:  # every client's own data is evaluated with what it keeps of the model
            versions = {client: self.versions(client) for client in self.job.fed.clients}
            told = {"personal": self.job.algorithm.personal, "experiment": self.experiment, "versions": versions}
        sent = content({"model": arrays_of({"vector": vector, "buffers": buffers})}, told)
        messages = [Message(sent, node, MessageType.EVALUATE, ttl=self.timeout) for node in self.roster.nodes]
        found = Gathered(groups)
        nodes = {node: client for client, node in self.roster.where.items()}
        for asked, reply in exchange(self.roster.grid, messages, self.timeout):
            if unanswered(reply):
                self.roster.doubt(nodes[messages[asked].metadata.dst_node_id])
            if reply is None or not reply.has_content():
                continue
            with suppress(AccordError, ValueError, TypeError, KeyError, AttributeError):  # a broken answer is no answer
                found.add(reply.content)
        if not found.sums and found.error:
            raise AccordError(f"no node could evaluate the model: {_one_line(found.error)}")
        if not found.sums:
            raise AccordError(
                f"none of {len(messages)} nodes answered an evaluation within {self.timeout:g} s: the run can be"
                " resumed"
            )
        return found.table()


def in_turn(count: int, arriving: Iterator[tuple[int, Answer]]) -> Iterator[Answer]:
    """Answers 0, 1, 2 ... in this order, each as soon as those before it are there. The others wait in a temporary
    folder."""
    early: dict[int, ClientRow] = {}
    turn = 0
    with TemporaryDirectory(prefix="accord-") as folder:
        for number, (row, tensors) in arriving:
            if number != turn:
                early[number] = row
                if tensors:
                    (Path(folder) / str(number)).write_bytes(tensor_bytes(tensors))
                continue
            yield row, tensors
            turn += 1
            while turn in early:
                file = Path(folder) / str(turn)
                yield early.pop(turn), load_file(file) if file.exists() else {}
                file.unlink(missing_ok=True)
                turn += 1
    assert turn == count, f"{count - turn} answers never came"


def _client_of(message: Message) -> str:
    return str(json.loads(str(message.content.config_records["accord"]["json"]))["client"])


def _silent(client: str, why: str) -> ClientRow:
    return ClientRow(client, 0, 0, 0.0, 0.0, left_out_because=why)


def _one_line(text: str) -> str:
    """The last line of what may be a traceback, which says what was wrong."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no reason given")[:300]
