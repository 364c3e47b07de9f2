"""Who is there: which clients live on which node.

Flower draws a node's id anew whenever it connects. Clients are therefore known by names of their own, which every node
is asked for once; a node that comes back is asked again and finds its clients where they were.
"""

import logging
import time
from collections.abc import Iterator, Sequence

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.deploy.flower.exchange import FIRST_PAUSE, LONGEST_PAUSE
from accord.deploy.flower.wire import SPLITS, content, layout_as, message_in


class Roster:
    """The nodes that answered, and their clients: `where[client]` is a node id, `sizes[split][client]` a number of
    samples."""

    def __init__(self, grid: Grid, layout: Layout, form: str) -> None:
        self.grid, self.layout, self.form = grid, layout, form
        self.where: dict[str, int] = {}
        self.sizes: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
        self.refused: dict[int, str] = {}
        self._known: set[int] = set()
        self._asked: dict[str, int] = {}  # message id -> node

    @property
    def nodes(self) -> list[int]:
        return sorted(set(self.where.values()))

    def gather(self, clients: int | Sequence[str], wait: float) -> list[str]:
        """Waits until so many clients, or these, are there, and gives them in the order that a run counts them in."""
        end, pause = time.monotonic() + wait, FIRST_PAUSE
        while missing := self._missing(clients):
            if time.monotonic() >= end:
                there = ", ".join(sorted(self.sizes["train"])) or "none"
                refused = f"; {next(iter(self.refused.values()))}" if self.refused else ""
                raise AccordError(f"{missing} did not show up within {wait:g} s; there were: {there}{refused}")
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)
            self.meet()
        return sorted(self.sizes["train"]) if isinstance(clients, int) else list(clients)

    def _missing(self, clients: int | Sequence[str]) -> str:
        there = self.sizes["train"]
        if isinstance(clients, int):
            return f"{clients - len(there)} of {clients} clients" if len(there) < clients else ""
        return ", ".join(f"client {client}" for client in clients if client not in there)

    def meet(self) -> None:
        """Asks every node that is new who lives there, and hears what those say that were asked. It never waits: a node
        that is slow to answer joins a later round."""
        here = set(self.grid.get_node_ids())
        self.where = {client: node for client, node in self.where.items() if node in here}
        self._known &= here
        self._asked = {question: node for question, node in self._asked.items() if node in here}
        for node in sorted(here - self._known - set(self._asked.values())):
            for question in self.grid.push_messages([Message(content({}, {}), node, MessageType.QUERY)]):
                if question:
                    self._asked[question] = node
        for reply in self.grid.pull_messages(list(self._asked)) if self._asked else ():
            question = reply.metadata.reply_to_message_id
            if question in self._asked:
                self._hear(self._asked.pop(question), reply)

    def doubt(self, client: str) -> None:
        """The client did not answer in time: its node counts as gone until it says who lives there once more."""
        node = self.where.get(client)
        self._known.discard(node or 0)
        self.where = {other: place for other, place in self.where.items() if place != node}

    def _hear(self, node: int, reply: Message) -> None:
        self._known.add(node)
        try:
            self._enter(node, reply)
        except AccordError as error:
            self.refused[node] = str(error)
            logging.getLogger("flwr").warning("a node is left out: %s", error)

    def _enter(self, node: int, reply: Message) -> None:
        if reply.has_error():
            self._known.discard(node)
            raise AccordError(f"it failed when asked for its clients: {reply.error.reason}")
        message = message_in(reply.content)
        if "error" in message:
            raise AccordError(f"it says: {message['error']}")
        if message.get("form") != self.form:
            raise AccordError(
                f"it sends {message.get('form')}, and the server takes {self.form}: both sides must be set up alike"
            )
        if message.get("layout") != layout_as(self.layout):
            raise AccordError("it has another model than the server: its parameters differ in name, shape or precision")
        for client in _names(message):
            if self.where.get(client, node) != node:
                self._known.discard(node)  # asked again: its twin may be itself, from before it lost the connection
                raise AccordError(
                    f"client {client} already lives on another node: every client needs a name of its own"
                )
        for split in SPLITS:
            self.sizes[split] |= {client: int(count) for client, count in message[split].items()}
        self.where |= dict.fromkeys(_names(message), node)


def _names(message: dict) -> Iterator[str]:
    for split in SPLITS:
        if not isinstance(message.get(split), dict):
            raise AccordError(f"its list of {split} clients cannot be read")
        yield from message[split]
