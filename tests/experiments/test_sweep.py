"""`accord sweep`: the grid, its groups, and real processes whose runs equal those of `accord run`."""

import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accord import ditto, fedavg, gma
from accord.console.progress import watcher_for
from accord.engines.vectorised import CannotBatch
from accord.experiments import groups
from accord.experiments.execute import Interrupt
from accord.experiments.experiment import parse
from accord.experiments.groups import Jobs, grouped, packed
from accord.experiments.sweep import preview, read, sweep
from command import Started, accord, command, environment
from conftest import sentence

BASE = """\
[data]
name = "digits"
clients = 8
split = "labels"
classes = 3
unseen = 2
[model]
name = "logistic"
[train]
rounds = 6
sample = 3
batch = 8
evaluate_every = 2
[algorithm]
name = "fedadam"
mask = "gma"
[run]
folder = "my runs"
seeds = [0, 1]
engine = "vectorised"
checkpoint_every = 2
"""
SWEEP = BASE + '[sweep]\n"algorithm.server.lr" = [0.01, 0.1]\n"algorithm.mask.tau" = [0.2, 0.6]\n'


def written(folder: Path, table: str = "", base: str = BASE) -> Path:
    file = folder / "grid.toml"
    file.write_text(base + table)
    return file


# --------------------------------------------------------------------------------------------------- the grid


