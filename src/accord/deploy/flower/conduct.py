"""Replies that do not fit, counted by node: a node is excluded after the third, for as long as the server runs.

What does not count: no answer at all, an app that failed and says so, an update of a client that diverged (NaN, or far
too long). Those are left out, each time they happen; a node that cannot help it is not shut out for it.
"""

import logging

from accord.deploy.flower.replies import one_line

MOST_BAD_REPLIES = 3

_log = logging.getLogger("flwr")


class Conduct:
    """Who sent what did not fit. `excluded` says why, by node."""

    def __init__(self) -> None:
        self.bad: dict[int, int] = {}
        self.excluded: dict[int, str] = {}
        self.news: dict[str, str] = {}  # since the round's row was written

    def blame(self, node: int, who: str, what: str, why: str, in_row: bool, counted: bool) -> str:
        """Counts a reply that did not fit, and gives the sentence about it. `who` is the node by its clients, `what`
        the reply: `hello`, `evaluation`. What is not told by a client's own row is news."""
        self.bad[node] = count = self.bad.get(node, 0) + counted
        said = f"its reply cannot be read: {one_line(why)}"
        _log.warning("bad reply %s%s, %s: %s", f"{count} of " if counted else "of ", who, what, said)
        if not in_row:
            self.news[f"{who}, {what}"] = said
        if count == MOST_BAD_REPLIES and node not in self.excluded:
            self.excluded[node] = f"its node is excluded: {count} of its replies could not be read"
            _log.warning("%s is excluded for the rest of the run, after %s bad replies", who, count)
        return said
