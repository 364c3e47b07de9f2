"""Whatever a setting or a file holds, a command succeeds, or says what is wrong and ends with 2: no traceback, no wait
without end, no memory without bound. 3,000 cases in all, the same ones every time; each has five minutes and 6 GB."""

import resource
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accord.studies.files import toml
from command import run_command
from conftest import without_checksums
from made_tables import write_sites
from odd_input import damaged_bytes, damaged_json, settings_drawn

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
_SECONDS, _BYTES = 300, 6 << 30
# longer than this a run may take, and should: it is not trained
_LONG = ("train.rounds", "train.epochs", "data.clients", "train.steps", "model.hidden", "model.width", "data.size")

BASES = {
    "table": '[data]\nname = "table"\nsource = "rows.csv"\nclient = "site"\nlabel = "ill"\n',
    "digits": '[data]\nname = "digits"\nclients = 4\nshare = 0.1\n',
}
TRAIN = '[model]\nname = "logistic"\n[train]\nrounds = 2\nsteps = 2\nevaluate_every = 1\n[run]\nengine = "sequential"\n'
STUDY = """
title = "a tiny study"
compare = "rule"
against = "mean"
[settings]
data = { name = "digits", clients = 4 }
model = { name = "logistic" }
train = { rounds = 1 }
[axes.rule]
mean = { "algorithm.name" = "fedavg" }
gma = { "algorithm.mask" = { name = "gma", tau = 0.4 } }
"""


def cases(count: int) -> Callable[..., object]:
    """So many cases, which pytest's fixtures of a module may serve; always the same."""
    checks = list(HealthCheck)
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=checks, database=None)


class Endless(BaseException):
    """Nothing that a command would take for an error of its own."""