def test_the_grid_is_the_product_and_each_cell_an_ordinary_experiment(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(SWEEP)
    runs = read(tmp_path / "grid.toml", ["train.lr=0.5"])
    assert [(run.values["algorithm.server.lr"], run.values["algorithm.mask.tau"], run.seed) for run in runs] == [
        (lr, tau, seed) for lr in (0.01, 0.1) for tau in (0.2, 0.6) for seed in (0, 1)
    ]
    for run in runs:
        more = [
            f"algorithm.server.lr={run.values['algorithm.server.lr']}",
            f"algorithm.mask.tau={run.values['algorithm.mask.tau']}",
            "train.lr=0.5",
        ]
        alone = parse(BASE, more)
        assert run.folder == alone.folder(run.seed)
        assert run.experiment.resolved() == alone.resolved()
    assert runs[2].title == "fedadam + gma(0.6) · algorithm.server.lr=0.01 · algorithm.mask.tau=0.6 · seed 0"


@pytest.mark.parametrize(
    "table", ["[sweep]\nalgorithm.server.lr = [0.1, 0.2]", "[sweep.algorithm]\nserver.lr = [0.1, 0.2]"]
)
def test_keys_may_be_written_without_quotes(tmp_path: Path, table: str) -> None:
    assert [run.values for run in read(written(tmp_path, table))] == [
        {"algorithm.server.lr": lr} for lr in (0.1, 0.1, 0.2, 0.2)
    ]


def test_a_section_as_a_whole_has_tables_whose_keys_go_together(tmp_path: Path) -> None:
    kinds = '[[sweep.algorithm]]\nname = "fedavg"\npersonal = ["last"]\n[[sweep.algorithm]]\nname = "ditto"\n'
    file = written(tmp_path, f'[sweep]\n"algorithm.mask" = ["none", {{ name = "gma", tau = 0.6 }}]\n{kinds}')
    runs = read(file, ["run.seeds=0"])
    personal, mask = fedavg().with_personal("last"), gma(0.6)
    assert [run.experiment.algorithm for run in runs] == [
        personal, ditto(), replace(personal, mask=mask), ditto(mask=mask)
    ]  # fmt: skip
    assert runs[0].values == {"algorithm.mask": "none", "algorithm.name": "fedavg", "algorithm.personal": ["last"]}
    with sentence("algorithm.personal is swept by the file's [sweep] table and set to ['head'] here"):
        read(file, ["algorithm.personal=['head']"])
    with sentence("algorithm.name is swept twice: by itself, and in the tables of its section"):
        read(written(tmp_path, f'[sweep]\n"algorithm.name" = ["fedavg"]\n{kinds}'))


def test_a_file_without_a_table_is_a_sweep_over_its_seeds_and_seeds_may_be_swept(tmp_path: Path) -> None:
    assert [run.seed for run in read(written(tmp_path))] == [0, 1]
    assert [run.seed for run in read(written(tmp_path, '[sweep]\n"run.seeds" = [4, 5]'))] == [4, 5]


def test_another_algorithm_leaves_the_files_options_for_the_old_one_behind(tmp_path: Path) -> None:
    base = BASE.replace('mask = "gma"', 'mask = "gma"\nserver = { lr = 0.5 }')
    adam, avg = (
        run.experiment.algorithm
        for run in read(written(tmp_path, '[sweep]\n"algorithm.name" = ["fedadam", "fedavg"]', base), ["run.seeds=0"])
    )
    assert (adam.server.lr, avg.server.lr) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("table", "overrides", "told"),
    [
        ('"algorithm.tua" = [0.1]', [], ["algorithm.tua is not a known key, got 0.1: did you mean 'mask.tau'?"]),
        (
            '"algoritm.tau" = [0.1]',
            [],
            ["'algoritm.tau' in [sweep] is of no section of an experiment: did you mean 'algorithm'?"],
        ),
        ("tau = [0.1]", [], ["'tau' in [sweep] is not a setting: write section.key"]),
        ("algorithm = [{}]", [], ["'algorithm' in [sweep] is not a setting: write section.key"]),
        ("algoritm = [{ a = 1 }]", [], ["'algoritm' in [sweep] is of no section", "did you mean 'algorithm'?"]),
        ("algorithm = [{ nme = 1 }]", [], ["algorithm.nme is not a known key, got 1"]),
        (
            '"algorithm.mask.tau" = []',
            [],
            ["algorithm.mask.tau in [sweep] must be a list of one or more values, got []"],
        ),
        (
            '"algorithm.mask.tau" = 0.5',
            [],
            ["algorithm.mask.tau in [sweep] must be a list of one or more values, got 0.5"],
        ),
        ('"algorithm.mask.tau" = [0.5, 1.5]', [], ["algorithm.mask.tau must be between 0 and 1, got 1.5"]),
        (
            '"algorithm.mask.tau" = [0.5, "x"]',
            [],
            ["algorithm.mask.tau must be", "got 'x'"],
        ),
        (
            '"algorithm.mask.tau" = [0.5]',
            ["algorithm.mask.tau=0.4"],
            ["algorithm.mask.tau is swept", "set to 0.4 here: it can be one of them"],
        ),
        (
            '"algorithm.mask.tau" = [0.5, 0.5]',
            [],
            ["[sweep] gives two runs one folder, my runs/digits-", "algorithm.mask.tau=0.5 and algorithm.mask.tau=0.5"],
        ),
        (
            '"train.rounds" = [5, 10]',
            [],
            ["[sweep] gives two runs one folder", "train.rounds=10 and train.rounds=5 do not change the result"],
        ),
        (
            '"algorithm.mask" = ["none"]\n"algorithm.mask.tau" = [0.5]',
            [],
            ["algorithm.mask.tau has no meaning with algorithm.mask = 'none'"],
        ),
        (
            f'"train.lr" = {list(range(1, 102))}\n"algorithm.server.lr" = {list(range(1, 101))}',
            [],
            ["at most 10,000 runs, and this grid has 10,100"],
        ),
        (
            f'"train.lr" = {list(range(1, 101))}\n"algorithm.server.lr" = {list(range(1, 52))}',
            [],
            ["at most 10,000 runs, and this grid has 10,200"],
        ),
    ],
)
def test_bad_grids_are_one_sentence(tmp_path: Path, table: str, overrides: list[str], told: list[str]) -> None:
    file = written(tmp_path, f"[sweep]\n{table}\n")
    with sentence(*told):
        read(file, overrides)


def test_a_sweep_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text("sweep = 3\n" + BASE)
    with sentence("sweep must be a section, got 3"):
        read(tmp_path / "grid.toml")


def test_accord_run_says_what_a_sweep_is_for() -> None:
    with sentence("[sweep] makes this file a grid of runs: train it with `accord sweep`"):
        parse(SWEEP)


