"""The command `accord`: what it prints, where it writes, how it stops and goes on."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accord.experiments.experiment import parse
from accord.rules.masks import gma
from command import SOURCE, Started, accord, command, environment, refused

EXPERIMENT = """\
[data]
name = "digits"
clients = 8
split = "labels"
classes = 3
unseen = 2
[model]
name = "logistic"
[train]
rounds = 4
sample = 3
evaluate_every = 2
[algorithm]
name = "fedadam"
mask = "gma"
[run]
folder = "my runs"
"""
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with no way to any source of data: no package client, and a proxy at which nobody answers."""
    no_client = str(tmp_path_factory.mktemp("no-package-client"))
    return environment(tmp_path_factory.mktemp("cache"), PATH=no_client, https_proxy="http://127.0.0.1:9")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "my.toml").write_text(EXPERIMENT)
    return tmp_path


def only_run(folder: Path) -> Path:
    (run,) = folder.glob("*-s0")
    return run


def rounds_in(run: Path) -> list[int]:
    return [json.loads(line)["round"] for line in (run / "metrics.jsonl").read_text().splitlines()]


# ------------------------------------------------------------------------------------------------------- help


def test_help_does_not_wait_for_torch(env: dict[str, str], here: Path) -> None:
    asked = [["--help"], ["run", "--help"], ["sweep", "--help"], ["data", "get", "-h"], ["--version"], []]
    script = f"""
import sys
from accord.cli.main import main
for words in {asked!r}:
    sys.argv = ["accord", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code in (0, None), end.code
    assert not {{"torch", "numpy", "sklearn"}} & set(sys.modules), words
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=here, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accord") >= len(asked)


def test_help_teaches_with_examples(env: dict[str, str], here: Path) -> None:
    shown = accord(env, here, "run", "--help").stdout
    assert "accord run [OPTIONS]" in shown and "FILE" in shown and "KEY=VALUE" in shown
    assert "accord run my.toml algorithm.mask.tau=0.6 run.seeds=0,1,2,3" in shown


def test_settings_explains_one_section_or_all(env: dict[str, str], here: Path) -> None:
    some = accord(env, here, "settings", "model").stdout.splitlines()
    assert some[0].split()[:2] == ["key", "default"]
    assert all(line.startswith("model.") for line in some[1:]) and len(some) == 8
    assert "did you mean 'model'?" in refused(env, here, "settings", "modle")


# ----------------------------------------------------------------------------------------------- run and show


@pytest.fixture(scope="module")
def trained(
    env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Two seeds of the experiment, trained once for the tests that only look."""
    here = tmp_path_factory.mktemp("trained")
    (here / "my.toml").write_text(EXPERIMENT)
    done = subprocess.run(
        command("run", "my.toml", "run.seeds=0,1"), cwd=here, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return here, done


def test_a_run_prints_one_plain_table_and_where_it_went(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    here, done = trained
    header, row, *folders = done.stdout.splitlines()
    assert ESCAPE not in done.stdout + done.stderr
    assert header.startswith("accuracy (%), by held-out")
    assert row.startswith("fedadam + gma(0.4)") and " 0,1 " in row
    for title in ("train", "unseen", "held-out - unseen"):  # columns end where their titles end
        assert row[header.index(f" {title}") + len(title)].isdigit()
    experiment = parse(EXPERIMENT)
    assert folders == [str(experiment.folder(0)), str(experiment.folder(1))]
    assert all((here / folder / "done").exists() for folder in folders)
    assert "fedadam + gma(0.4) · seed 1 · round 4/4" in done.stderr


def test_show_reads_the_same_table_back(
    env: dict[str, str], trained: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    here, done = trained
    assert accord(env, here, "show", "my runs").stdout == done.stdout


def test_show_tells_one_run_in_detail(
    env: dict[str, str], trained: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    here, done = trained
    told = accord(env, here, "show", done.stdout.splitlines()[-1], "--select", "window(1,2)").stdout
    assert told.startswith("fedadam + gma(0.4) · seed 1 · round 4 · done\n")
    for part in (
        "participation gap (held-out - unseen)",
        "worst",
        "by window(1,2) (round 2): train",
        "by oracle of evaluated rounds (round ",
    ):
        assert part in told


def test_json_is_for_machines(env: dict[str, str], trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    here, _ = trained
    shown = json.loads(accord(env, here, "show", "my runs", "--json", "--select", "last10").stdout)
    again = accord(env, here, "run", "my.toml", "run.seeds=0,1", "--json", "--select", "last10")
    assert json.loads(again.stdout) == shown
    assert "4 rounds, done already" in again.stderr and "engine " not in again.stderr
    first = shown[0]
    assert (first["status"], first["rounds"], first["settings"]["seed"]) == ("done", 4, 0)
    assert first["selected"]["rule"] == "last10" and first["selected"]["rounds"] == [2, 4]
    assert first["evaluation"]["splits"]["unseen"]["clients"] == 2


def test_a_terminal_gets_live_bars_and_a_drawn_table_that_cuts_nothing(
    env: dict[str, str], trained: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    here, done = trained
    near, far = pty.openpty()
    drawn = {**env, "TERM": "xterm-256color", "COLUMNS": "80"}
    words = ("run", "my.toml", "run.seeds=0,1", "--fresh")
    process = subprocess.Popen(command(*words), cwd=here, env=drawn, stdin=far, stdout=far, stderr=far)
    os.close(far)
    raw = b""
    while chunk := _read(near):
        raw += chunk
    text = raw.decode()
    assert process.wait(timeout=60) == 0
    os.close(near)
    assert ESCAPE in text and "─" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= 80
    assert "fedadam + gma(0.4) · seed 1" in plain and "4/4" in plain
    table = plain[plain.index("─" * 40) :].split()
    assert not [word for word in done.stdout.splitlines()[1].split() if word not in table]


def test_a_shell_completes_commands(env: dict[str, str], here: Path) -> None:
    """The protocol that `accord --install-completion` has bash speak."""
    asks = {**env, "_ACCORD_COMPLETE": "complete_bash", "COMP_WORDS": "accord re", "COMP_CWORD": "1"}
    assert accord(asks, here).stdout.split() == ["reproduce", "report"]
    assert "--install-completion" in accord({**env, "TERM": "dumb"}, here, "--help").stdout


def test_readme_and_help_say_the_same_of_how_long_the_demonstration_takes(env: dict[str, str], here: Path) -> None:
    told = " ".join(accord(env, here, "demo", "--help").stdout.split())
    places = [told, (SOURCE.parent / "README.md").read_text()]
    first, second = (re.findall(r"trains for about ([\w ]+) on two cores", text, re.IGNORECASE) for text in places)
    assert len(first) == 1 and first == second


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side is closed
        return b""


def test_a_dry_run_prints_a_file_and_what_it_costs_and_trains_nothing(env: dict[str, str], here: Path) -> None:
    text = accord(env, here, "run", "my.toml", "algorithm.mask.tau=0.6", "--dry-run").stdout
    again = parse(text)
    assert (
        again.algorithm.mask == gma(0.6)
        and again.resolved() == parse(EXPERIMENT, ["algorithm.mask.tau=0.6"]).resolved()
    )
    cost = json.loads(accord(env, here, "run", "my.toml", "algorithm.mask.tau=0.6", "--plan", "--json").stdout)
    assert cost["folders"] == [str(again.folder(0))]
    assert cost["cost"]["parameters"] == 7850
    assert cost["cost"]["bytes_up_a_round"] == 3 * 4 * 7850
    assert "# parameters: 7,850" in text and f"# folder: {again.folder(0)}" in text
    assert not (here / "my runs").exists()


# --------------------------------------------------------------------------------------------- stop and go on


def test_a_larger_number_of_rounds_extends_a_run_to_the_same_files(env: dict[str, str], here: Path) -> None:
    accord(env, here, "run", "my.toml", "train.rounds=2")
    run = only_run(here / "my runs")
    assert rounds_in(run) == [1, 2]
    assert "is done after 2 rounds: add --resume to extend it to 4, or --fresh to start over" in refused(
        env, here, "run", "my.toml"
    )
    told = accord(env, here, "run", "my.toml", "--resume").stderr
    assert "4 rounds, going on after round 2" in told
    straight = here / "straight"
    accord(env, here, "run", "my.toml", f"run.folder={straight}")
    for file in ("metrics.jsonl", "model.safetensors", "best.safetensors", "clients.json", "done"):
        assert (run / file).read_bytes() == (only_run(straight) / file).read_bytes(), file


def test_fresh_starts_over_even_from_a_damaged_run(env: dict[str, str], here: Path) -> None:
    accord(env, here, "run", "my.toml", "train.rounds=2")
    run = only_run(here / "my runs")
    (run / "state.json").write_text("{")
    (run / "left over").touch()
    assert "state.json is damaged" in refused(env, here, "run", "my.toml", "--resume")
    accord(env, here, "run", "my.toml", "train.rounds=2", "--fresh")
    assert rounds_in(run) == [1, 2] and not (run / "left over").exists()


def test_ctrl_c_finishes_the_round_and_says_how_to_go_on(
    env: dict[str, str], here: Path, start: Callable[..., Started]
) -> None:
    words = [
        "run",
        "my.toml",
        "train.rounds=150",
        "train.epochs=5",
        "run.checkpoint_every=1000",
        "run.folder=some where",
    ]
    process = start(*words)
    process.says("round 2/150")
    process.interrupt()
    code, stdout, stderr = process.ended()
    assert code == 130
    run = only_run(here / "some where")
    reached = rounds_in(run)[-1]
    assert 2 <= reached < 150
    assert json.loads((run / "state.json").read_text())["round"] == reached, "the round's write was finished"
    assert f"stopped after round {reached}: interrupted" in stderr
    assert f"unfinished, round {reached}" in stdout
    hint = re.search(r"To go on: accord (.*)", stderr)
    assert hint
    again = shlex.split(hint[1])
    assert again == [*words, "--resume"]
    assert f"150 rounds, going on after round {reached}" in accord(env, here, *again).stderr
    assert rounds_in(run) == list(range(1, 151))


def test_a_long_round_is_locked_and_a_second_ctrl_c_stops_it_at_once(
    env: dict[str, str], here: Path, start: Callable[..., Started]
) -> None:
    words = ["run", "my.toml", "train.epochs=1000000"]
    process = start(*words)
    run = here / parse(EXPERIMENT, words[2:]).folder(0)
    process.wait_for((run / "metrics.jsonl").exists)  # it has begun, and watches for Ctrl-C
    assert "is in use by another process: wait for it, or choose another run.folder" in refused(
        env, here, *words, "--resume"
    )
    assert "is in use by another process" in refused(env, here, *words, "--fresh")
    process.interrupt()
    process.says("Finishing this round. Ctrl-C once more stops at once.")
    process.interrupt()
    code, _, stderr = process.ended()
    assert code == 130
    assert f"To go on: accord {shlex.join(words)} --resume" in stderr
    assert rounds_in(run) == []


def test_ctrl_c_in_the_last_round_of_a_seed_leaves_the_other_seeds_for_later(
    here: Path, start: Callable[..., Started]
) -> None:
    words = ["run", "my.toml", "run.seeds=0,1", "train.rounds=1", "train.epochs=400"]
    process = start(*words)
    run = here / parse(EXPERIMENT, words[2:]).folder(0)
    process.wait_for((run / "metrics.jsonl").exists)
    process.interrupt()
    code, stdout, stderr = process.ended()
    assert code == 130
    assert only_run(here / "my runs") == run and (run / "done").exists()
    assert "seed 0 · round 1 · done" in stdout
    assert f"To go on: accord {shlex.join(words)} --resume" in stderr


RARE = """\
[data]
name = "table"
source = "sites.csv"
client = "site"
label = "ill"
heldout = 0.3
[model]
name = "logistic"
[train]
rounds = 1
[run]
seeds = [0, 1, 2]
"""


def test_a_run_says_once_that_accuracy_tells_little_of_a_rare_class(env: dict[str, str], tmp_path: Path) -> None:
    rows = [f"{site},{'yes' if number % 20 == 0 else 'no'},{number}" for number in range(40) for site in "abc"]
    (tmp_path / "sites.csv").write_text("\n".join(["site,ill,x", *rows]))
    (tmp_path / "rare.toml").write_text(RARE)

    def told(*words: str) -> list[str]:
        return [line for line in accord(env, tmp_path, *words).stderr.splitlines() if "train.metrics" in line]

    (line,) = told("run", "rare.toml")
    assert "% of the held-out samples are of class no, and always guessing it has that accuracy" in line
    assert len(told("run", "rare.toml", "data.unseen=each")) == 1, "runs that leave out one client after another"
    (line,) = told("run", "rare.toml", "data.heldout=0")
    assert "95 % of the training samples are of class no" in line
    for metrics, said in (("auc,accuracy", False), ("accuracy,auc", True)):
        done = accord(env, tmp_path, "run", "rare.toml", f"train.metrics={metrics}")
        assert ("train.metrics=auc judges" in done.stderr) == said


def test_a_spent_budget_stops_a_run_that_can_go_on(env: dict[str, str], here: Path) -> None:
    done = accord(env, here, "run", "my.toml", "run.budget=0.000001")
    assert "stopped after round 1: its budget of 1e-06 s is spent" in done.stderr
    assert "To go on: accord run my.toml run.budget=0.000001 --resume" in done.stderr


def test_a_skipped_round_is_told_once_and_in_plain_words(env: dict[str, str], here: Path) -> None:
    told = accord(
        env, here, "run", "my.toml", "train.lr=1e18", "train.weight_decay=1e18", "train.rounds=1", "train.sample=5"
    ).stderr
    assert told.count("round 1 was skipped: 0 of the 1 reports it needs") == 1
    assert re.search(r"round 1: left out client-\d+ \(.+\), client-\d+ \(.+\), client-\d+ \(.+\) and 2 more", told)
    assert "Warning" not in told


def test_a_run_of_skipped_rounds_is_not_told_round_by_round(env: dict[str, str], here: Path) -> None:
    told = accord(env, here, "run", "my.toml", "train.lost=1", "train.rounds=12").stderr
    assert told.count(" was skipped: ") == 5
    assert told.count("further rounds like these are not reported here: metrics.jsonl has them") == 1


def test_lost_reports_that_were_asked_for_are_no_news(env: dict[str, str], here: Path) -> None:
    told = accord(env, here, "run", "my.toml", "train.lost=1", "train.rounds=1").stderr
    assert "round 1 was skipped: 0 of the 1 reports it needs" in told and "left out" not in told


# ---------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "none.toml"], "there is no file none.toml"),
        (["run", "my.toml", "algorithm.mask.tau=1.4"], "algorithm.mask.tau must be between 0 and 1, got 1.4"),
        (
            ["run", "my.toml", "data.name=mnist", "model.start=none"],
            "model.start must be a safetensors file that can be read, got 'none'",
        ),
        (["run", "my.toml", "data.name=mnist", "--select", "best"], "there is no selection rule 'best'"),
        (["run", "my.toml", "--resume", "--fresh"], "give one of them"),
        (["run", "my.toml", "run.folder=my.toml"], "my.toml/digits-fedadam-gma-"),
        (
            ["run", "my.toml", "data.classes=11"],
            "data.classes must be a whole number from 1 to the 10 classes of the data, got 11",
        ),
        (["run", "my.toml", "--nosuch"], "No such option: --nosuch: see accord run --help"),
        (["run"], "Missing argument 'FILE': see accord run --help"),
        (["train"], "No such command 'train': see accord --help"),
        (["data"], "Missing command: see accord data --help"),
        (["data", "get", "mnsit"], "there is no data set 'mnsit'"),
        (["show", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(
    env: dict[str, str], here: Path, words: list[str], told: str
) -> None:
    assert told in refused(env, here, *words)
    assert {file.name for file in here.rglob("*")} <= {"my.toml", "my runs"}, "nothing was written"


def test_data_that_cannot_be_had_is_one_sentence(env: dict[str, str], here: Path) -> None:
    told = refused(env, here, "run", "my.toml", "data.name=mnist")
    assert "mnist could not be had from anywhere" in told and "accord data get mnist --from FOLDER" in told


# --------------------------------------------------------------------------------------------------- the demo


def test_without_any_source_the_demo_goes_on_with_digits(env: dict[str, str], here: Path) -> None:
    done = accord(env, here, "demo", "train.rounds=1", "train.sample=2", "model.name=logistic")
    assert "mnist could not be had from anywhere" in done.stderr and "goes on with the 1,797 digits" in done.stderr
    labels = [line.split("  ")[0] for line in done.stdout.splitlines()[1:5]]
    assert labels == ["fedavg", "fedavg + gma(0.4)", "fedadam", "fedadam + gma(0.4)"]
    assert len(list((here / "runs" / "demo").glob("*-s0"))) == 4
    assert done.stderr.splitlines()[-1] == "A page of it: runs/demo/page.html"
    page = (here / "runs" / "demo" / "page.html").read_text()
    assert page.startswith("<!doctype html>") and all(json.dumps(label) in page for label in labels)
