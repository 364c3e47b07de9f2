"""How surely does the mask let a coordinate pass? The mask-stability proposition, by simulation
(docs/explanation/theory.md).

The setting (proposition A.1 of the TMLR paper, 3.3.7 of the thesis). In one coordinate, client n reports delta_n = mu_n
+ noise, with independent sigma-sub-Gaussian noise. The mask lets the coordinate pass whole when |sum of sign(delta_n)|
>= tau K. The papers say: if the share of clients with mu_n > 0 is above tau, it passes with probability 1 - O(exp(-min
mu_n^2 / sigma^2)).

What needs care, and is measured here with m of K clients at +mu and the others at -mu:

1. The condition. tau is a net vote. If all m clients vote up and all others down, the net vote is (2m - K) / K, which
   reaches tau when the share m / K is at least (1 + tau) / 2. Half and half passes the printed condition for tau = 0.4,
   and its net vote is 0: the surer the clients are, the surer the coordinate is held back (left panel).
2. The exponent. A client votes against its mean with probability at most exp(-mu^2 / 2 sigma^2), and of Gaussian noise
   not much less often. exp(-mu^2 / sigma^2) falls faster than that, so no constant makes the printed bound hold (right
   panel).
3. The constant. "The intersection of those events" costs a factor: any of the m clients may be the one that slips.

What holds: the coordinate can be held back only if at least j = m - ceil(K (1 + tau) / 2) + 1 of the m clients vote
against their mean. So if m / K >= (1 + tau) / 2, by the union bound over all choices of j of them, and whatever the
other clients do,

    P(held back) <= C(m, j) exp(-j mu^2 / 2 sigma^2).
"""

from collections.abc import Callable, Sequence
from math import ceil, comb, erf, exp, sqrt
from typing import Any

import torch
from torch import Tensor

from accord.analyses import style
from accord.analyses.output import Result
from accord.core.errors import AccordError
from accord.engines.threads import one_thread
from accord.rules.combine import combine
from accord.rules.masks import gma, threshold

# Noise of variance 1 whose moment-generating function is at most that of a Gaussian of variance 1: both are
# 1-sub-Gaussian.
NOISES: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "gaussian": lambda k, p, draw: torch.randn(k, p, generator=draw, dtype=torch.float64),
    "uniform": lambda k, p, draw: sqrt(3) * (2 * torch.rand(k, p, generator=draw, dtype=torch.float64) - 1),
}


def slip(noise: str, mu: float) -> float:
    """The probability that a client of mean mu > 0 votes down. sigma is 1, so mu is in units of it."""
    return 0.5 * (1 - erf(mu / sqrt(2))) if noise == "gaussian" else max(0.0, 0.5 * (1 - mu / sqrt(3)))


def simulated(noise: str, clients: int, up: int, mu: float, tau: float, trials: int, seed: int = 0) -> float:
    """The share of trials that accord's own mask lets pass whole: every coordinate of a long vector is a trial."""
    draw = torch.Generator().manual_seed(seed)
    means = torch.full((clients, 1), -mu, dtype=torch.float64)
    means[:up] = mu
    mask = combine(gma(tau), means + NOISES[noise](clients, trials, draw)).mask
    assert mask is not None
    return float((mask == 1).double().mean())


def exact(noise: str, clients: int, up: int, mu: float, tau: float) -> float:
    """The probability of the same, from two binomial distributions: votes up of the clients at +mu, and of those at
    -mu."""
    wrong, least = slip(noise, mu), threshold(tau, clients)
    above = [comb(up, i) * (1 - wrong) ** i * wrong ** (up - i) for i in range(up + 1)]
    below = [comb(clients - up, i) * wrong**i * (1 - wrong) ** (clients - up - i) for i in range(clients - up + 1)]
    return sum(a * b for i, a in enumerate(above) for j, b in enumerate(below) if abs(2 * (i + j) - clients) >= least)


def bound(clients: int, up: int, mu: float, tau: float) -> float | None:
    """The bound on being held back that does hold; None where the share of positive means is too small for one."""
    spare = up - ceil((clients + threshold(tau, clients)) / 2) + 1  # so many clients must slip at least
    return comb(up, spare) * exp(-spare * mu**2 / 2) if spare >= 1 else None


def printed(mu: float) -> float:
    """The papers' rate, with the constant 1."""
    return exp(-(mu**2))


