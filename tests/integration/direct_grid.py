"""A Flower grid within one process: the real ClientApp answers, and every message goes through Flower's own bytes both
ways.

What is missing is the network. Tests that need it start real processes; these ask what strategy and clients make of
each other's messages.
"""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

Tamper = Callable[[Message], Message | None]
Contents = dict[str, bytes]  # a message's objects as they travel, by id; the first is the message itself


def deflated(message: Message) -> Contents:
    """The message as it travels."""
    identifier = message.object_id
    contents = {key: held.deflate() for key, held in get_all_nested_objects(message).items()}
    return {identifier: contents[identifier], **contents}


def inflated(contents: Contents, message_id: str) -> Message:
    """The message as its receiver sees it; unpacked as Flower's own grid does it."""
    arrived = inflate_object_from_contents(next(iter(contents)), dict(contents))
    arrived.metadata.__dict__["_message_id"] = message_id
    return arrived


def through_bytes(message: Message) -> Message:
    """The message as its receiver sees it."""
    return inflated(deflated(message), message.metadata.message_id)


class DirectGrid(Grid):
    """Nodes by id, each with its app and its settings. `tamper[node]` changes what a node answers in training, `spoil`
    what any node answers to anything; None is no answer. Replies come in reverse order, which is never the cohort's."""

    def __init__(self, apps: dict[int, tuple[ClientApp, dict[str, Any]]]) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # which Flower's own process would do
        self.apps, self.tamper = apps, dict[int, Tamper]()
        self.spoil: Callable[[Message, Message | None], Message | Contents | None] = lambda asked, reply: reply
        self.replies: dict[str, Contents] = {}
        self.sent: list[Message] = []

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        made = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            self.sent.append(message)
            made.append(message.metadata.message_id)
            if message.metadata.dst_node_id in self.apps:
                self._answer(through_bytes(message))
        return made

    def _answer(self, message: Message) -> None:
        node = message.metadata.dst_node_id
        app, settings = self.apps[node]
        reply: Message | None = app(message, Context(0, node, settings, RecordDict(), {}))
        if message.metadata.message_type.startswith("train") and node in self.tamper:
            reply = self.tamper[node](reply)
        spoiled = self.spoil(message, reply)
        if spoiled is not None:
            self.replies[message.metadata.message_id] = deflated(spoiled) if isinstance(spoiled, Message) else spoiled

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        there = [key for key in reversed(list(self.replies)) if key in set(message_ids)]
        return [inflated(self.replies.pop(key), f"reply-to-{key}") for key in there]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(list(messages)))