@contextmanager
def bounded() -> Iterator[None]:
    """Within it time and memory are short."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Endless

    before, limits = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _BYTES, limits[1]))
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


ANSWERS: Counter[str] = Counter()  # by how a command ended


def answered(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command says, once it is seen to be a success or a sentence."""
    with bounded():
        done = run_command(here, *words)
    assert done.returncode in (0, 2), (words, done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    ANSWERS[f"{words[0]}: {'a sentence' if done.returncode else 'success'}"] += 1
    if done.returncode:
        assert any(line.startswith("accord: ") and line[8:].strip() for line in done.stderr.splitlines()), done.stderr
    return done


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a table, arrays, a study, and the run folders of an experiment: one of today, one of an earlier
    version."""
    folder = tmp_path_factory.mktemp("odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCORD_CACHE", str(folder / "cache"))
        write_sites(folder / "rows.csv")
        draw = np.random.default_rng(0)
        arrays = {"x": draw.normal(size=(40, 3)), "y": np.arange(40) % 2, "client": np.arange(40) % 4}
        np.savez(folder / "rows.npz", **arrays)
        (folder / "arrays.toml").write_text(
            '[data]\nname = "arrays"\nsource = "rows.npz"\n[model]\nname = "logistic"\n'
        )
        (folder / "table.toml").write_text(BASES["table"] + TRAIN)
        (folder / "sweep.toml").write_text(BASES["table"] + TRAIN + '[sweep]\n"train.lr" = [0.1, 0.2]\n')
        (folder / "tiny.toml").write_text(STUDY)
        assert answered(folder, "run", "table.toml", "algorithm.mask=gma").returncode == 0
        (run,) = folder.glob("runs/*-s0")
        (folder / "made").mkdir()
        shutil.copytree(run, folder / "made" / "new")
        shutil.copytree(run, folder / "made" / "old")
        without_checksums(folder / "made" / "old")
        assert answered(folder, "run", "table.toml", "train.rounds=1", "run.folder=stopped").returncode == 0
        done = answered(folder, "reproduce", "tiny.toml", "--folder", "results", "--seeds", "0,1")
        assert done.returncode == 0, done.stderr
        plan = answered(folder, "reproduce", "tiny.toml", "--folder", "results", "--seeds", "0,1,2", "--plan", "--json")
        (folder / "results/tiny.plan.json").write_text(plan.stdout)
        yield folder
        print(dict(sorted(ANSWERS.items())))


# --------------------------------------------------------------------------------------------------- settings


@cases(1500)
@given(st.sampled_from(sorted(BASES)), settings_drawn(), st.booleans())
def test_any_setting(here: Path, base: str, drawn: list[tuple[str, object]], in_file: bool) -> None:
    """As an override, or in the file itself; trained where that does not take long."""
    shutil.rmtree(here / "runs", ignore_errors=True)
    given = [f"{key}={toml(value)}" for key, value in drawn]
    (here / "my.toml").write_text(BASES[base] + TRAIN, encoding="utf-8")
    if in_file:
        tables = dict(drawn)
        text = "".join(f"{key} = {toml(value)}\n" for key, value in tables.items())
        (here / "my.toml").write_text(text + BASES[base] + TRAIN, encoding="utf-8")
        given = []
    words = ["my.toml", *(text.replace("\0", "?") for text in given)]
    short = all(not isinstance(value, int) or value < 100 for key, value in drawn if key in _LONG)
    if answered(here, "run", *words, "--dry-run").returncode == 0 and short:
        answered(here, "run", *words)


# ------------------------------------------------------------------------------------------------------ files

_OF_A_RUN = {
    "experiment.json": damaged_json,
    "preparation.json": damaged_json,
    "environment.json": damaged_json,
    "state.json": damaged_json,
    "done": damaged_json,
    "clients.json": damaged_json,
    "metrics.jsonl": damaged_json,
    "timing.jsonl": damaged_json,
    "model.safetensors": damaged_bytes,
}


@cases(800)
@given(st.data(), st.sampled_from(["new", "old"]), st.sampled_from(sorted(_OF_A_RUN)), st.integers(0, 6))
def test_any_file_of_a_run(here: Path, data: st.DataObject, age: str, name: str, command: int) -> None:
    place = here / "damaged"
    shutil.rmtree(place, ignore_errors=True)
    (original,) = [path for path in (here / "made").iterdir() if path.name == age]
    run = place / "table-fedavg-gma-0123456789-s0"
    shutil.copytree(original, run)
    content = (run / name).read_bytes()
    damage = data.draw(st.sampled_from([_OF_A_RUN[name], damaged_bytes]))
    (run / name).write_bytes(data.draw(damage(content)))
    commands = [
        ("show", str(place)),
        ("report", str(place), "-o", str(here / "page.html")),
        ("predict", str(run), "rows.csv"),
        ("analyse", "layers", str(run), "-o", str(here / "layers")),
        ("membership", str(run), "--steps", "5"),
        ("compare", str(place), str(here / "made" / "new")),
        ("predict", str(run), "rows.csv", "--which", "held-out"),
    ]
    answered(here, *commands[command])


@cases(150)
@given(st.data(), st.sampled_from([name for name in sorted(_OF_A_RUN) if name != "model.safetensors"]))
def test_any_file_of_a_run_that_goes_on(here: Path, data: st.DataObject, name: str) -> None:
    shutil.rmtree(here / "runs", ignore_errors=True)
    shutil.copytree(here / "stopped", here / "runs")
    (run,) = here.glob("runs/*-s0")
    damage = data.draw(st.sampled_from([_OF_A_RUN[name], damaged_bytes]))
    (run / name).write_bytes(data.draw(damage((run / name).read_bytes())))
    answered(here, "run", "table.toml", "--resume")


@cases(250)
@given(st.data(), st.sampled_from(["rows.csv", "rows.npz"]), st.booleans())
def test_any_table(here: Path, data: st.DataObject, name: str, read_only: bool) -> None:
    original = (here / name).read_bytes()
    try:
        (here / name).write_bytes(data.draw(damaged_bytes(original)))
        file = "table.toml" if name == "rows.csv" else "arrays.toml"
        shutil.rmtree(here / "runs", ignore_errors=True)
        if read_only and name == "rows.csv":
            answered(here, "predict", str(here / "made" / "new"), name)
        else:
            answered(here, "run", file, "train.rounds=1", "run.engine=sequential")
    finally:
        (here / name).write_bytes(original)


STUDIED = ["tiny.toml", "table.toml", "sweep.toml", "results/tiny.json", "results/tiny.plan.json"]


@cases(300)
@given(st.data(), st.sampled_from(STUDIED))
def test_any_experiment_study_or_result(here: Path, data: st.DataObject, name: str) -> None:
    original = (here / name).read_bytes()
    damage = data.draw(st.sampled_from([damaged_json, damaged_bytes])) if name.endswith("json") else damaged_bytes
    commands = {
        "tiny.toml": [("reproduce", "tiny.toml", "--plan", "--folder", "planned")],
        "table.toml": [("run", "table.toml", "--dry-run")],
        "sweep.toml": [("sweep", "sweep.toml", "--dry-run")],
        "results/tiny.plan.json": [("verdicts", "results", "-o", "verdicts.md")],
        "results/tiny.json": [("verdicts", "results", "-o", "verdicts.md"), ("report", "results", "-o", "page.html")],
    }
    try:
        (here / name).write_bytes(data.draw(damage(original)))
        answered(here, *data.draw(st.sampled_from(commands[name])))
    finally:
        (here / name).write_bytes(original)
