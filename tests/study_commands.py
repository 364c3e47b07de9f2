"""A study that takes a second, and ways to give commands about it."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from accord.cli import main

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
gma-scaled = { "algorithm.mask" = "scaled", "algorithm.like" = "gma" }

[grid]
"train.lr" = [0.05, 0.1]
"""


def accord(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "accord", *words], cwd=cwd, capture_output=True, text=True)


def inside(folder: Path, *words: str) -> tuple[int, str, str]:
    """The command in this process, which is quicker: exit code, standard output, standard error."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["accord", *words])
        with pytest.raises(SystemExit) as done:
            main()
    return int(done.value.code or 0), out.getvalue(), err.getvalue()
