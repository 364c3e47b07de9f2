"""Epsilon of many rounds of noised sums over C of N clients, by Google's dp-accounting.

Two data sets are neighbours if they differ in one client's data, replaced by any other: N is public. Replacing a client
whose contribution has norm S moves a sum by up to 2 S. dp-accounting's Renyi accountant takes noise in units of *that*
distance when clients are drawn without replacement, so a noise multiplier z (in units of S, as papers and settings
state it) is handed over as z / 2.
"""

import functools
import math
from collections.abc import Mapping

import numpy as np

from accord.core.errors import AccordError, check_bounds, check_whole

# Renyi orders. The best one for a common epsilon lies among the whole numbers; fractions serve large noise, the last
# two small delta.
_ORDERS = (1.25, 1.5, 1.75, *range(2, 65), 128, 256)


def check_delta(delta: float) -> None:
    """Refuses a delta for which a Gaussian mechanism has no finite epsilon, or no meaning."""
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0.0 < delta < 1.0:
        raise AccordError(
            f"delta must be above 0 and below 1, got {delta!r}: it is the delta of the (epsilon, delta) guarantee"
        )


@functools.lru_cache(maxsize=4096)
def epsilon(noise: float, clients: int, sample: int | None, rounds: int, delta: float) -> float:
    """The smallest epsilon known to hold at `delta` after so many rounds, each of `sample` of the `clients` (None: all
    of them), drawn anew without replacement, with noise of `noise` times the largest norm of one client's contribution
    on their sum.

    >>> round(epsilon(noise=4.0, clients=1000, sample=10, rounds=100, delta=1e-5), 2)
    0.43
    """
    if not (isinstance(noise, int | float) and noise > 0.0 and math.isfinite(noise)):
        raise AccordError(f"noise must be above 0 and finite, got {noise!r}: without noise no epsilon is finite")
    check_delta(delta)
    check_whole("rounds", rounds)
    check_whole("clients", clients)
    sample = clients if sample is None else sample
    check_whole("sample", sample)
    if sample > clients:
        raise AccordError(f"sample must be at most the {clients} clients, got {sample}")
    try:
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise AccordError(
            "differential privacy needs dp-accounting to compute epsilon: pip install 'accord-fl[privacy]'"
        ) from None
    check_bounds(noise, "noise")
    everyone = dp_accounting.GaussianDpEvent(noise / 2.0)
    events = [everyone, dp_accounting.SampledWithoutReplacementDpEvent(clients, sample, everyone)]
    bounds = []
    with np.errstate(all="ignore"):  # next to no noise has an infinite epsilon, which is told below
        for event in events if sample < clients else events[:1]:
            accountant = RdpAccountant(_ORDERS, dp_accounting.NeighboringRelation.REPLACE_ONE)
            bounds.append(float(accountant.compose(event, rounds).get_epsilon(delta)))
    least = min(bounds)  # sampling never hurts, though the bound for it may be the looser one where noise is small
    if not math.isfinite(least):
        raise AccordError(
            f"noise {noise:g} over {rounds} rounds has no finite epsilon at delta {delta:g}: give more noise or fewer"
            " rounds"
        )
    return least


def epsilon_against_server(noise: float, rounds: int, delta: float) -> float:
    """The epsilon at `delta` of so many rounds of sums with discrete Gaussian noise of `noise` times the largest norm
    of one client's contribution, for somebody who knows the cohorts: no sampling is counted.

    A round is 2 / noise^2 zero-concentrated (replacing a client moves the sum by twice its norm; Kairouz, Liu and
    Steinke, 2021, theorem 1), rounds add, and every order gives an epsilon that holds (Canonne, Kamath and Steinke,
    2020, proposition 12).

    >>> round(epsilon_against_server(noise=10.0, rounds=1, delta=1e-5), 2)
    0.83
    """
    if not (isinstance(noise, int | float) and 0.0 < noise < math.inf):
        raise AccordError(f"noise must be above 0 and finite, got {noise!r}: without noise no epsilon is finite")
    check_delta(delta)
    check_whole("rounds", rounds)
    rho = 2.0 * rounds / noise / noise
    orders = (1.0 + 10.0 ** (exponent / 100) for exponent in range(-300, 601))
    bounds = (
        rho * order + math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0) for order in orders
    )
    least = max(0.0, min(bounds))
    if not math.isfinite(least):
        raise AccordError(f"noise {noise:g} over {rounds} rounds has no finite epsilon at delta {delta:g}: give more")
    return least


def spent_text(spent: Mapping[str, float]) -> str:
    """`epsilon 5.379 at delta 1e-05`."""
    return f"epsilon {spent['epsilon']:.4g} at delta {spent['delta']:g}"
