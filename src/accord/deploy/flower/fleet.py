"""A federation of Flower nodes as an accord engine: it trains a cohort into one record, and evaluates a model, by
messages.

No reply is trusted. It is read into a typed message (`replies.py`) and into arrays of the shapes that are expected
(`npy.py`); what does not fit is left out, named and counted (`conduct.py`). Answers are added in the cohort's order
(`turns.py`).
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.record import Record, State
from accord.deploy.flower.exchange import Reply
from accord.deploy.flower.figures import Form, Gathered
from accord.deploy.flower.npy import Wanted, arrays_in
from accord.deploy.flower.replies import Failed, Silent, TrainReply, content_of
from accord.deploy.flower.roster import Roster
from accord.deploy.flower.secagg_messages import MASKED
from accord.deploy.flower.secagg_rounds import SecureRound
from accord.deploy.flower.sums import Receiver, Sums
from accord.deploy.flower.turns import UPDATE, Answer, in_turn, together
from accord.deploy.flower.wire import AGAIN, arrays_of, content, payload, task_of
from accord.engines.contract import ClientRow, Group, Job, Member, Outcome, Part, Table, Work, added, shards
from accord.privacy.secagg_graph import Graph

MASKED_TASK = f"{MessageType.TRAIN}.{MASKED}"  # a task whose record leaves the client masked
_log = logging.getLogger("flwr")


class Fleet:
    """The engine. `versions(client)` gives the rounds of the client's state that counts, and of the one the last
    checkpoint names. `max_norm_ratio` is how many times the cohort's median the length of an update may be."""

    name = "flower"
    lanes_at_once = None
    ahead = None
    holds_clients = True

    def __init__(
        self,
        job: Job,
        roster: Roster,
        sums: Sums | None,
        experiment: str,
        timeout: float,
        versions: Callable[[str], tuple[int, int]],
        max_norm_ratio: float | None = None,
    ) -> None:
        self.job, self.roster, self.sums, self.experiment, self.timeout, self.versions = (
            job,
            roster,
            sums,
            experiment,
            timeout,
            versions,
        )
        # where clients send sums, the bound is their own
        self.max_norm_ratio = max_norm_ratio if sums is None else None
        self.receiver = Receiver(job.algorithm, sums, job.layout)
        self.bytes_down = self.bytes_up = 0
        self._form: Form | None = None  # of the evaluation before

    def close(self) -> None:
        """Nothing is held open."""

    # ----------------------------------------------------------------------------------------------- training

    def train(self, work: Work, cohort: Sequence[Member]) -> Outcome:
        """Sends the cohort its tasks and adds what comes back."""
        if self.sums and self.sums.protocol:
            self.roster.conduct.begin_round()
            done = self._secure_round(work, cohort, self.sums.graph(len(cohort))).outcome()
            return replace(done, row_fields={**done.row_fields, **self.roster.conduct.row_fields()})
        messages = self.messages(work, cohort)
        return self.outcome(work, cohort, self.roster.exchange(messages, self.timeout), messages)

    def _secure_round(self, work: Work, cohort: Sequence[Member], graph: Graph) -> SecureRound:
        return SecureRound(
            self.roster,
            self.receiver,
            self.experiment,
            self.timeout,
            work.round,
            [member.client for member in cohort],
            graph,
            tasks=lambda names: self.messages(work, [m for m in cohort if m.client in names], MASKED_TASK),
            read=lambda client, node, reply: self.answer(work, client, node, reply, self.receiver.wanted()),
            stage_state=(lambda client: work.stage(client, {})) if self.job.remembers else lambda client: None,
        )

    def messages(self, work: Work, cohort: Sequence[Member], kind: str = MessageType.TRAIN) -> dict[str, Message]:
        """A task for every client of the cohort whose node is there, by client."""
        groups_sent = {"model": {"vector": work.vector, "buffers": work.buffers}, "sent": work.memory["local"]}
        if self.sums:  # clients then lift what the average and the mask add up, which may go by what these remember
            groups_sent |= {part: work.memory[part] for part in ("average", "mask")}
        return self._messages(work, cohort, kind, groups_sent)

    def _messages(
        self, work: Work, cohort: Sequence[Member], kind: str, groups_sent: dict[str, State]
    ) -> dict[str, Message]:
        self.roster.meet()
        arrays = {group: arrays_of(tensors) for group, tensors in groups_sent.items()}
        names = [member.client for member in cohort] if self.sums and self.sums.masked else []
        asked = [member for member in cohort if member.client in self.roster.where]
        return {member.client: self._message(work, member, kind, arrays, names) for member in asked}

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
            preparation=self.roster.preparation,
        )
        node = self.roster.where[member.client]
        return Message(content(arrays, asdict(task)), node, kind, ttl=self.timeout, group_id=str(work.round))

    def outcome(
        self,
        work: Work,
        cohort: Sequence[Member],
        replies: Iterable[tuple[str, Reply]],
        messages: Mapping[str, Message],
    ) -> Outcome:
        """A cohort's round from its replies, in whatever order they come."""
        self.bytes_down = self.bytes_up = 0
        self.roster.conduct.begin_round()
        answers = self._answers(work, cohort, replies, messages, self.receiver.wanted())
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
        fields: dict[str, Any] = {"bytes_down": self.bytes_down, "bytes_up": self.bytes_up}
        if silent:
            fields["left_out_again"] = silent
        return Outcome(record, rows, {**fields, **self.roster.conduct.row_fields()})

    def _again(self, work: Work, cohort: Sequence[Member], record: Record) -> tuple[Record, dict[str, str]]:
        """The second exchange: those who reported are told the first one's sums, and add to others. Who does not answer
        now adds nothing to these, and is named; its update is in the mean already."""
        algorithm = self.job.algorithm
        first = {name: field.value for name, field in algorithm.broadcast(record).fields().items()}
        messages = self._messages(work, cohort, f"{MessageType.TRAIN}.{AGAIN}", {"first": first})
        replies = self.roster.exchange(messages, self.timeout)
        answers = self._answers(work, cohort, replies, messages, self.receiver.wanted_again(), again=True)
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
        replies: Iterable[tuple[str, Reply]],
        messages: Mapping[str, Message],
        wanted: Wanted,
        again: bool = False,
    ) -> Iterator[Answer]:
        """What every client of the cohort answered, in the cohort's order."""
        self.bytes_down += sum(map(payload, messages.values()))
        turn = {member.client: number for number, member in enumerate(cohort)}

        def arriving() -> Iterator[tuple[int, Answer]]:
            for member in cohort:
                if member.client not in messages:
                    yield turn[member.client], (_silent(member.client, self.roster.absent(member.client)), {})
            for client, reply in replies:
                self.bytes_up += payload(reply) if isinstance(reply, Message) else 0
                node = messages[client].metadata.dst_node_id
                yield turn[client], self.answer(work, client, node, reply, wanted, again)

        if self.max_norm_ratio is None:
            return in_turn(len(cohort), arriving())
        return together(len(cohort), arriving(), self.max_norm_ratio)

    def answer(self, work: Work, client: str, node: int, reply: Reply, wanted: Wanted, again: bool = False) -> Answer:
        """A client's row and record from its reply; why there is none, if there is none."""
        samples = None if again else self.roster.sizes["train"].get(client)
        try:
            return _read(content_of(reply, self.timeout), client, work.round, samples, wanted)
        except Silent as error:
            self.roster.doubt(client)
            return _silent(client, str(error)), {}
        except Failed as error:
            return _silent(client, str(error)), {}
        except AccordError as error:
            what = "second exchange" if again else "training"
            return _silent(client, self.roster.blame(node, f"{what} of {client}", str(error), in_row=True)), {}

    def _part(self, work: Work, shard: Sequence[Member], answers: Iterator[Answer]) -> Part:
        record: Record | None = None
        rows = []
        for member in shard:
            row, tensors = next(answers)
            if row.left_out_because is None:
                try:
                    record = added(record, self.receiver.record(tensors, row, work.memory))
                    if self.sums is None:  # whoever sees the update need not believe its length
                        row = replace(row, norm=float(tensors[UPDATE].norm()))
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
        body: dict[str, Any] = {"preparation": self.roster.preparation}
        if self.job.algorithm.personal:  # every client's own data is evaluated with what it keeps of the model
            versions = {client: self.versions(client) for client in self.job.fed.clients}
            body |= {"personal": self.job.algorithm.personal, "experiment": self.experiment, "versions": versions}
        sent = content({"model": arrays_of({"vector": vector, "buffers": buffers})}, body)
        nodes = self.roster.nodes
        messages = {node: Message(sent, node, MessageType.EVALUATE, ttl=self.timeout) for node in nodes}
        gathered = Gathered(groups, {node: self.roster.held(node) for node in nodes}, self._form)
        some = {node: client for client, node in self.roster.where.items()}
        left_out, wrong = dict[str, str](), dict[str, str]()  # by node; a reply that does not fit is told by conduct
        for node, reply in self.roster.exchange(messages, self.timeout):
            who = self.roster.named(node)
            try:
                gathered.add(node, content_of(reply, self.timeout))
            except Silent as error:
                left_out[who] = str(error)
                self.roster.doubt(some[node])
            except Failed as error:
                left_out[who] = wrong[who] = str(error)
            except AccordError as error:
                wrong[who] = self.roster.blame(node, "evaluation", str(error))
        odd = gathered.exclude_odd_forms()
        most_agree = len(gathered.answers) > len(odd)  # else nobody can tell which nodes are wrong
        for node in odd:
            why = "its metrics are not those of the other nodes"
            self.roster.blame(node, "evaluation", why, counted=most_agree)
        for node in gathered.exclude_diverged():
            left_out[self.roster.named(node)] = "its loss or a metric is not finite"
        self._form = gathered.before
        for who, why in left_out.items():
            _log.warning("an evaluation without %s: %s", who, why)
        if not gathered.answers and wrong:
            who, why = next(iter(wrong.items()))
            raise AccordError(f"no node could evaluate the model: {why} ({who})")
        if not gathered.answers:
            raise AccordError(
                f"none of {len(messages)} nodes answered an evaluation within {self.timeout:g} s: the run can be"
                " resumed"
            )
        fields = {"evaluation_left_out": left_out} if left_out else {}
        return replace(gathered.table(), row_fields={**fields, **self.roster.conduct.row_fields()})


def _read(received: RecordDict, client: str, round: int, samples: int | None, wanted: Wanted) -> Answer:
    """A client's answer, or a sentence about one that does not fit. It speaks for the samples that were registered; in
    a second exchange (None), for none."""
    row = TrainReply.read(received, ["record"]).row(client, round)
    if row.left_out_because is not None:
        return row, {}
    if math.isnan(row.loss) or math.isnan(row.norm):
        raise Failed("its loss or the length of its update is not finite")
    if samples is not None and row.samples != samples:
        raise AccordError(f"it speaks for {row.samples} samples, and {samples} are registered of {client}")
    return row, arrays_in(received, "record", wanted)


def _silent(client: str, why: str) -> ClientRow:
    return ClientRow(client, 0, 0, 0.0, 0.0, left_out_because=why)
