"""What votes would say if every client tossed a coin: the level that agreement is to be compared with."""

from math import comb

from accord.rules.masks import threshold


def under(clients: int, tau: float) -> float:
    """The expected share of coordinates whose net vote is under tau.

    >>> under(10, 0.4)
    0.65625
    """
    least = threshold(tau, clients)
    return sum(comb(clients, up) for up in range(clients + 1) if abs(2 * up - clients) < least) / 2**clients


def agreement(clients: int) -> float:
    """The expected net vote of a coordinate.

    >>> agreement(10)
    0.24609375
    """
    return sum(comb(clients, up) * abs(2 * up - clients) for up in range(clients + 1)) / (clients * 2**clients)
