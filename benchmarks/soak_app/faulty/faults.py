"""Who does what wrong when: a fault in every round but the first.

A reply that cannot be read is a bad one, and three of them exclude a node: every node but the culprit's has at most
two. Reading this costs no import of torch; the SuperNodes do it too.
"""

CLIENTS = 10  # each on a node of its own
CULPRIT = CLIENTS - 1  # whose replies are tampered with until its node is excluded
_CYCLE = ("tampered", "slow", "doubled", "replay", "killed", "doubled", "slow")


def _kind(number: int) -> str:
    return _CYCLE[(number - 2) % len(_CYCLE)] if number > 1 else ""


def fault(number: int, client: int) -> str | None:
    """What a client's app does wrong in a round, if anything."""
    kind, cycle = _kind(number), (number - 2) // len(_CYCLE)
    if client == CULPRIT:
        return "tampered" if number > 1 else None
    if kind in ("tampered", "replay"):
        return kind if client == (2 * cycle + (kind == "replay") + 4) % CULPRIT else None
    return "slow" if kind == "slow" and client == (number + 5) % CULPRIT else None


def killed(number: int) -> int | None:
    """Whose node's process is killed in a round."""
    return number % CULPRIT if _kind(number) == "killed" else None


def doubled(number: int) -> int | None:
    """Whose node sends its reply of a round twice, and one of an earlier round once more."""
    return (number + 2) % CULPRIT if _kind(number) == "doubled" else None
