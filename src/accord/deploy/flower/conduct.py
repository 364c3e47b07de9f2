"""Replies that do not fit, counted by node: a node is excluded after the third, for as long as the server runs. A claim
to a client's name that belongs to another node excludes it at once: asked again, it would give the same answer.

What does not count: no answer at all, an app that failed and says so, an update of a client that diverged (NaN, or far
too long). Those are left out, each time they happen; a node that cannot help it is not shut out for it.
"""

import logging
from typing import Any

from accord.deploy.flower.replies import one_line

MOST_BAD_REPLIES = 3

_log = logging.getLogger("flwr")


class Conduct:
    """Who sent what did not fit. `excluded` says why, by node."""

    def __init__(self) -> None:
        self.bad: dict[int, int] = {}
        self.excluded: dict[int, str] = {}
        self._news: dict[str, str] = {}  # what no row has yet, and what this round's has
        self._reported: set[str] = set()
        self._names: dict[int, str] = {}  # of those that are excluded, by their clients

    def blame(self, node: int, who: str, what: str, why: str, in_row: bool, counted: bool) -> str:
        """Counts a reply that did not fit, and gives the sentence about it. `who` is the node by its clients, `what`
        the reply: `hello`, `evaluation`. What is not told by a client's own row is news."""
        self.bad[node] = count = self.bad.get(node, 0) + counted
        sentence = f"its reply cannot be read: {one_line(why)}"
        _log.warning("bad reply %s%s, %s: %s", f"{count} of " if counted else "of ", who, what, sentence)
        if not in_row:
            self._note(who, what, sentence)
        if count == MOST_BAD_REPLIES and node not in self.excluded:
            self._exclude(node, who, f"{count} of its replies could not be read")
        return sentence

    def reject(self, node: int, who: str, what: str, why: str) -> str:
        """Excludes a node at once, and gives the reason."""
        self._note(who, what, why)
        self._exclude(node, who, why)
        return why

    def _note(self, who: str, what: str, why: str) -> None:
        self._news[f"{who}, {what}"] = why
        self._reported.discard(f"{who}, {what}")

    def _exclude(self, node: int, who: str, why: str) -> None:
        self._names[node] = who
        self.excluded[node] = f"its node is excluded: {why}"
        _log.warning("%s is excluded for the rest of the run: %s", who, why)

    def begin_round(self) -> None:
        """What was reported is in the row of the round before."""
        self._news = {what: why for what, why in self._news.items() if what not in self._reported}
        self._reported = set()

    def row_fields(self) -> dict[str, Any]:
        """What the round's row holds of it: who sent what could not be read or was rejected, since the row before, and
        who is excluded."""
        self._reported = set(self._news)
        fields = {"bad_replies": dict(self._news), "excluded": [self._names[node] for node in self.excluded]}
        return {name: value for name, value in fields.items() if value}
