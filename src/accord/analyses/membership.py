"""Can samples that a model was trained on be told from others by its logits, with and without the mask? (appendix F and
figure 6b of the TMLR paper, figure 4.3b of the thesis)"""

import math
from collections.abc import Sequence
from typing import Any

from accord.analyses import style
from accord.analyses.arms import Arm, Train, figure_of
from accord.analyses.output import Result, deviation, mean
from accord.analyses.softness import masks, plan
from accord.audit.membership import attack, group
from accord.models import warm_start

BASE = """\
[data]
name = "mnist"
clients = 10
split = "labels"

[train]
rounds = 20
steps = 40            # of a client in a round: a small default
evaluate_every = 20

[run]
seeds = [0, 1, 2]
folder = "runs/analyse/membership"
"""


LOSS = "attacker's loss (nats)"


def carry_out(
    overrides: Sequence[str], train: Train, *, tau: float = 0.4, against: str = "test", steps: int = 5000
) -> Result:
    """Trains a model by plain averaging, by the soft mask and by its control, and attacks each."""
    arms = plan(BASE, overrides, masks(tau)[:3])
    first = arms[0].runs[0]
    against = group(first.experiment.federation(first.seed), against)
    train(arms)
    return read(arms, against, steps)


def read(arms: Sequence[Arm], against: str, steps: int) -> Result:
    """How often each attacker is right about the last model of every run, where guessing has 50 %, and the regression's
    loss as it learns."""
    points: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for one in arms:
        for run, history in zip(one.runs, one.histories(), strict=True):
            fed = run.experiment.federation(run.seed)
            module = warm_start(run.experiment.module(fed, run.seed), run.folder / "model.safetensors")
            outcome = attack(
                module, fed, against=against, steps=steps, seed=run.seed, device=run.experiment.settings.run.device
            )
            gap = figure_of(history[-1][1], "train", "accuracy") - figure_of(
                history[-1][1], outcome.against, "accuracy"
            )
            for way in outcome.attacks:
                figures = {
                    "attack accuracy (%)": 100 * way.accuracy,
                    "AUC": way.auc,
                    f"train - {outcome.against} (%)": gap,
                }
                names = {"rule": one.name, "attack": way.name, "seed": run.seed}
                points.append({**names, **figures, "step": None, LOSS: way.losses[-1][1] if way.losses else None})
                empty = dict.fromkeys(figures)
                curves += [{**names, **empty, "step": step, LOSS: loss} for step, loss in way.losses]
    table = []
    for name, way in dict.fromkeys((point["rule"], point["attack"]) for point in points):
        some = [point for point in points if (point["rule"], point["attack"]) == (name, way)]
        columns = list(some[0])[3:6]
        right, area, gaps = ([point[column] for point in some] for column in columns)
        losses = [point[LOSS] for point in some if point[LOSS] is not None]
        row: dict[str, Any] = {
            "rule": name,
            "attack": way,
            "seeds": len(some),
            "attack accuracy (%)": mean(right),
            "sd": deviation(right),
        }
        table.append(row | {"AUC": mean(area), columns[-1]: mean(gaps), LOSS: mean(losses) if losses else None})
    notes = (
        (
            "logits: logistic regression on the model's outputs; loss: a threshold on the sample's loss; half of the"
            " samples train them"
        ),
    )
    return Result("membership", table, [*points, *curves], lambda: _draw(table, points, curves), notes)


def _draw(table: Sequence[dict[str, Any]], points: Sequence[dict[str, Any]], curves: Sequence[dict[str, Any]]) -> Any:
    figure, (axes, right) = style.panels(2)
    _draw_losses(right, curves)
    rules = list(dict.fromkeys(row["rule"] for row in table))
    ways = list(dict.fromkeys(row["attack"] for row in table))
    for shift, (way, colour) in enumerate(zip(ways, style.COLOURS, strict=False)):
        places = [place + 0.18 * (shift - (len(ways) - 1) / 2) for place in range(len(rules))]
        for place, rule in zip(places, rules, strict=True):
            seeds = [
                point["attack accuracy (%)"] for point in points if (point["rule"], point["attack"]) == (rule, way)
            ]
            axes.plot(seeds, [place] * len(seeds), "|", color=colour, markersize=9, alpha=0.7)
        means = [row["attack accuracy (%)"] for row in table if row["attack"] == way]
        axes.plot(means, places, "o", color=colour, markersize=7, label=f"attack by {way}")
    axes.axvline(50, color=style.GREY, linestyle="--", linewidth=1.0, label="guessing")
    axes.set_yticks(range(len(rules)), rules)
    axes.invert_yaxis()
    axes.set(
        title="Dots are means, strokes are seeds",
        xlabel="attack accuracy on members and others in equal numbers (%)",
        ylabel="rule",
    )
    figure.legend(loc="outside lower center", ncols=len(ways) + 1)
    return figure


def _draw_losses(axes: Any, curves: Sequence[dict[str, Any]]) -> None:
    """The regression's loss on samples it was not told of, against its steps: a band over seeds for every rule."""
    for rule, colour in zip(dict.fromkeys(point["rule"] for point in curves), style.COLOURS, strict=False):
        of_rule = [point for point in curves if point["rule"] == rule]
        seeds = dict.fromkeys(point["seed"] for point in of_rule)
        losses = [[point[LOSS] for point in of_rule if point["seed"] == seed] for seed in seeds]
        style.band(axes, list(dict.fromkeys(point["step"] for point in of_rule)), losses, rule, colour)
    axes.axhline(math.log(2), color=style.GREY, linestyle="--", linewidth=1.0)
    axes.set(title="The attacker's loss as it learns", xlabel="step of the logistic regression", ylabel=LOSS)
    axes.legend()
