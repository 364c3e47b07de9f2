"""The tables and the figure of docs/explanation/judge.md: how often the judge confirms a gain. Run it with: python
docs/figures/judge.py

Simulated results (accord.studies.simulate), 1000 draws a point; takes about two minutes on one core, and needs the
[plot] and [studies] extras.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats
from style import INK

from accord.studies.simulate import Truth, verdicts
from accord.studies.statistics import Array, estimate, heterogeneity

GAINS, SEEDS, DRAWS = (0.0, 0.2, 0.5, 1.0), range(3, 9), 1000
TABLES = {"60 cells": (5, 3, 4), "12 cells": (3, 1, 4), "4 cells": (1, 2, 2)}
COLOURS = (INK, "#56B4E9", "#D55E00", "#0072B2")

WORLDS = {
    "cells alike": {},
    "cells differ, tau 0.4": {"tau": 0.4},
    "noise differs between cells": {"uneven": 0.8},
    "algorithms share their seeds, correlation 0.5": {"shared": 0.5},
    "all three": {"tau": 0.4, "uneven": 0.8, "shared": 0.5},
}


def own_q(d: Array) -> float:
    """Cochran's Q with each cell's own variance."""
    means, fixed = d.mean(1), d.shape[1] / d.var(1, ddof=1)
    return float((fixed * (means - fixed @ means / fixed.sum()) ** 2).sum())


def textbook(d: Array) -> float:
    """The lower end by DerSimonian and Laird, with each cell's own variance and the normal distribution."""
    means, variances = d.mean(1), d.var(1, ddof=1) / d.shape[1]
    q, fixed = own_q(d), 1 / variances
    tau2 = max(0.0, (q - len(d) + 1) / (fixed.sum() - (fixed**2).sum() / fixed.sum()))
    weights = 1 / (variances + tau2)
    return float(weights @ means / weights.sum() - 1.96 / np.sqrt(weights.sum()))


def over_cells(d: Array) -> float:
    """The lower end by Hartung and Knapp with the pooled variance: Student's t over cells, as if cells were
    independent."""
    return float(d.mean() - stats.t.ppf(0.975, len(d) - 1) * d.mean(1).std(ddof=1) / np.sqrt(len(d)))


def methods() -> None:
    """No gain, four seeds: how often each interval lies above 0, and how often cells are said to differ."""
    ways = (textbook, over_cells, lambda d: estimate(d).low)
    print(
        "| no gain, 4 seeds | DerSimonian-Laird | over cells | over cells and seeds | cells differ, chi-square | cells"
        " differ, F |"
    )
    print("|---|---|---|---|---|---|")
    for title, world in WORLDS.items():
        for cells, shape in TABLES.items():
            rng = np.random.default_rng(0)
            counts = np.zeros(5)
            for _ in range(DRAWS):
                d = 100 * np.array(
                    [
                        list(c.difference.by_seed.values())
                        for c in Truth(0.0, 4, shape, **world).draw(rng)
                        if c.difference
                    ]
                )
                spread = heterogeneity(d)
                chi_square = own_q(d) > stats.chi2.ppf(0.95, len(d) - 1)
                counts += [*(way(d) > 0 for way in ways), chi_square, spread is not None and spread.p < 0.05]
            print(f"| {title}, {cells} | " + " | ".join(f"{100 * count / DRAWS:.1f}" for count in counts) + " |")


def trends() -> None:
    """A gain of half a point everywhere, four seeds: how often it is said to grow along the axis of three or four
    sizes."""
    tables = {"60 cells": (5, 3, 4), "8 cells": (1, 4, 2), "4 cells": (1, 4, 1)}
    print("| no trend, 4 seeds | " + " | ".join(tables) + " |\n|---" + "|---" * len(tables) + "|")
    for title, world in WORLDS.items():
        found = [verdicts(Truth(0.5, 4, shape, **world), "grows", DRAWS, axis="clients") for shape in tables.values()]
        print(f"| {title} | " + " | ".join(f"{100 * counts['confirmed'] / DRAWS:.1f}" for counts in found) + " |")


def curves() -> None:
    """How often a gain is confirmed, by seeds."""
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    panels = figure.subplots(1, len(TABLES), sharey=True)
    print("| confirmed, % | " + " | ".join(f"{seeds} seeds" for seeds in SEEDS) + " |\n|---|" + "---|" * len(SEEDS))
    for panel, (title, shape) in zip(panels, TABLES.items(), strict=True):
        for gain, colour in zip(GAINS, COLOURS, strict=True):
            found = [verdicts(Truth(gain, seeds, shape, tau=0.3, shared=0.3), "ahead", DRAWS) for seeds in SEEDS]
            rates = [100 * (counts["confirmed"] + counts["part"]) / DRAWS for counts in found]
            panel.plot(list(SEEDS), rates, "o-", color=colour, markersize=3, label=f"a gain of {gain:g}")
            print(f"| {title}, a gain of {gain:g} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |")
        panel.set(title=title, xlabel="seeds", ylim=(-3, 103))
    panels[0].set_ylabel("confirmed (%)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    # the same bytes for the same numbers
    figure.savefig(Path(__file__).with_name("judge.svg"), metadata={"Date": None})


def adding() -> None:
    """One cell without a gain: how often its interval lies above 0 where seeds are added for as long as it is
    undecided. A seed's standard deviation is 1."""
    cases = {
        "3 seeds": ([3], None),
        "8 seeds": ([8], None),
        "3 seeds, and 8 where the claim is open": ([3, 8], None),
        "a seed at a time, from 3 to 8, while 0 and a gain of 0.5 are in the interval": (range(3, 9), 0.5),
        "the same from 4": (range(4, 9), 0.5),
        "the same from 3, a gain of 2": (range(3, 9), 2.0),
    }
    print("| one cell, no gain | confirmed, % |\n|---|---|")
    for title, (stops, gain) in cases.items():
        rng, confirmed = np.random.default_rng(0), 0
        for _ in range(10 * DRAWS):
            seeds = rng.standard_normal(8)
            for count in stops:
                interval = estimate(seeds[None, :count])
                if not interval.low <= 0 <= interval.high or (gain is not None and interval.high < gain):
                    break
            confirmed += interval.low > 0
        print(f"| {title} | {confirmed / (DRAWS / 10):.1f} |")


if __name__ == "__main__":
    methods()
    trends()
    curves()
    adding()
