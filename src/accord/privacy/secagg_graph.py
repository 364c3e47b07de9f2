"""Who shares keys with whom in a secure sum, and how many shares open a secret.

In a small cohort everybody shares with everybody (Bonawitz et al., 2017), and a secret opens with as many shares as
clients must remain. In a large one clients stand in a circle in random order and share with the k / 2 next to them on
either side (Bell et al., 2020, SecAgg+). k is the least for which, of a cohort of which a fifth colludes with the
server and 1 - threshold drops out, whoever they are,

- the others' graph stays connected, else sums of parts of the cohort could be told apart: 2^-40,
- no client has so many colluding neighbours that they can open its secrets: 2^-40,
- every secret can be opened where it must be, else the round is skipped: 2^-20.
"""

import functools
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from accord.core.errors import AccordError

COLLUDING = 0.2  # share of a cohort that may side with the server where not everybody shares with everybody
UNSAFE, UNLUCKY = 2.0**-40, 2.0**-20


def remaining(cohort: int, threshold: float) -> int:
    """How many clients of a cohort must remain, for a share of it."""
    return max(2, math.ceil(threshold * cohort - 1e-9))


@dataclass(frozen=True)
class Graph:
    """`degree` neighbours of every client; `opens` shares open a secret, and so many of those that hold one must remain
    by what a client sees itself; `remain` clients of the cohort must, by what the server sees."""

    degree: int
    opens: int
    remain: int

    def neighbours(self, clients: Sequence[str]) -> dict[str, list[str]]:
        """Everybody's neighbours, in an order drawn from the operating system's source."""
        circle = list(clients)
        secrets.SystemRandom().shuffle(circle)
        if self.degree == len(circle) - 1:
            return {client: [other for other in circle if other != client] for client in circle}
        steps = [step for step in range(-self.degree // 2, self.degree // 2 + 1) if step]
        return {client: [circle[(at + step) % len(circle)] for step in steps] for at, client in enumerate(circle)}


@functools.lru_cache(maxsize=256)
def graph_of(cohort: int, threshold: float, degree: int | None = None) -> Graph:
    """The graph of a cohort of which the share `threshold` must remain. `degree` chooses the number of neighbours by
    hand.

    >>> graph_of(10, 2 / 3)
    Graph(degree=9, opens=7, remain=7)
    """
    remain = remaining(cohort, threshold)
    if cohort < 2:
        raise AccordError(f"a secure sum needs at least 2 clients, got {cohort}: a sum of one is that one")
    if degree is not None and degree < cohort - 1:
        return Graph(degree, remaining(degree + 1, threshold), remain)
    low, high = 1, cohort // 2
    if degree is None and _opens(cohort, 2 * (high - 1), remain) is not None:
        while low < high:  # the least half of a degree that is safe
            middle = (low + high) // 2
            low, high = (low, middle) if _opens(cohort, 2 * middle, remain) is not None else (middle + 1, high)
        opens = _opens(cohort, 2 * low, remain)
        if opens is not None and 2 * low < cohort - 1:
            return Graph(2 * low, opens, remain)
    return Graph(cohort - 1, remain, remain)


def _opens(cohort: int, degree: int, remain: int) -> int | None:
    """How many shares of `degree` + 1 should open a secret; None if there is no number that is safe."""
    colluding = math.floor(COLLUDING * cohort)
    gone = (colluding + cohort - remain) / cohort
    if degree < 2 or cohort * gone ** (degree // 2) > UNSAFE:
        return None
    # More than half, so that a server that tells some that a client dropped out, and others that it did not, cannot
    # have both of its secrets from those who are honest.
    opens = (degree + 1) // 2 + 1
    while cohort * _tail(cohort - 1, colluding, degree, opens) > UNSAFE:
        opens += 1
    # A client that remains has its own share as well; of one that dropped out the neighbours' must do.
    too_few = 1.0 - _tail(cohort - 1, remain, degree, opens)
    return opens if opens <= degree and cohort * too_few <= UNLUCKY else None


def _tail(among: int, marked: int, drawn: int, least: int) -> float:
    """The probability that of `drawn` out of `among`, at least `least` are of the `marked` ones."""
    whole = _log_choose(among, drawn)
    lowest, highest = max(least, drawn - (among - marked)), min(drawn, marked)
    logs = [
        _log_choose(marked, hit) + _log_choose(among - marked, drawn - hit) - whole
        for hit in range(lowest, highest + 1)
    ]
    return min(1.0, math.fsum(map(math.exp, logs)))


def _log_choose(among: int, drawn: int) -> float:
    return math.lgamma(among + 1) - math.lgamma(drawn + 1) - math.lgamma(among - drawn + 1)
