"""The soft mask against the binary one, with plain averaging and the soft mask's control (figure 5 of the TMLR
paper)."""

from collections.abc import Sequence
from typing import Any

from accord.analyses import style
from accord.analyses.arms import Arm, Train, arm, check_apart, figure_of, selected
from accord.analyses.output import Result, deviation, mean
from accord.experiments.selection_check import rehearse
from accord.runs.selection import History

BASE = """\
[data]
name = "mnist"
clients = 10
split = "labels"

[train]
rounds = 24
steps = 25            # of a client in a round: a small default
evaluate_every = 3

[run]
seeds = [0, 1, 2]
folder = "runs/analyse/softness"
"""


def carry_out(
    overrides: Sequence[str], train: Train, *, tau: float = 0.4, target: float | None = None, select: str = "last10"
) -> Result:
    """Trains with every mask, and compares."""
    arms = plan(BASE, overrides, masks(tau))
    rehearse(select, arms[0].runs[0].experiment)
    train(arms)
    return read(arms, select, target)


def masks(tau: float) -> list[dict[str, Any]]:
    """No mask, the soft one, the soft one's control of equal length, the binary one, as settings."""
    soft = {"algorithm.mask": "gma", "algorithm.mask.tau": tau}
    control = {
        "algorithm.mask": "scaled",
        "algorithm.mask.mask.name": "gma",
        "algorithm.mask.by": "length",
        "algorithm.mask.mask.tau": tau,
    }
    return [{"algorithm.mask": "none"}, soft, control, {"algorithm.mask": "and", "algorithm.mask.tau": tau}]


def plan(base: str, overrides: Sequence[str], chosen: Sequence[dict[str, Any]]) -> list[Arm]:
    """An arm for each of some masks, by the name of its rule."""
    arms = [arm("", base, overrides, values) for values in chosen]
    check_apart(arms)
    return [Arm(one.runs[0].experiment.label, one.values, one.runs) for one in arms]


def reached(history: History, target: float) -> int | None:
    """The first evaluated round with so much test accuracy, in percent."""
    return next((number for number, evaluation in history if figure_of(evaluation, "test", "accuracy") >= target), None)


def read(arms: Sequence[Arm], rule: str, target: float | None) -> Result:
    """Test accuracy by the selection rule, and the rounds to a target: if none is given, 95 % of what plain averaging
    reaches."""
    histories = {one.name: one.histories() for one in arms}
    plain = mean([selected(history, rule, "test", "accuracy") for history in histories[arms[0].name]])
    target = 0.95 * plain if target is None else target
    table, points, lengths = [], [], {}
    for one in arms:
        accuracies = [selected(history, rule, "test", "accuracy") for history in histories[one.name]]
        rounds = [reached(history, target) for history in histories[one.name]]
        there = [number for number in rounds if number is not None]
        norms = [[(row.step_norm, row.update_norm) for row in rows] for rows in one.rows()]
        lengths[one.name] = [
            [100 * step / update for step, update in run if step is not None and update] for run in norms
        ]
        table.append(
            {
                "rule": one.name,
                "seeds": len(accuracies),
                "test accuracy (%)": mean(accuracies),
                "sd": deviation(accuracies),
                "rounds to target": mean(there) if len(there) == len(rounds) else None,
                "step of the update (%)": mean([mean(run) for run in lengths[one.name]]),
            }
        )
        for run, history in zip(one.runs, histories[one.name], strict=True):
            for number, evaluation in history:
                points.append(
                    {
                        "rule": one.name,
                        "seed": run.seed,
                        "round": number,
                        "test accuracy (%)": figure_of(evaluation, "test", "accuracy"),
                    }
                )
    notes = (
        f"accuracy by {rule}; target {target:.1f} %; a dash: not all seeds reached it",
        "step: how long the server's step is beside the averaged update",
    )
    return Result("softness", table, points, lambda: _draw(histories, lengths, target), notes)


def _draw(histories: dict[str, list[History]], lengths: dict[str, list[list[float]]], target: float) -> Any:
    figure, (left, right) = style.panels(2)
    for (name, seeds), colour in zip(histories.items(), style.COLOURS, strict=False):
        rounds = [number for number, _ in seeds[0]]
        style.band(
            left,
            rounds,
            [[figure_of(e, "test", "accuracy") for _, e in history] for history in seeds],
            name,
            colour,
            marker="o",
        )
        common = min(map(len, lengths[name]))
        style.band(right, range(1, common + 1), [run[:common] for run in lengths[name]], name, colour)
    left.axhline(target, color=style.GREY, linestyle="--", linewidth=1.0, label="target")
    left.set(title="Accuracy", xlabel="round", ylabel="test accuracy (%)")
    left.legend(loc="lower right")
    right.set(
        title="How much of the averaged update is taken",
        xlabel="round",
        ylabel="step / update, in length (%)",
        ylim=(0, 105),
    )
    figure.suptitle(f"Soft and binary masks ({style.seeds_text(len(next(iter(histories.values()))))})")
    return figure