def settings(clients: int, tau: float, trials: int, noises: Sequence[str]) -> list[dict[str, Any]]:
    """A row for every noise, share of positive means and mu / sigma."""
    rows = []
    for noise in noises:
        for up in range(clients // 2, clients + 1):
            for mu in (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
                held = bound(clients, up, mu, tau)
                row = {"noise": noise, "clients": clients, "positive means": up, "mu / sigma": mu, "tau": tau}
                row |= {
                    "passes, simulated": simulated(noise, clients, up, mu, tau, trials, seed=up),
                    "passes, exact": exact(noise, clients, up, mu, tau),
                }
                rows.append(
                    row
                    | {
                        "passes, at least": None if held is None else max(0.0, 1 - held),
                        "passes, printed": max(0.0, 1 - printed(mu)),
                    }
                )
    return rows


@one_thread()
def read(clients: int = 10, tau: float = 0.4, trials: int = 100_000, noises: Sequence[str] = tuple(NOISES)) -> Result:
    """Every setting simulated and computed; the table has the first noise and some mu."""
    if clients < 2:
        raise AccordError(f"--clients must be at least 2, so that some may disagree, got {clients}")
    for noise in noises:
        if noise not in NOISES:
            raise AccordError(f"--noises must be among {', '.join(NOISES)}, got {noise!r}")
    rows = settings(clients, tau, trials, noises)
    off = max(abs(row["passes, simulated"] - row["passes, exact"]) for row in rows)
    half, sure = clients // 2, max(row["mu / sigma"] for row in rows)
    chance = exact(noises[0], clients, half, sure, tau)
    notes = (
        f"simulated and exact probabilities differ by at most {off:.4f} in {len(rows)} settings of {trials:,} trials",
        (
            f"{half} of {clients} means positive, mu = {sure:g} sigma: passes with {chance:.1e}, printed 1 -"
            f" {printed(sure):.1e}"
        ),
    )
    table = [row for row in rows if row["noise"] == noises[0] and row["mu / sigma"] in (0.5, 1.0, 2.0, 3.0)]
    return Result("mask_stability", table, rows, lambda: _draw(rows, clients, tau), notes)


def _draw(rows: list[dict[str, Any]], clients: int, tau: float) -> Any:
    figure, (left, right) = style.panels(2, size=(5.0, 3.8))
    rows = [row for row in rows if row["noise"] == rows[0]["noise"]]
    noise = rows[0]["noise"]
    for mu, colour in zip((0.5, 1.0, 2.0, 3.0), style.COLOURS, strict=False):
        some = [row for row in rows if row["mu / sigma"] == mu]
        shares = [100 * row["positive means"] / clients for row in some]
        left.plot(shares, [row["passes, exact"] for row in some], color=colour, label=f"mu / sigma = {mu:g}")
        left.plot(shares, [row["passes, simulated"] for row in some], "o", color=colour)
    left.axvline(50 * (1 + tau), color=style.GREY, linestyle="--", linewidth=1.0)
    left.annotate("(1 + tau) / 2 ", (50 * (1 + tau), 0.93), color=style.GREY, horizontalalignment="right")
    left.set(
        title=f"The printed condition, share > {tau:g}, holds everywhere here",
        xlabel="clients with a positive mean (%)",
        ylabel="probability that the mask is 1",
    )
    left.legend(loc="lower right", title="line: exact, dots: simulated", alignment="left", fontsize=8, title_fontsize=8)

    up = ceil((clients + threshold(tau, clients)) / 2)
    fine = [0.05 * step for step in range(1, 81)]
    right.plot(fine, [1 - exact(noise, clients, up, mu, tau) for mu in fine], color=style.COLOURS[0], label="exact")
    some = [row for row in rows if row["positive means"] == up and row["passes, simulated"] < 1]
    right.plot(
        [row["mu / sigma"] for row in some],
        [1 - row["passes, simulated"] for row in some],
        "o",
        color=style.COLOURS[0],
        label="simulated",
    )
    held = [bound(clients, up, mu, tau) for mu in fine]
    right.plot(fine, held, "--", color=style.COLOURS[2], label="bound that holds: m exp(-mu² / 2 sigma²)")
    right.plot(
        fine, [printed(mu) for mu in fine], ":", color=style.COLOURS[1], label="printed rate: exp(-mu² / sigma²)"
    )
    right.set_yscale("log")
    right.set(
        title=f"{up} of {clients} means are positive",
        xlabel="mu / sigma",
        ylabel="probability that it is held back",
        ylim=(1e-7, 20),
    )
    right.legend(loc="lower left")
    figure.suptitle(f"Mask stability: {clients} clients, tau = {tau:g}, {noise} noise, the other means negative")
    return figure
