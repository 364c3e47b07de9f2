"""Messages out, replies in, as they arrive.

Flower's own `send_and_receive` waits until every reply is there, and asks for them every three seconds. Here replies
are handed on one by one, and the server asks again after a pause that starts at a fiftieth of a second and grows while
nothing comes.

Replies are asked for one at a time. Flower unpacks what it fetched, and bytes that it cannot unpack end the request:
with others in it, theirs would be lost too. And it is the SuperLink that knows which message a reply answers; what the
reply says of itself is its sender's word.

A node may announce a reply and never send its bytes. Flower waits two hours for them; here that is a thread's business,
and the others' replies go on.
"""

import time
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias, TypeVar

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
MOMENT = 2.0  # seconds that others wait for the bytes of one reply; a large one comes later, if it is still asked for
# what Flower raises of bytes that are no message; a connection that fails is another thing, and ends the run
_NO_MESSAGE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    DecodeError,
)


@dataclass(frozen=True)
class Unreadable:
    """A reply that Flower could not unpack."""

    why: str


K = TypeVar("K", bound=Hashable)
Reply: TypeAlias = Message | Unreadable | None  # None: none came


def unanswered(reply: Reply) -> bool:
    """Whether no reply came, or the SuperLink's word that none will: the node is gone, or the message's time is
    over."""
    gone = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
    return reply is None or (isinstance(reply, Message) and reply.has_error() and reply.error.code in gone)


def pulled(grid: Grid, message_id: str) -> Reply:
    """The reply to one message, if it is there."""
    try:
        replies = list(grid.pull_messages([message_id]))
        if replies and not isinstance(replies[0], Message):
            return Unreadable(f"it is no message, but {type(replies[0]).__name__}")
        return replies[0] if replies else None
    except _NO_MESSAGE as error:
        return Unreadable(repr(error))


class Pulls:
    """Fetches replies, each in a thread of its own."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._under_way: dict[str, SimpleQueue[Reply | Exception]] = {}

    def reply(self, message_id: str) -> Reply:
        """The reply to one message, if all of it is there."""
        wait = 0.0
        if message_id not in self._under_way:
            wait = MOMENT
            self._under_way[message_id] = SimpleQueue()
            Thread(target=self._pull, args=(message_id, self._under_way[message_id]), daemon=True).start()
        try:
            answer = self._under_way[message_id].get(timeout=wait) if wait else self._under_way[message_id].get_nowait()
        except Empty:
            return None
        del self._under_way[message_id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _pull(self, message_id: str, replies: "SimpleQueue[Reply | Exception]") -> None:
        try:
            replies.put(pulled(self._grid, message_id))
        except Exception as error:  # of the connection, say: it is the caller's
            replies.put(error)


def exchange(grid: Grid, messages: Mapping[K, Message], timeout: float) -> Iterator[tuple[K, Reply]]:
    """Sends the messages and gives (whose message, reply) in the order of arrival; after `timeout` seconds, None for
    the rest."""
    waiting: dict[str, K] = {}
    for whose, message in messages.items():  # one by one: a request holds one model, not all of them
        for identifier in grid.push_messages([message]):
            if identifier:
                waiting[identifier] = whose
    for whose in messages.keys() - waiting.values():  # the SuperLink knows the node no more
        yield whose, None
    pulls, end, pause = Pulls(grid), time.monotonic() + timeout, FIRST_PAUSE
    while waiting:
        came = False
        for identifier in list(waiting):
            if (reply := pulls.reply(identifier)) is not None:
                came = True
                yield waiting.pop(identifier), reply
        if not waiting:
            return
        if time.monotonic() >= end:
            break
        pause = FIRST_PAUSE if came else min(1.5 * pause, LONGEST_PAUSE)
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
    for whose in waiting.values():
        yield whose, None
