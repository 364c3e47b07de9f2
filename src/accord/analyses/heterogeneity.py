"""How many coordinates fall under tau when clients' labels differ more (figure 4 of the TMLR paper)."""

from collections.abc import Sequence
from typing import Any

from accord.analyses import chance, style
from accord.analyses.arms import Arm, Train, arm, check_apart
from accord.analyses.output import Result, deviation, mean
from accord.core.errors import AccordError
from accord.data.portrait import portray

BASE = """\
[data]
name = "mnist"
clients = 10

[train]
rounds = 10
steps = 40            # of a client in a round: a small default
evaluate_every = 10

[run]
seeds = [0, 1, 2]
folder = "runs/analyse/heterogeneity"
"""


def carry_out(
    overrides: Sequence[str], train: Train, *, alphas: Sequence[float] = (0.1, 0.3, 1.0, 10.0, 100.0), tau: float = 0.4
) -> Result:
    """Trains with every alpha, and measures agreement."""
    arms = plan(overrides, alphas, tau)
    train(arms)
    return read(arms, tau)


def plan(overrides: Sequence[str], alphas: Sequence[float], tau: float) -> list[Arm]:
    """An arm for every alpha of the Dirichlet deal."""
    fixed = {"data.split": "dirichlet", "algorithm.mask": "gma", "algorithm.mask.tau": tau}
    arms = [arm(f"{alpha:g}", BASE, overrides, {**fixed, "data.alpha": alpha}) for alpha in sorted(alphas)]
    check_apart(arms)
    return arms


def read(arms: Sequence[Arm], tau: float) -> Result:
    """The share of coordinates under tau, averaged over the rounds of a run, against alpha."""
    table: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    curves: dict[float, list[list[float]]] = {}
    voters = 0
    for one in arms:
        alpha = one.values["data.alpha"]
        curves[alpha], skews = [], []
        for run, rows in zip(one.runs, one.rows(), strict=True):
            # a skipped round has no votes
            voted = [(row.round, row.accepted, 100 * row.below_tau) for row in rows if row.below_tau is not None]
            if not voted:
                raise AccordError(f"{run.folder} has no round in which clients voted, so there is nothing to measure")
            skews.append(portray(run.experiment.federation(run.seed), run.seed).heterogeneity.found)
            curves[alpha].append([share for _, _, share in voted])
            voters = max(voters, *(accepted for _, accepted, _ in voted))
            for number, _, share in voted:
                points.append({"alpha": alpha, "seed": run.seed, "round": number, "under tau (%)": share})
        shares = [mean(curve) for curve in curves[alpha]]
        names = {"alpha": alpha, "seeds": len(shares), "label skew": mean(skews)}
        table.append(names | {"under tau (%)": mean(shares), "sd": deviation(shares)})
    tossed = 100 * chance.under(voters, tau)
    note = f"tau = {tau:g}, mean over rounds; votes by coin toss of {voters} clients would put {tossed:.1f} % under it"
    return Result("heterogeneity", table, points, lambda: _draw(curves, tau, tossed), (note,))


def _draw(curves: dict[float, list[list[float]]], tau: float, tossed: float) -> Any:
    from matplotlib import colormaps

    figure, (left, right) = style.panels(2)
    alphas, seeds = list(curves), len(next(iter(curves.values())))
    style.band(
        left,
        alphas,
        list(zip(*([mean(run) for run in runs] for runs in curves.values()), strict=True)),
        "measured",
        style.COLOURS[0],
        marker="o",
    )
    left.axhline(tossed, color=style.GREY, linestyle="--", linewidth=1.0, label="votes by coin toss")
    left.set_xscale("log")
    left.set(
        title="Mean over rounds",
        xlabel="Dirichlet alpha (small: clients differ more)",
        ylabel=f"coordinates with agreement under {tau:g} (%)",
    )
    left.legend()
    shades = colormaps["viridis_r"]
    for number, (alpha, runs) in enumerate(curves.items()):
        shade = shades(0.1 + 0.9 * number / max(1, len(alphas) - 1))
        common = min(map(len, runs))
        style.band(right, range(1, common + 1), [run[:common] for run in runs], f"{alpha:g}", shade)
    right.axhline(tossed, color=style.GREY, linestyle="--", linewidth=1.0)
    right.set(title="Round by round", xlabel="round", ylabel=f"coordinates with agreement under {tau:g} (%)")
    right.legend(title="alpha", ncols=2)
    figure.suptitle(f"Disagreement against heterogeneity ({style.seeds_text(seeds)})")
    return figure