@pytest.mark.parametrize(("file", "count", "rounds"), [("sweep.toml", 20, 300), ("personal.toml", 24, 40)])
def test_the_examples_are_valid(file: str, count: int, rounds: int) -> None:
    runs = read(Path(__file__).parents[2] / "experiments" / file)
    assert len(runs) == count and {run.rounds for run in runs} == {rounds}


# ------------------------------------------------------------------------------------------------- the groups


def groups_of(folder: Path, table: str, *overrides: str) -> list[dict[str, Any]]:
    return preview(read(written(folder, f"[sweep]\n{table}\n"), overrides))["groups"]


def test_seeds_rates_masks_algorithms_and_epochs_share_one_batch(tmp_path: Path) -> None:
    table = (
        '"algorithm.name" = ["fedavg", "scaffold", "fedprox", "fedyogi"]\n"train.lr" = [0.1, 0.2]\n"train.epochs" ='
        " [1, 2]"
    )
    (group,) = groups_of(tmp_path, table, "run.seeds=0,1,2")
    assert (group["runs"], group["at_once"], group["lanes"], group["apart"]) == (48, 48, 144, None)
    assert group["about"] == "48 runs in lockstep, 144 lanes"


@pytest.mark.parametrize(
    ("table", "runs"),
    [
        ('"train.batch" = [8, 16, "all"]', [2, 2, 2]),
        ('"model.name" = ["logistic", "mlp"]', [2, 2]),
        ('"data.shift" = ["none", "coloured"]', [2, 1, 1]),  # every seed deals other pictures to other colours
        ('"data.augment" = ["none", "crop"]', [2, 2]),
        ('"data.clients" = [5, 8]', [4]),
        ('"algorithm.name" = ["fedavg", "fedsgd"]', [2, 2]),
    ],
)
def test_whatever_changes_shapes_makes_groups_of_its_own(tmp_path: Path, table: str, runs: list[int]) -> None:
    assert [group["runs"] for group in groups_of(tmp_path, table)] == runs


def test_runs_that_share_other_parameters_make_groups_of_their_own_and_second_models_go_one_by_one(
    tmp_path: Path,
) -> None:
    kinds = '[{ name = "fedavg" }, { name = "fedavg", personal = ["last"] }, { name = "ditto" }]'
    shared, kept, second = groups_of(tmp_path, f"algorithm = {kinds}", "model.name=mlp")
    assert (shared["about"], kept["about"]) == ("2 runs in lockstep, 6 lanes",) * 2
    assert second["about"] == "2 runs, one by one: its clients train a second model when a round's reports are in"


def test_an_engine_that_trains_runs_by_themselves_is_told(tmp_path: Path) -> None:
    (group,) = groups_of(tmp_path, '"algorithm.server.lr" = [0.1, 0.2]', "run.engine=sequential")
    assert group["about"] == "4 runs, one by one: run.engine = 'sequential' trains a run by itself"


def test_a_model_that_cannot_be_batched_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(job: Any) -> None:
        raise CannotBatch("the model cannot be run for many clients at once at layer 0 (Flatten): no")

    monkeypatch.setattr(groups, "Vectorised", refuse)
    (runs,) = grouped(read(written(tmp_path)), Jobs())
    group, engine = packed(runs, Jobs())
    assert engine is None and str(group).startswith(
        "2 runs, one by one: the model cannot be run for many clients at once at layer 0"
    )


def test_jobs_of_one_deal_share_it_and_jobs_of_others_share_the_samples(tmp_path: Path) -> None:
    jobs = Jobs()
    first, second, again = (
        jobs.job(run) for run in read(written(tmp_path, '[sweep]\n"algorithm.server.lr" = [0.1, 0.2]'))[:3]
    )
    assert again.fed is first.fed and second.fed is not first.fed
    assert second.fed.x is first.fed.x and second.fed.y is first.fed.y


# --------------------------------------------------------------------------------------------- real processes


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "grid.toml").write_text(SWEEP)
    (tmp_path / "base.toml").write_text(BASE)
    return tmp_path


