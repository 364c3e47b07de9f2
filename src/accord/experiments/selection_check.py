"""Whether a selection rule could choose anything, asked before a run spends time on it."""

import numpy as np

from accord.engines.contract import Table
from accord.experiments.experiment import Experiment
from accord.runs.evaluation import summarise
from accord.runs.selection import select


def rehearse(rule: str, experiment: Experiment) -> None:
    """Refuses a selection rule that could choose nothing, before a run spends time on it."""
    # a test set of the user's own may be missing, which nobody knows before the data is read
    splits = ["train", *(["heldout"] if experiment.settings.data.heldout else []), "test"]
    groups, count = [(split, split) for split in splits], len(splits)
    spent: dict[str, float] | None = {} if experiment.algorithm.privacy else None
    blank = summarise(Table(groups, np.ones(count, dtype=np.int64), {"loss": np.zeros(count)}), privacy=spent)
    select([(number, blank) for number in experiment.plan(0).evaluations], rule)
