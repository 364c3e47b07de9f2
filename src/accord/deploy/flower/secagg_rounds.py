"""A round as a secure sum: the server's side of its four stages, by messages.

Whoever does not answer a stage is out of the later ones. Records are added as they come, in whatever order: whole
numbers do not mind. Only the sum is ever unmasked, and only when enough clients remain.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, MessageType

from accord.core.errors import AccordError
from accord.core.record import Record, State
from accord.deploy.flower import secagg
from accord.deploy.flower.exchange import Reply
from accord.deploy.flower.replies import Failed, Silent, content_of
from accord.deploy.flower.roster import Roster
from accord.deploy.flower.secagg_messages import (
    BESIDE,
    KEYS,
    MASKED,
    SHARES,
    UNMASK,
    Answer,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Keys,
    PublicKeys,
    Question,
    SharesOut,
    Unmasked,
    written,
)
from accord.deploy.flower.secagg_totals import Totals
from accord.deploy.flower.sums import Receiver
from accord.deploy.flower.wire import payload
from accord.engines.contract import ClientRow, Outcome
from accord.privacy.secagg_graph import Graph

Q = TypeVar("Q", bound=Question)
A = TypeVar("A", bound=Answer)


@dataclass
class SecureRound:
    """One attempt at a round of a cohort, by `names`. `tasks(names)` are the messages that ask for masked records, and
    `read(client, node, reply)` gives a client's row and record, as for open sums; `stage_state(client)` notes that what
    it remembers of the round counts."""

    roster: Roster
    receiver: Receiver
    experiment: str
    timeout: float
    round: int
    names: Sequence[str]
    graph: Graph
    tasks: Callable[[Collection[str]], dict[str, Message]]
    read: Callable[[str, int, Reply], tuple[ClientRow, State]]
    stage_state: Callable[[str], None]
    session: str = field(default_factory=lambda: secrets.token_hex(16))
    down: int = 0  # payload in bytes, and up
    up: int = 0
    out: dict[str, str] = field(default_factory=dict)  # who is left out, and why
    rows: dict[str, ClientRow] = field(default_factory=dict)
    stage: str = KEYS
    row_fields: dict[str, Any] = field(default_factory=dict)
    suspects: set[str] = field(default_factory=set)  # who sent a share that did not fit

    def outcome(self) -> Outcome:
        record: Record | None = None
        why = ""
        try:
            record = self._sum(self.names)
        except AccordError as error:
            why = str(error)
        rows = [self._row(client, record is not None, why) for client in self.names]
        for row in rows:
            if row.left_out_because is None:
                self.stage_state(row.client)
        traffic = {"bytes_down": self.down, "bytes_up": self.up}
        return Outcome(record, rows, {**traffic, **self.row_fields})

    def _row(self, client: str, added: bool, why: str) -> ClientRow:
        row = self.rows.get(client, ClientRow(client, 0, 0, 0.0, 0.0))
        if client in self.out:
            return replace(row, left_out_because=self.out[client])
        return row if added else replace(row, left_out_because=why)

    def _sum(self, names: Sequence[str]) -> Record:
        neighbours = self.graph.neighbours(names)
        keys = self._keys(names)
        dealt = self._shares(keys, neighbours)
        totals, sent = self._masked(dealt, neighbours)
        self._unmasked(totals, sent, dealt, keys, neighbours)
        return totals.record(len(sent))

    # -------------------------------------------------------------------------------------------- the stages

    def _keys(self, names: Sequence[str]) -> dict[str, PublicKeys]:
        self.roster.meet()
        asks = {name: self._ask(AskKeys, name, cohort=len(names)) for name in names}
        public, known, where = dict[str, PublicKeys](), set[str](), dict(self.roster.where)
        for name, answer in self._answers(KEYS, asks, Keys):
            try:
                secagg.check_keys(answer.keys, known)
            except AccordError as error:  # else its neighbours would be named for what they cannot use
                self.out[name] = self.roster.blame(where[name], f"{KEYS} of {name}", str(error), in_row=True)
                continue
            public[name] = answer.keys
            known |= {answer.keys.mask, answer.keys.share}
        return public

    def _shares(self, keys: Mapping[str, PublicKeys], neighbours: Mapping[str, Sequence[str]]) -> dict[str, SharesOut]:
        self._enough(keys, "made keys")
        asks = {}
        for name in keys:
            known = {other: keys[other] for other in neighbours[name] if other in keys}
            asks[name] = self._ask(AskShares, name, keys=known)
        answers = {}
        for name, answer in self._answers(SHARES, asks, SharesOut):
            if answer.shares.keys() == asks[name].keys.keys():
                answers[name] = answer
            else:
                self.out[name] = "it made shares for others than its neighbours"
        return answers

    def _masked(
        self, dealt: Mapping[str, SharesOut], neighbours: Mapping[str, Sequence[str]]
    ) -> tuple[Totals, list[str]]:
        """The sum of the masked records, and whose they are."""
        self._enough(dealt, "made shares")
        self.stage = MASKED
        messages = self.tasks(dealt)
        for name, message in messages.items():
            mine = {other: dealt[other].shares[name] for other in neighbours[name] if other in dealt}
            words = written(self._ask(AskMasked, name, shares=mine), BESIDE)
            message.content.config_records[BESIDE] = ConfigRecord(dict(words.config_records[BESIDE]))
        self._missing(dealt, messages)
        totals, sent = Totals(self.receiver), []
        for name, reply in self._exchange(messages):
            node = messages[name].metadata.dst_node_id
            row, tensors = self.read(name, node, reply)
            self.rows[name] = row
            try:
                if row.left_out_because is not None:
                    raise AccordError(row.left_out_because)
                totals.add(tensors)
            except AccordError as error:
                self.out[name] = str(error)
                continue
            sent.append(name)
        return totals, sorted(sent)

    def _unmasked(
        self,
        totals: Totals,
        sent: Sequence[str],
        dealt: Mapping[str, SharesOut],
        keys: Mapping[str, PublicKeys],
        neighbours: Mapping[str, Sequence[str]],
    ) -> None:
        """Takes the masks off the sum, in place."""
        self._enough(sent, "sent a record")
        asks = {}
        for name in sent:
            near = [other for other in neighbours[name] if other in dealt]
            survivors = sorted({name, *(other for other in near if other in sent)})
            dropped = sorted(other for other in near if other not in sent)
            asks[name] = self._ask(AskUnmask, name, survivors=survivors, dropped=dropped)
        answers, silent = dict[str, Unmasked](), dict[str, str]()
        for name, answer in self._answers(UNMASK, asks, Unmasked, silent):
            unread, asked = set(answer.unread), asks[name]
            wanted = set(asked.survivors) - unread, set(asked.dropped) - unread
            others = {*asked.survivors, *asked.dropped} - {name}
            if (answer.seeds.keys(), answer.keys.keys()) == wanted and unread <= others:
                answers[name] = answer
            else:
                silent[name] = "it sent shares that it was not asked for"
        if silent:
            self.row_fields["silent_at_unmask"] = silent
        self._note_unread(answers)
        self._enough(answers, "helped to unmask the sum")
        gone = [name for name in dealt if name not in sent and any(other in sent for other in neighbours[name])]
        opens = self.graph.opens
        seeds = self._opened(sent, answers, "seeds", lambda n, s: secagg.opened_seed(s, opens, dealt[n].digest))
        lost = self._opened(gone, answers, "keys", lambda n, s: secagg.opened_key(s, opens, keys[n].mask))
        secagg.remove_masks(list(totals.numbers.values()), seeds, lost, keys, neighbours)

    def _note_unread(self, answers: Mapping[str, Unmasked]) -> None:
        """Whose shares could not be read, by the word of whom. It counts against a dealer if more say so than a secret
        has shares to spare: with fewer its secrets open all the same, and nobody can tell which of the two lies."""
        readers: dict[str, list[str]] = {}
        for name, answer in answers.items():
            for dealer in set(answer.unread):
                readers.setdefault(dealer, []).append(name)
        spare = max(1, self.graph.degree + 1 - self.graph.opens)
        for dealer, of in readers.items():
            node = self.roster.where.get(dealer)
            nodes = {self.roster.where.get(name) for name in of}  # clients of one node have one voice
            if len(nodes) > spare and node is not None:
                why = f"{len(of)} of its neighbours cannot open the shares that it made for them"
                self.roster.blame(node, f"{SHARES} of {dealer}", why)
        if readers:
            self.row_fields["unread_shares"] = {dealer: sorted(of) for dealer, of in sorted(readers.items())}

    def _opened(
        self,
        names: Sequence[str],
        answers: Mapping[str, Unmasked],
        which: str,
        opened: Callable[[str, Mapping[str, str]], tuple[bytes, str | None]],
    ) -> dict[str, bytes]:
        secrets = {}
        for name in names:
            # who sent a wrong share before comes last: to find out who it was takes a try for each
            ordered = sorted(answers, key=self.suspects.__contains__)
            held = {sender: getattr(answers[sender], which) for sender in ordered}
            shares = {sender: some[name] for sender, some in held.items() if name in some}
            try:
                secrets[name], wrong = opened(name, shares)
            except AccordError as error:
                raise AccordError(f"the masks of {name} cannot be removed: {error}") from None
            if wrong is not None:
                self.suspects.add(wrong)
                self.row_fields.setdefault("wrong_shares", {})[name] = wrong
        return secrets

    # ------------------------------------------------------------------------------------------- the exchange

    def _ask(self, form: type[Q], client: str, **rest: Any) -> Q:
        return form(session=self.session, experiment=self.experiment, client=client, round=self.round, **rest)

    def _enough(self, names: Collection[str], did: str) -> None:
        if len(names) < self.graph.remain:
            raise AccordError(
                f"{len(names)} of {len(self.names)} clients {did}, and {self.graph.remain} must: the round is skipped"
            )

    def _missing(self, names: Iterable[str], asked: Iterable[str]) -> None:
        for name in set(names) - set(asked):
            self.out[name] = f"{self.roster.absent(name)} (stage {self.stage})"

    def _answers(
        self, stage: str, asks: Mapping[str, Question], form: type[A], silent: dict[str, str] | None = None
    ) -> Iterator[tuple[str, A]]:
        """What clients answer in a stage. Who does not is left out, or is only noted in `silent` where its record is
        in the sum already."""
        self.stage = stage
        where = self.roster.where
        kind, ttl = f"{MessageType.TRAIN}.{stage}", self.timeout
        group = str(self.round)
        messages = {
            name: Message(written(ask), where[name], kind, ttl=ttl, group_id=group)
            for name, ask in asks.items()
            if name in where
        }
        if silent is None:
            self._missing(asks, messages)
        for name, reply in self._exchange(messages):
            try:
                answer = self._read(name, where[name], reply, form)
            except AccordError as error:
                (self.out if silent is None else silent)[name] = f"{error} (stage {stage})"
                continue
            yield name, answer

    def _read(self, name: str, node: int, reply: Reply, form: type[A]) -> A:
        """A client's answer to a stage. One that does not fit counts against its node."""
        try:
            answer = form.read(content_of(reply, self.timeout))
            if (answer.session, answer.client) != (self.session, name):
                raise AccordError("it is another client's, or of another session")
        except Silent:
            self.roster.doubt(name)
            raise
        except Failed:
            raise
        except AccordError as error:
            sentence = self.roster.blame(node, f"{self.stage} of {name}", str(error), in_row=True)
            raise AccordError(sentence) from None
        return answer

    def _exchange(self, messages: Mapping[str, Message]) -> Iterator[tuple[str, Reply]]:
        self.down += sum(map(payload, messages.values()))
        for name, reply in self.roster.exchange(messages, self.timeout):
            self.up += payload(reply) if isinstance(reply, Message) else 0
            yield name, reply