def files(run: Path) -> dict[str, bytes]:
    """What a run leaves, but for clocks, for the file it came from, and for what vouches for these."""
    aside = ("timing.jsonl", "environment.json", "experiment.toml", "experiment.json", "lock")
    found = {
        str(f.relative_to(run)): f.read_bytes() for f in sorted(run.rglob("*")) if f.is_file() and f.name not in aside
    }
    for name in {"state.json", "done"} & found.keys():
        form = json.loads(found[name])
        found[name] = repr({key: of for key, of in form.items() if key not in ("files", "checksum")}).encode()
    return found


def all_files(folder: Path) -> dict[str, dict[str, bytes]]:
    """By run; the page that `accord run` writes beside them is no run."""
    return {run.name: files(run) for run in sorted(folder.iterdir()) if run.is_dir()}


@pytest.mark.slow
def test_every_run_has_the_folder_and_the_files_that_accord_run_gives_it(env: dict[str, str], here: Path) -> None:
    done = accord(env, here, "sweep", "grid.toml")
    for lr in ("0.01", "0.1"):
        for tau in ("0.2", "0.6"):
            accord(
                env,
                here,
                "run",
                "base.toml",
                f"algorithm.server.lr={lr}",
                f"algorithm.mask.tau={tau}",
                "run.folder=alone",
            )
    assert all_files(here / "my runs") == all_files(here / "alone")
    header, *rows = done.stdout.splitlines()
    assert header.startswith("accuracy (%), by held-out")
    assert [re.split(r"\s{2,}", row)[0] for row in rows[:4]] == [
        "fedadam + gma(0.2), algorithm.server.lr=0.01",
        "fedadam + gma(0.6), algorithm.server.lr=0.01",
        "fedadam + gma(0.2), algorithm.server.lr=0.1",
        "fedadam + gma(0.6), algorithm.server.lr=0.1",
    ]
    assert all("0,1" in row for row in rows[:4])
    assert len(rows) == 4 + 8 and (here / rows[-1] / "done").exists()
    assert "8 runs in lockstep, 24 lanes: 48 rounds" in done.stderr
    assert (
        "fedadam + gma(0.6) · algorithm.server.lr=0.1 · algorithm.mask.tau=0.6 · seed 1 · done after round 6"
        in done.stderr
    )
    assert "8/8 runs done · 48/48 rounds" in done.stderr
    assert accord(env, here, "show", *rows[4:]).stdout == done.stdout


def test_what_is_done_is_not_done_again_and_what_is_new_is(env: dict[str, str], here: Path) -> None:
    written(here, '[sweep]\n"algorithm.server.lr" = [0.1]\n')
    accord(env, here, "sweep", "grid.toml", "train.rounds=2")
    before = {run.name: (run / "metrics.jsonl").stat().st_mtime_ns for run in (here / "my runs").iterdir()}
    written(here, '[sweep]\n"algorithm.server.lr" = [0.1, 0.2]\n')
    told = accord(env, here, "sweep", "grid.toml", "train.rounds=2").stderr
    assert "2 of 4 runs are done already." in told and "2 runs in lockstep, 6 lanes: 4 rounds" in told
    assert {
        run.name: (run / "metrics.jsonl").stat().st_mtime_ns
        for run in (here / "my runs").iterdir()
        if run.name in before
    } == before
    again = accord(env, here, "sweep", "grid.toml", "train.rounds=2", "--json")
    assert "4 of 4 runs are done already." in again.stderr
    assert [(run["status"], run["settings"]["algorithm"]["server"]["lr"]) for run in json.loads(again.stdout)] == [
        ("done", lr) for lr in (0.1, 0.1, 0.2, 0.2)
    ]
    longer = accord(env, here, "sweep", "grid.toml", "train.rounds=3").stderr
    assert "4 runs in lockstep, 12 lanes: 12 rounds, going on after round 8" in longer
    accord(env, here, "sweep", "grid.toml", "train.rounds=3", "run.folder=straight")
    assert all_files(here / "my runs") == all_files(here / "straight")
    fresh = accord(env, here, "sweep", "grid.toml", "train.rounds=3", "--fresh").stderr
    assert "4 runs in lockstep, 12 lanes: 12 rounds\n" in fresh
    assert all_files(here / "my runs") == all_files(here / "straight")


