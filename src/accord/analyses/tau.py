"""What tau does to accuracy and loss (figure 3d of the TMLR paper, section 3.3 of the thesis)."""

from collections.abc import Sequence
from typing import Any

from accord.analyses import style
from accord.analyses.arms import Arm, Train, arm, check_apart, selected
from accord.analyses.output import Result, deviation, mean
from accord.core.errors import AccordError
from accord.core.metrics import TITLES
from accord.experiments.selection_check import rehearse

BASE = """\
[data]
name = "fashion-mnist"
clients = 10
split = "labels"

[train]
rounds = 20
steps = 40            # of a client in a round: a small default
evaluate_every = 5

[run]
seeds = [0, 1]
folder = "runs/analyse/tau"
"""


def carry_out(
    overrides: Sequence[str],
    train: Train,
    *,
    taus: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    mask: str = "gma",
    select: str = "last10",
    split: str = "test",
) -> Result:
    """Trains with every tau, and compares."""
    if split not in TITLES:
        raise AccordError(f"--split must be one of {', '.join(TITLES)}, got {split!r}")
    arms = plan(overrides, taus, mask)
    rehearse(select, arms[0].runs[0].experiment)
    train(arms)
    return read(arms, select, split)


def plan(overrides: Sequence[str], taus: Sequence[float], mask: str) -> list[Arm]:
    """An arm for every tau."""
    arms = [
        arm(f"{tau:g}", BASE, overrides, {"algorithm.mask": mask, "algorithm.mask.tau": tau}) for tau in sorted(taus)
    ]
    check_apart(arms)
    return arms


def read(arms: Sequence[Arm], rule: str, split: str) -> Result:
    """Accuracy and loss by the selection rule, against tau."""
    table, points = [], []
    by_metric: dict[str, list[list[float]]] = {"accuracy": [], "loss": []}
    for one in arms:
        histories = one.histories()
        for metric, values in by_metric.items():
            values.append([selected(history, rule, split, metric) for history in histories])
        accuracy, loss = by_metric["accuracy"][-1], by_metric["loss"][-1]
        table.append(
            {
                "tau": one.values["algorithm.mask.tau"],
                "seeds": len(histories),
                f"{split} accuracy (%)": mean(accuracy),
                "sd": deviation(accuracy),
                f"{split} loss (nats)": mean(loss),
                "sd of loss": deviation(loss),
            }
        )
        for run, right, wrong in zip(one.runs, accuracy, loss, strict=True):
            points.append(
                {
                    "tau": one.values["algorithm.mask.tau"],
                    "seed": run.seed,
                    f"{split} accuracy (%)": right,
                    f"{split} loss (nats)": wrong,
                }
            )
    taus = [row["tau"] for row in table]
    return Result(
        "tau",
        table,
        points,
        lambda: _draw(taus, by_metric, split, rule),
        (f"figures by {rule}; tau = 0 is plain averaging",),
    )


def _draw(taus: list[float], by_metric: dict[str, list[list[float]]], split: str, rule: str) -> Any:
    figure, axes = style.panels(2)
    for one, (metric, values), colour in zip(axes, by_metric.items(), style.COLOURS, strict=False):
        style.band(one, taus, list(zip(*values, strict=True)), f"{split} {metric}", colour, marker="o")
        if taus[0] == 0:
            one.axhline(
                mean(values[0]), color=style.GREY, linestyle="--", linewidth=1.0, label="tau = 0, plain averaging"
            )
        one.set(
            title=metric.capitalize(),
            xlabel="tau (net share of votes)",
            ylabel=f"{split} {'accuracy (%)' if metric == 'accuracy' else 'loss (nats)'}",
        )
        one.legend()
    figure.suptitle(f"Effect of tau, by {rule} ({style.seeds_text(len(by_metric['loss'][0]))})")
    return figure
