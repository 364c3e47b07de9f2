"""One round from a trained model: held-out data of the clients that took part, and of those that did not (tables 4 and
5, TMLR paper)."""

from collections.abc import Sequence
from typing import Any

from accord.analyses import style
from accord.analyses.arms import Arm, Train, arm, figure_of
from accord.analyses.output import Result, deviation, mean
from accord.analyses.softness import masks
from accord.core.errors import AccordError
from accord.experiments.experiment import override
from accord.experiments.sweep import PlannedRun

BASE = """\
[data]
name = "fashion-mnist"
clients = 10
split = "labels"

[train]
rounds = 20           # of the model that the one round starts from
steps = 40            # of a client in a round: a small default
evaluate_every = 10

[run]
seeds = [0, 1, 2]
folder = "runs/analyse/participation"
"""
PARTS = {"participating (%)": "held-out, in this round", "others (%)": "held-out, not in it"}
_BASE_ONLY = (
    *("train.rounds", "train.sample", "train.epochs", "train.steps", "run.seeds"),
    *("train.evaluate_every", "train.evaluate_at", "train.evaluate_samples"),
)


def carry_out(
    overrides: Sequence[str], train: Train, *, participants: Sequence[int] = (5, 2), epochs: int = 3, tau: float = 0.4
) -> Result:
    """Trains the model, then one round from it by every rule."""
    start = base(overrides)
    check(start, participants)
    train([start])
    arms = plan(overrides, start, participants, epochs, tau)
    train(arms)
    return read(arms)


def base(overrides: Sequence[str]) -> Arm:
    """The training, by plain averaging, that every one round starts from; one model per seed."""
    return arm("base", BASE, overrides, {"algorithm.mask": "none"})


def check(start: Arm, participants: Sequence[int]) -> None:
    """Refuses a round that could not be judged, before the model for it is trained."""
    experiment = start.runs[0].experiment
    clients = experiment.supply.clients  # unknown of natural clients, until their data is read
    for count in participants:
        if clients and count >= clients:
            raise AccordError(f"--participants must leave out some of the {clients} clients, got {count}")
    if len(set(participants)) < len(participants):
        raise AccordError(f"--participants must differ from each other, got {', '.join(map(str, participants))}")
    if not experiment.settings.data.heldout:
        raise AccordError("data.heldout must be above 0: the clients' held-out data is what this analysis measures")


def plan(overrides: Sequence[str], start: Arm, participants: Sequence[int], epochs: int, tau: float) -> list[Arm]:
    """For every number of participants: the trained model as it is, then one round by each rule."""
    steps = start.runs[0].experiment.training.steps
    applicable = [text for text in overrides if ".".join(override(text)[:2]) not in _BASE_ONLY]
    limit = {"train.steps": "all" if steps is None else epochs * steps}
    arms = []
    for count in participants:
        # A server that takes no step leaves the model as it is, judged by the same clients' data.
        rules = [{"algorithm.mask": "none", "algorithm.server.lr": 0.0}, *masks(tau)]
        for values in rules:
            free = [text for text in applicable if ".".join(override(text)[:2]) not in values]
            runs: list[PlannedRun] = []
            for run in start.runs:
                once = {
                    "train.rounds": 1,
                    "train.evaluate_every": 1,
                    "train.sample": count,
                    "train.epochs": epochs,
                    **limit,
                }
                begin = {"model.start": str(run.folder / "model.safetensors"), "run.seeds": [run.seed]}
                runs += arm("", BASE, free, {**values, **once, **begin}).runs
            name = "before the round" if "algorithm.server.lr" in values else runs[0].experiment.label
            arms.append(Arm(name, {**values, "participants": count}, tuple(runs)))
    return arms


def read(arms: Sequence[Arm]) -> Result:
    """Accuracy on both groups of clients, mean over trials, and the change from plain averaging."""
    table, points = [], []
    for one in arms:
        count = one.values["participants"]
        for run, history in zip(one.runs, one.histories(), strict=True):
            figures = {column: figure_of(history[-1][1], part, "accuracy") for column, part in PARTS.items()}
            points.append({"participants": count, "rule": one.name, "trial": run.seed, **figures})
        row: dict[str, Any] = {"participants": count, "rule": one.name, "trials": len(one.runs)}
        for column in PARTS:
            values = [point[column] for point in points if (point["participants"], point["rule"]) == (count, one.name)]
            row |= {column: mean(values), f"sd, {column.partition(' ')[0]}": deviation(values)}
        table.append(row)
    for row in table:
        plain = next(
            other
            for other in table
            if other["participants"] == row["participants"] and other["rule"] != "before the round"
        )
        row |= {f"{column.partition(' ')[0]} - averaging": row[column] - plain[column] for column in PARTS}
    return Result("participation", table, points, lambda: _draw(table, points))


def _draw(table: Sequence[dict[str, Any]], points: Sequence[dict[str, Any]]) -> Any:
    counts = list(dict.fromkeys(row["participants"] for row in table))
    figure, axes = style.panels(len(counts), size=(4.8, 3.4))
    for one, count in zip(axes, counts, strict=True):
        rules = [row for row in table if row["participants"] == count]
        one.hlines(
            range(len(rules)), *([row[column] for row in rules] for column in PARTS), color=style.GREY, linewidth=1.0
        )
        for column, colour in zip(PARTS, style.COLOURS, strict=False):
            for place, row in enumerate(rules):
                trials = [
                    point[column] for point in points if (point["participants"], point["rule"]) == (count, row["rule"])
                ]
                one.plot(trials, [place] * len(trials), "|", color=colour, markersize=9, alpha=0.7)
            one.plot(
                [row[column] for row in rules],
                range(len(rules)),
                "o",
                color=colour,
                markersize=7,
                label=column.partition(" ")[0],
            )
        one.set_yticks(range(len(rules)), [row["rule"] for row in rules])
        one.invert_yaxis()
        one.set(title=f"{count} clients take part", xlabel="accuracy on clients' held-out data (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    words = ["One round from a trained model", "dots are means, strokes are trials"]
    figure.suptitle((": " if len(counts) > 1 else "\n").join(words))
    return figure
