"""What it costs to evaluate some rounds only: the test accuracy that a selection rule reports where it chooses among
the rounds of `evaluate_at = ["log", "last10"]`, and where it chooses among all.

    accord reproduce tmlr-table8 --only clients=10 --no-grid 'train.evaluate_at=window(1,150)' train.lr=0.05 \
        --import replication/runs/fmnist-noniid-10-every-round.xz --folder runs/every-round run.device=cuda
    python benchmarks/evaluated_rounds.py runs/every-round

The folder has runs that were evaluated after every round. Points, means over the seeds whose model learned: a model at
chance reports the same whichever round is chosen.
"""

import argparse
import statistics
from pathlib import Path

from accord.core.errors import AccordError
from accord.runs.reader import find, load_all
from accord.runs.selection import select
from accord.training.evaluation_schedule import dense_early

RULES = ("oracle", "held-out")
CHANCE = 0.2  # of ten classes, well above one in ten


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    gaps: dict[str, list[list[float]]] = {}
    try:
        runs = load_all(find([parser.parse_args().folder]))
    except AccordError as error:
        parser.error(str(error))
    for run in runs:
        if not run.rounds or len(run.history) < run.rounds:
            parser.error(f"{run.folder} was not evaluated after every round ({run.ending})")
        history, (last, _) = run.history, run.history[-1]
        some = [(number, row) for number, row in history if dense_early(number) or number > last - 10]
        reported = [[select(rounds, rule).by_name["test"] for rounds in (history, some)] for rule in RULES]
        if reported[0][0] > CHANCE:
            gaps.setdefault(run.label, []).append([100 * (all_rounds - few) for all_rounds, few in reported])
    gaps["all"] = [gap for of_rule in gaps.values() for gap in of_rule]
    print(f"{'all rounds minus some, points':40s}" + "".join(f"{rule:>26s}" for rule in RULES))
    for label, seeds in gaps.items():
        columns = [
            f"{statistics.mean(gap):+.2f} ({min(gap):+.2f} to {max(gap):+.2f})" for gap in zip(*seeds, strict=True)
        ]
        print(f"{label:36s}{len(seeds):4d}" + "".join(f"{column:>26s}" for column in columns))


if __name__ == "__main__":
    main()
