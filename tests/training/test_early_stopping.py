"""Early stopping: the rule by hand, the same end however a run is driven, and what is recorded of it."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import accord
from accord.data import Federation
from accord.engines.determinism import steady
from accord.engines.vectorised import Vectorised
from accord.experiments.experiment import parse
from accord.experiments.lockstep import together
from accord.rules.local import Training
from accord.runs.fingerprint import SCHEMA, fingerprint
from accord.runs.folder import RunFolder
from accord.runs.reader import load
from accord.runs.rows import RoundRow
from accord.training.early_stopping import EarlyStopping
from accord.training.fit import make_job
from accord.training.loop import Loop
from accord.training.plan import Plan
from command import run_command
from conftest import blobs, mlp, sentence

FAST: dict[str, Any] = {
    "sample": 5,
    "batch": 8,
    "lr": 0.1,
    "evaluate_every": 1,
    "engine": "sequential",
    "device": "cpu",
}


def seen(*figures: float | None, every: int = 1) -> list[RoundRow]:
    """Rows of a run with these figures on held-out data."""
    of = [{"splits": {"heldout": {"accuracy": {"by_sample": figure}}}, "smaller_is_better": []} for figure in figures]
    return [
        RoundRow.from_json({"round": every * (number + 1), "evaluation": evaluation})
        for number, evaluation in enumerate(of)
    ]


def test_a_rise_by_hand() -> None:
    rise = EarlyStopping(margin=0.01).after_all(seen(0.5, 0.505, 0.509, 0.512, 0.4, 0.52))
    assert (rise.round, rise.score, rise.seen) == (
        4,
        0.512,
        6,
    ), "0.505 and 0.509 are no news, 0.512 is: small gains add up"
    assert rise.is_over(2) and not rise.is_over(3) and not rise.is_over(None)
    exact = EarlyStopping(margin=0.0).after_all(seen(0.5, 0.5, 0.25))
    assert (exact.round, exact.seen) == (1, 3), "an equal figure is no rise"


def test_a_run_that_diverged_is_flat_from_the_start() -> None:
    rise = EarlyStopping(0.001).after_all(seen(None, math.nan, None))
    assert (rise.round, rise.score) == (0, -math.inf) and rise.is_over(3) and not rise.is_over(4)


def test_rounds_that_nobody_looked_at_say_nothing() -> None:
    rows = seen(0.5, 0.4, every=10)
    assert not EarlyStopping(0.0).after_all(rows).is_over(11), "ten rounds, however many were trained since"
    extra = [*rows, replace(rows[0], round=25, off_schedule=True), RoundRow(round=26)]
    assert EarlyStopping(0.0).after_all(extra) == EarlyStopping(0.0).after_all(rows)


# --------------------------------------------------------------------------------------------------- the runs


def expected_end(run: accord.Run, patience: int, margin: float) -> tuple[int, int]:
    """The round where a run ends, and since when it is flat, from the whole of a straight run's history."""
    best, since = -math.inf, 0
    for number, evaluation in run.history:
        if (found := evaluation.score("heldout")) > best + margin:
            best, since = found, number
        if number - since >= patience:
            return number, since
    raise AssertionError("the run never became flat: choose other settings for the test")


def test_a_flat_run_is_the_beginning_of_the_straight_one(fed: Federation, tmp_path: Path) -> None:
    straight = accord.fit(mlp(), fed, rounds=40, **FAST)
    end, since = expected_end(straight, 5, 0.001)
    assert end < 40
    run = accord.fit(mlp(), fed, rounds=40, patience=5, folder=tmp_path, **FAST)
    assert (run.rounds, run.flat, run.spared, run.stopped) == (end, since, 40 - end, None)
    assert run.rows == straight.rows[:end]
    assert f"round {end} (flat since round {since})" in str(run)
    assert run.folder is not None
    done = json.loads((run.folder / "done").read_text())
    assert (done["schema"], done["rounds"], done["flat_since"]) == (SCHEMA, end, since)
    read = load(run.folder)
    assert (read.status, read.rounds, read.flat, read.ending) == ("done", end, since, f"done, flat since round {since}")


def files(folder: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.name not in ("timing.jsonl", "lock", "experiment.json")
    }


def test_it_ends_there_however_it_gets_there(fed: Federation, tmp_path: Path) -> None:
    """Stopped by a hook, asked for fewer rounds at first, killed before the mark was written, and asked for more once
    it is flat."""
    flat: dict[str, Any] = {"patience": 5, "checkpoint_every": 3, "evaluate_every": 2}
    straight = accord.fit(mlp(), fed, rounds=60, folder=tmp_path / "a", **FAST | flat)
    assert straight.folder and straight.flat is not None and straight.rounds < 60
    stopped = accord.fit(
        mlp(), fed, rounds=60, folder=tmp_path / "b", hooks=[lambda event: event.round == 4], **FAST | flat
    )
    assert (
        stopped.stopped == "stopped by a hook"
        and stopped.flat is None
        and stopped.folder
        and stopped.folder.name == straight.folder.name
    )
    shorter = accord.fit(mlp(), fed, rounds=7, folder=tmp_path / "b", **FAST | flat)
    assert shorter.rounds == 7 and shorter.flat is None
    assert accord.fit(mlp(), fed, rounds=60, folder=tmp_path / "b", **FAST | flat).flat == straight.flat
    assert files(stopped.folder) == files(straight.folder)
    (stopped.folder / "done").unlink()
    for rounds in (60, 500):
        again = accord.fit(mlp(), fed, rounds=rounds, folder=tmp_path / "b", **FAST | flat)
        assert (again.rounds, again.flat, again.stopped) == (straight.rounds, straight.flat, None)
        assert files(stopped.folder) == files(straight.folder)


