"""A study that takes a second, and ways to give commands about it."""

import subprocess
from pathlib import Path

from accord.studies import Study, everything
from command import run_command

TINY = """
title = "A tiny study"
seeds = [0, 1]
compare = "rule"
against = "mean"

[settings]
"data.name" = "digits"
"data.clients" = 6
"data.split" = "labels"
"data.unseen" = 2
"model.name" = "logistic"
"train.rounds" = 4
"train.sample" = 3
"train.evaluate_every" = 2

[axes.algorithm]
fedavg = { "algorithm.name" = "fedavg" }

[axes.rule]
mean = { "algorithm.mask" = "none" }
gma = { "algorithm.mask" = "gma" }
gma-scaled = { "algorithm.mask" = "scaled", "algorithm.mask.mask.name" = "gma" }

[grid]
"train.lr" = [0.05, 0.1]
"""

# With two seeds an interval is so wide that it holds both 0 and what the paper prints for this place (+1.12 points).
PRINTED = (
    TINY.replace('compare = "rule"\nagainst = "mean"', 'compare = "aggregation"\npaper = "tmlr"\ntable = "2"')
    .replace("[axes.rule]\nmean", "[axes.aggregation]\navg")
    .replace("[grid]", "[axes.dataset]\nmnist = {}\n[axes.split]\nnoniid = {}\n[axes.clients]\n500 = {}\n[grid]")
)


def available() -> dict[str, Study]:
    """The studies that come with accord and are tables of cells, by name."""
    return {name: study for name, study in everything().items() if isinstance(study, Study)}


def accord(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_command(cwd, *words)


def inside(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = run_command(folder, *words)
    return done.returncode, done.stdout, done.stderr
