"""Messages out, replies in, as they arrive.

Flower's own `send_and_receive` waits until every reply is there, and asks for them every three seconds. Here replies
are handed on one by one, few are in memory at a time, and the server asks again after a pause that starts at a fiftieth
of a second and grows while nothing comes.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
AT_ONCE = 4  # replies asked for together: so many may lie in memory


def unanswered(reply: Message | None) -> bool:
    """Whether no reply came, or the SuperLink's word that none will: the node is gone, or the message's time is
    over."""
    gone = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
    return reply is None or (reply.has_error() and reply.error.code in gone)


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> Iterator[tuple[int, Message | None]]:
    """Sends the messages and gives (number of the message, reply) in the order of arrival; after `timeout` seconds,
    None for the rest."""
    waiting: dict[str, int] = {}
    for number, message in enumerate(messages):  # one by one: a request holds one model, not all of them
        for identifier in grid.push_messages([message]):
            if identifier:
                waiting[identifier] = number
    for number in set(range(len(messages))) - set(waiting.values()):  # the SuperLink knows the node no more
        yield number, None
    end, pause = time.monotonic() + timeout, FIRST_PAUSE
    while waiting:
        came = False
        asked = iter(list(waiting))
        while some := list(islice(asked, AT_ONCE)):
            for reply in grid.pull_messages(some):
                if reply.metadata.reply_to_message_id in waiting:
                    came = True
                    yield waiting.pop(reply.metadata.reply_to_message_id), reply
        if not waiting:
            return
        if time.monotonic() >= end:
            break
        pause = FIRST_PAUSE if came else min(1.5 * pause, LONGEST_PAUSE)
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
    for number in waiting.values():
        yield number, None