def test_a_dry_run_tells_groups_lanes_and_folders_and_trains_nothing(env: dict[str, str], here: Path) -> None:
    written(here, '[sweep]\n"train.batch" = [8, 16]\n')
    text = accord(env, here, "sweep", "grid.toml", "--dry-run").stdout
    assert text.startswith("4 runs in 2 groups\n\ngroup 1: 2 runs in lockstep, 6 lanes\n")
    told = json.loads(accord(env, here, "sweep", "grid.toml", "--dry-run", "--json").stdout)
    assert (told["runs"], [group["lanes"] for group in told["groups"]]) == (4, [6, 6])
    expected = [str(parse(BASE, [f"train.batch={batch}"]).folder(seed)) for batch in (8, 16) for seed in (0, 1)]
    assert [run["folder"] for group in told["groups"] for run in group["folders"]] == expected
    assert all(folder in text for folder in expected)
    assert not (here / "my runs").exists()


def test_groups_go_after_one_another_and_runs_that_cannot_be_batched_one_by_one(
    env: dict[str, str], here: Path
) -> None:
    written(here, '[sweep]\n"run.engine" = ["sequential"]\n"train.batch" = [8, 16]\n')
    told = accord(env, here, "sweep", "grid.toml", "run.seeds=0", "train.rounds=2").stderr
    assert "2 runs, one by one: run.engine = 'sequential' trains a run by itself." in told
    for title in (
        "1/2 · fedadam + gma(0.4) · train.batch=8 · seed 0",
        "2/2 · fedadam + gma(0.4) · train.batch=16 · seed 0",
    ):
        assert f"{title}: 2 rounds" in told
    written(here, '[sweep]\n"train.batch" = [8, 16]\n')
    told = accord(env, here, "sweep", "grid.toml", "train.rounds=2").stderr
    assert "2 of 4 runs are done already." in told and told.count("1 run in lockstep, 3 lanes: 2 rounds") == 2
    assert len(list((here / "my runs").glob("*/done"))) == 4


def test_runs_one_by_one_may_differ_in_keys_that_some_have_not(env: dict[str, str], here: Path) -> None:
    written(here, '[sweep]\nalgorithm = [{ name = "fedadam", "server.lr" = 0.1 }, { name = "fedavg" }]\n')
    told = accord(env, here, "sweep", "grid.toml", "run.seeds=0", "train.rounds=1", "run.engine=sequential").stderr
    assert "1/2 · fedadam" in told and "algorithm.server.lr=0.1 · seed 0: 1 round" in told and "2/2 · fedavg" in told


def rounds_in(folder: Path) -> list[int]:
    return [file.read_bytes().count(b"\n") for file in sorted(folder.glob("*/metrics.jsonl"))]


LONG = ["train.rounds=60", "train.epochs=3", "run.checkpoint_every=7", "algorithm.name=scaffold", "algorithm.mask=gma"]


@pytest.mark.slow
def test_a_sweep_killed_in_the_middle_goes_on_to_the_same_files(
    env: dict[str, str], here: Path, start: Callable[..., Started]
) -> None:
    written(here, '[sweep]\n"train.lr" = [0.01, 0.05]\n')
    accord(env, here, "sweep", "grid.toml", *LONG, "run.folder=straight")
    for reached in (3, 20):  # before the first checkpoint, and between two
        process = start("sweep", "grid.toml", *LONG)
        process.wait_for(lambda reached=reached: sum(rounds_in(here / "my runs")) >= 4 * reached)
        process.process.send_signal(signal.SIGKILL)
        assert process.process.wait() == -signal.SIGKILL
    told = accord(env, here, "sweep", "grid.toml", *LONG).stderr
    assert re.search(r"4 runs in lockstep, 12 lanes: 240 rounds, going on after round \d+", told)
    expected, found = all_files(here / "straight"), all_files(here / "my runs")
    assert sorted(found) == sorted(expected)
    for run, content in expected.items():
        assert sorted(found[run]) == sorted(content)
        for name in content:
            assert found[run][name] == content[name], f"{run}/{name}"