def test_hooks_are_told_that_the_round_is_the_last(fed: Federation) -> None:
    told: list[tuple[int, int]] = []
    run = accord.fit(
        mlp(), fed, rounds=40, patience=5, hooks=[lambda event: told.append((event.round, event.rounds))], **FAST
    )
    assert told[-1] == (run.rounds, run.rounds) and all(rounds == 40 for _, rounds in told[:-1])


def test_alone_and_in_lockstep_a_run_ends_in_the_same_round(tmp_path: Path) -> None:
    fed = blobs()

    def loop(root: str, seed: int, engine: Vectorised | None = None) -> Loop:
        plan = Plan(40, 5, 1, seed=seed, patience=4)
        job = make_job(mlp(), fed, accord.fedavg(), Training(batch=8, lr=accord.schedule.constant(0.1)), plan, "cpu")
        return Loop(job, plan, engine or Vectorised(job), RunFolder(tmp_path / root / str(seed), {}, 40), [])

    alone = [loop("alone", seed) for seed in range(3)]
    with steady():
        for one in alone:
            one.go()
    engine = Vectorised(alone[0].job)
    with steady():
        ended = list(together((loop("together", seed, engine) for seed in range(3)), engine, 2))
    for one in [*alone, *ended]:
        assert one.folder is not None
        one.folder.close()
    assert len({one.progress.round for one in ended}) > 1, "they end at different times"
    ahead = {round for round, *_ in engine._orders}
    assert len(ahead) <= 1, "batches drawn ahead for runs that ended early are not kept for whoever gets their place"
    for seed in range(3):
        assert files(tmp_path / "together" / str(seed)) == files(tmp_path / "alone" / str(seed))


# ---------------------------------------------------------------------------------------- names and bad input


def test_patience_is_part_of_a_name_and_its_margin_only_with_it() -> None:
    assert Plan(5, min_delta=0.5).identity() == Plan().identity(), "without patience there is no margin"
    plans = [Plan(), Plan(patience=5), Plan(patience=6), Plan(patience=5, min_delta=0.0)]
    assert len({fingerprint(plan.identity()) for plan in plans}) == 4
    plain, flat = parse('[data]\nname = "digits"\n'), parse('[data]\nname = "digits"\n[train]\npatience = 5\n')
    assert flat.folder(0) != plain.folder(0)


def test_bad_input_is_one_sentence(fed: Federation) -> None:
    with sentence("patience must be a whole number of at least 1, got 0"):
        accord.fit(mlp(), fed, rounds=2, patience=0, **FAST)
    with sentence("min_delta must be a number of at least 0, got '0.1'"):
        Plan(patience=2, min_delta="0.1")
    with sentence("min_delta must be a number of at least 0, got nan"):
        accord.fit(mlp(), fed, rounds=2, patience=2, min_delta=math.nan, **FAST)
    with sentence("patience needs held-out data of participating clients"):
        accord.fit(mlp(), replace(fed, heldout={}), rounds=2, patience=2, **FAST)
    with sentence("train.patience must be a whole number", "got 2.5"):
        parse("[train]\npatience = 2.5\n")
    with sentence("train.min_delta has no meaning without train.patience, got 0.1"):
        parse("[train]\nmin_delta = 0.1\n")
    with sentence("train.patience needs held-out data", "data.heldout must be above 0, got 0"):
        parse("[data]\nheldout = 0.0\n[train]\npatience = 2\n")


# ------------------------------------------------------------------------------------------------ the command

TOML = """\
[data]
name = "digits"
clients = 8
[model]
name = "logistic"
[train]
rounds = 400
lr = 0.2
evaluate_every = 2
patience = 6
min_delta = 0.01
"""


def test_the_command_trains_patience_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(TOML)

    first = run_command(tmp_path, "run", "my.toml", "run.engine=sequential")
    (folder,) = (tmp_path / "runs").glob("*-s0")
    read = load(folder)
    assert first.returncode == 0 and read.flat is not None and read.rounds < 400, first.stderr
    ended = f"done after round {read.rounds}: flat since round {read.flat}"
    assert ended in first.stderr and "Stopped early" not in first.stderr
    assert f"done, flat since round {read.flat}" in first.stdout
    again = run_command(tmp_path, "run", "my.toml", "run.engine=sequential", "train.rounds=500", "--resume")
    assert again.returncode == 0 and f"{read.rounds} rounds, done already" in again.stderr, again.stderr
    swept = run_command(tmp_path, "sweep", "my.toml")
    assert swept.returncode == 0 and "1 of 1 runs are done already." in swept.stderr, swept.stderr
    attacked = run_command(
        tmp_path, "membership", str(folder), "--shadows", "4", "--steps", "5"
    )  # shadow models, which hold out nothing, get as many rounds
    assert attacked.returncode == 0 and "likelihood ratio" in attacked.stdout, attacked.stderr
    told = json.loads(run_command(tmp_path, "show", "runs", "--json").stdout)
    assert told[0]["flat_since"] == read.flat and told[0]["status"] == "done"
