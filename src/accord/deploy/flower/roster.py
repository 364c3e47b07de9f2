"""Who is there: which clients live on which node.

Clients are known by names of their own, which every node is asked for once; a node that comes back is asked again and
finds its clients where they were. `claims.py` decides which node a name belongs to.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.data.agreement import Form
from accord.deploy.flower.claims import Claims
from accord.deploy.flower.conduct import Conduct
from accord.deploy.flower.exchange import FIRST_PAUSE, LONGEST_PAUSE, K, Pulls, Reply, exchange
from accord.deploy.flower.figures import Held
from accord.deploy.flower.preparing import form_in
from accord.deploy.flower.replies import BrokenDown, Failed, Hello, Silent, content_of
from accord.deploy.flower.wire import SPLITS, content, layout_as


class Roster:
    """The nodes that answered, and their clients: `where[client]` is a node id, `sizes[split][client]` a number of
    samples. A model that the preparation is to shape has no `layout` yet."""

    def __init__(self, grid: Grid, layout: Layout | None, form: str, keys: Mapping[str, bytes] | None = None) -> None:
        self.grid, self.layout, self.form = grid, layout, form
        self.preparation: dict[str, Any] | None = None  # which every node is told with the question, once it is known
        self.forms: dict[int, Form] = {}  # what nodes say of their data
        self.where: dict[str, int] = {}
        self.sizes: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
        self.refused: dict[int, str] = {}
        self.conduct, self._claims, self._pulls = Conduct(), Claims(keys), Pulls(grid)
        self._known: set[int] = set()
        self._asked: dict[str, Message] = {}  # by message id

    @property
    def nodes(self) -> list[int]:
        return sorted(set(self.where.values()))

    def held(self, node: int) -> Held:
        """Samples of the clients that live on a node, by (split, client), as it registered them."""
        mine = [client for client, place in self.where.items() if place == node]
        sizes = {(split, client): self.sizes[split].get(client) for split in SPLITS for client in mine}
        return {group: size for group, size in sizes.items() if size is not None}

    def named(self, node: int) -> str:
        """A node by its clients, for people."""
        clients = sorted(client for client, place in self._claims.owner.items() if place == node)
        more = f" and {len(clients) - 3} more" if len(clients) > 3 else ""
        return f"node {node} ({', '.join(clients[:3])}{more})" if clients else f"node {node}"

    def absent(self, client: str) -> str:
        """Why a client cannot be asked."""
        return self.conduct.excluded.get(self._claims.owner.get(client, 0), "its node is not connected")

    def gather(self, clients: int | Sequence[str], wait: float) -> list[str]:
        """Waits until so many clients, or these, are there, and gives them in the order that a run counts them in."""
        end, pause = time.monotonic() + wait, FIRST_PAUSE
        while missing := self._missing(clients):
            if time.monotonic() >= end:
                there = ", ".join(sorted(self.sizes["train"])) or "none"
                refused = "".join(f"; {self.named(node)}: {why}" for node, why in list(self.refused.items())[:3])
                raise AccordError(f"{missing} did not show up within {wait:g} s; there were: {there}{refused}")
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)
            self.meet()
        return sorted(self.sizes["train"]) if isinstance(clients, int) else list(clients)

    def settle(self, preparation: dict[str, Any], layout: Layout, clients: Sequence[str], wait: float) -> None:
        """Tells every node that is there, and whichever comes later, how samples are prepared, and hears whether it can
        do so, with the same model. The clients of a node that is excluded meanwhile are absent from the rounds."""
        self.preparation, self.layout = preparation, layout
        asked, end, pause = set(self._known), time.monotonic() + wait, FIRST_PAUSE
        self._known, self.where, self.refused = set(), {}, {}
        while (
            asked & set(self.grid.get_node_ids())
        ) - self._known - self.conduct.excluded.keys() and time.monotonic() < end:
            self.meet()
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)
        for client in clients:
            if client not in self.where and self._claims.owner[client] not in self.conduct.excluded:
                why = next(iter(self.refused.values()), "its node did not answer")
                raise AccordError(f"client {client} cannot take part with the preparation of all: {why}")

    def _missing(self, clients: int | Sequence[str]) -> str:
        there = self.sizes["train"]
        if isinstance(clients, int):
            return f"{clients - len(there)} of {clients} clients" if len(there) < clients else ""
        return ", ".join(f"client {client}" for client in clients if client not in there)

    def meet(self) -> None:
        """Asks every node that is new who lives there, and hears what those say that were asked. It never waits: a node
        that is slow to answer joins a later round."""
        here = self._claims.see(self.grid.get_nodes()) - self.conduct.excluded.keys()
        self.where = {client: node for client, node in self.where.items() if node in here}
        self._known &= here
        self._asked = {sent: of for sent, of in self._asked.items() if of.metadata.dst_node_id in here}
        for node in sorted(here - self._known - {of.metadata.dst_node_id for of in self._asked.values()}):
            question = self._question(node)
            for sent in self.grid.push_messages([question]):
                if sent:
                    self._asked[sent] = question
        there = {sent: reply for sent in self._asked if (reply := self._pulls.reply(sent)) is not None}
        heard = [(self._asked.pop(sent), reply) for sent, reply in there.items()]
        for question, reply in sorted(heard, key=lambda pair: self._claims.rank(pair[0].metadata.dst_node_id)):
            self._hear(question, reply)

    def exchange(self, messages: Mapping[K, Message], timeout: float) -> Iterator[tuple[K, Reply]]:
        """Sends messages to nodes and gives (whose message, reply) in the order of arrival; None where none came."""
        return exchange(self.grid, messages, timeout)

    def blame(self, node: int, what: str, why: str, in_row: bool = False, counted: bool = True) -> str:
        """Counts a reply of a node that did not fit, and gives the sentence about it. After three the node's clients
        are there no more."""
        sentence = self.conduct.blame(node, self.named(node), what, why, in_row, counted)
        if node in self.conduct.excluded:
            self._remove(node)
        return sentence

    def _question(self, node: int) -> Message:
        body = {} if self.preparation is None else {"preparation": self.preparation}
        return Message(content({}, body), node, MessageType.QUERY)

    def doubt(self, client: str) -> None:
        """The client did not answer in time: its node counts as gone until it says who lives there once more."""
        if (node := self.where.get(client)) is not None:
            self._known.discard(node)
            self._remove(node)

    def _remove(self, node: int) -> None:
        self.where = {client: place for client, place in self.where.items() if place != node}

    def _hear(self, question: Message, reply: Reply) -> None:
        node = question.metadata.dst_node_id
        self._known.add(node)
        try:
            hello = Hello.read(content_of(reply))
            if self.preparation is None:
                self.forms[node] = form_in(hello.data)
        except (Silent, BrokenDown) as error:
            self._known.discard(node)
            self._refuse(node, f"when asked for its clients: {error}")
        except Failed as error:
            self._refuse(node, f"it says: {error}")
        except AccordError as error:
            self._known.discard(node)  # asked again, until it is excluded
            self.refused[node] = self.blame(node, "hello", str(error))
        else:
            self._enter(node, hello)

    def _enter(self, node: int, hello: Hello) -> None:
        if hello.form != self.form:
            self._refuse(
                node, f"it sends {hello.form}, and the server takes {self.form}: both sides must be set up alike"
            )
            return
        if hello.layout != (None if self.layout is None else layout_as(self.layout)):
            self._refuse(
                node, "it has another model than the server: its parameters differ in name, shape or precision"
            )
            return
        try:
            for client in sorted(hello.clients):
                self._check_name(client, node)
        except AccordError as error:  # the whole node: none of its other names is registered either
            self.refused[node] = self.conduct.reject(node, self.named(node), "hello", str(error))
            self._remove(node)
            return
        for split in SPLITS:
            others = {client: size for client, size in self.sizes[split].items() if client not in hello.clients}
            self.sizes[split] = {**others, **getattr(hello, split)}
        self.refused.pop(node, None)
        self.where |= dict.fromkeys(hello.clients, node)
        self._claims.owner |= dict.fromkeys(hello.clients, node)

    def _check_name(self, client: str, node: int) -> None:
        self._claims.check(client, node)
        if self._claims.owner.get(client) in self.conduct.excluded:  # the same key, and another node id
            raise AccordError(f"claimed client {client!r}, and {self.absent(client)}")

    def _refuse(self, node: int, why: str) -> None:
        self.refused[node] = why
        logging.getLogger("flwr").warning("%s is left out: %s", self.named(node), why)