@pytest.mark.slow
def test_ctrl_c_stops_all_runs_after_the_round_and_says_how_to_go_on(
    env: dict[str, str], here: Path, start: Callable[..., Started]
) -> None:
    written(here, '[sweep]\n"train.lr" = [0.01, 0.05]\n')
    words = ["sweep", "grid.toml", "train.rounds=400", "train.epochs=4", "run.checkpoint_every=1000"]
    process = start(*words)
    process.wait_for(lambda: sum(rounds_in(here / "my runs")) >= 8)
    process.process.send_signal(signal.SIGINT)
    assert process.process.wait(timeout=120) == 130
    told = process.err.read_text()
    assert "Traceback" not in told and "Finishing this round." in told
    (reached,) = set(rounds_in(here / "my runs"))
    assert 2 <= reached < 400
    for run in (here / "my runs").iterdir():
        assert json.loads((run / "state.json").read_text())["round"] == reached
    assert told.count(f"4 runs stopped after round {reached}: interrupted") == 1
    assert f"unfinished, round {reached}" in process.out.read_text()
    hint = re.search(r"To go on: accord (.*)", told)
    assert hint and shlex.split(hint[1]) == words
    again = accord(env, here, *words[:2], f"train.rounds={reached + 1}", *words[3:]).stderr
    assert f"{4 * (reached + 1)} rounds, going on after round {4 * reached}" in again


def test_a_folder_in_use_is_told_before_anything_is_trained(
    env: dict[str, str], here: Path, start: Callable[..., Started]
) -> None:
    process = start(
        "run", "base.toml", "algorithm.server.lr=0.1", "algorithm.mask.tau=0.2", "train.epochs=1000000", "run.seeds=1"
    )
    busy = parse(BASE, ["algorithm.server.lr=0.1", "algorithm.mask.tau=0.2", "train.epochs=1000000"]).folder(1)
    process.wait_for((here / busy / "metrics.jsonl").exists)
    done = accord(env, here, "sweep", "grid.toml", "train.epochs=1000000", code=2)
    assert f"{busy} is in use by another process" in done.stderr and done.stderr.count("\n") == 1
    assert [run.name for run in (here / "my runs").iterdir()] == [busy.name]


def test_a_terminal_gets_one_bar_for_the_group(env: dict[str, str], here: Path) -> None:
    near, far = pty.openpty()
    drawn = {**env, "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(
        command("sweep", "grid.toml", "train.rounds=3"), cwd=here, env=drawn, stdin=far, stdout=far, stderr=far
    )
    os.close(far)
    raw = b""
    try:
        while chunk := os.read(near, 1 << 16):
            raw += chunk
    except OSError:  # the other side is closed
        pass
    assert process.wait(timeout=60) == 0
    os.close(near)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", raw.decode())
    assert "8 runs in lockstep, 24 lanes" in plain and "24/24" in plain and "8/8 runs done" in plain
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= 100


def test_a_selection_rule_is_rehearsed_and_nothing_is_written(env: dict[str, str], here: Path) -> None:
    done = accord(env, here, "sweep", "grid.toml", "--select", "best", code=2)
    assert "there is no selection rule 'best'" in done.stderr and not (here / "my runs").exists()


def test_runs_that_share_a_folder_are_trained_once_in_lockstep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of an analysis may coincide; one may ask for more rounds, which changes no folder's name."""
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, '[sweep]\n"algorithm.server.lr" = [0.5, 1.0]')
    short, long = (read(file, ["run.engine=vectorised", f"train.rounds={count}"]) for count in (1, 2))
    with watcher_for(Console(file=io.StringIO())) as watcher:
        assert sweep([*short, *long, *short], watcher, Interrupt(), lambda text: None) == 0
    assert all(run.done for run in [*short, *long])
    assert len(list(tmp_path.glob("my runs/*-s*"))) == len(short)
