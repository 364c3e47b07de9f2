"""Run folders read back: what is found, what is told of damaged ones, and the tables."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import accord
from accord.analyses import curves
from accord.console.tables import print_results
from accord.core.errors import AccordError
from accord.core.metrics import Metric
from accord.experiments.experiment import parse
from accord.experiments.selection_check import rehearse
from accord.report.data import _curves
from accord.runs.comparison import comparison, results
from accord.runs.reader import Recorded, find, load
from accord.runs.settings import RunSettings
from accord.runs.text import align, spread
from conftest import blobs, mlp, record_runs, without_checksums


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real run folders: two seeds with a mask, and one without."""
    folder = tmp_path_factory.mktemp("of_runs") / "runs"
    return record_runs(folder, masked=4, plain=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One finished run, for a test to damage."""
    done = accord.fit(mlp(), blobs(), rounds=3, sample=4, evaluate_every=1, folder=tmp_path)
    assert done.folder
    return done.folder


def printed(*folders: Path, rule: str | None = None) -> list[str]:
    console = Console(width=300, force_terminal=False)
    with console.capture() as captured:
        print_results([load(folder) for folder in folders], rule, console)
    return captured.get().splitlines()


# ---------------------------------------------------------------------------------------------------- finding


def test_figures_that_cannot_be_compared_stand_in_tables_of_their_own(runs: Path, tmp_path: Path) -> None:
    fed = blobs()
    numbers = accord.data.Federation(fed.x, fed.x[:, 0], fed.train, fed.heldout, fed.unseen, name="numbers")
    other = accord.fit(torch.nn.Linear(6, 1), numbers, rounds=1, sample=3, folder=tmp_path)
    assert other.folder
    lines = printed(*find([runs]), other.folder)
    assert [line for line in lines if line in ("blobs, accuracy", "numbers, loss")] == [
        "blobs, accuracy",
        "numbers, loss",
    ]


def test_find_takes_runs_and_folders_of_runs_and_names_each_once(runs: Path) -> None:
    all_of_them = find([runs])
    assert len(all_of_them) == 3 and all_of_them == sorted(all_of_them)
    assert find([all_of_them[1]]) == [all_of_them[1]]
    assert find([all_of_them[2], runs]) == [all_of_them[2], *all_of_them[:2]]
    assert find([runs.parent]) == all_of_them


def test_find_refuses_what_holds_no_runs(tmp_path: Path) -> None:
    with pytest.raises(AccordError, match="there is no folder .*nowhere"):
        find([tmp_path / "nowhere"])
    with pytest.raises(AccordError, match="holds no runs: a run folder has a file experiment.json"):
        find([tmp_path])


# ---------------------------------------------------------------------------------------------------- loading


def test_a_run_is_told_as_its_folder_has_it(run: Path) -> None:
    recorded = load(run)
    assert (recorded.status, recorded.rounds, recorded.label, recorded.seed) == ("done", 3, "fedavg", "0")
    assert [number for number, _ in recorded.history] == [1, 2, 3]


def test_an_unfinished_run_says_how_far_it_got(run: Path) -> None:
    (run / "done").unlink()
    assert load(run).status == "unfinished, round 3"
    without_checksums(run)
    (run / "metrics.jsonl").unlink()
    recorded = load(run)
    assert recorded.status == "unfinished, round 0" and recorded.history == []
    assert "unfinished, round 0" in printed(run)[1]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def cut_in_the_middle(file: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0] + lines[1][:30] + "\n" + lines[2])


def without_evaluation_values(file: Path) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**row, "evaluation": {"splits": {}}}) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("metrics.jsonl", cut, "damaged: metrics.jsonl ends with round 2, but the run was done after round 3"),
        ("metrics.jsonl", Path.unlink, "damaged: metrics.jsonl ends with round 0, but the run was done after round 3"),
        ("metrics.jsonl", cut_in_the_middle, "damaged: metrics.jsonl is damaged: "),
        ("metrics.jsonl", lambda file: file.write_bytes(b"\xff\xfe\n"), "damaged: "),
        ("metrics.jsonl", lambda file: file.write_text("[1]\n"), "damaged: its files do not hold what a run writes"),
        ("metrics.jsonl", without_evaluation_values, "damaged: its files do not hold what a run writes"),
        (
            "metrics.jsonl",
            lambda file: (file.unlink(), file.mkdir()),
            "damaged: metrics.jsonl cannot be read: Is a directory",
        ),
        ("experiment.json", cut, "damaged: experiment.json is damaged: "),
        ("experiment.json", lambda file: file.write_text("[]"), "damaged: experiment.json holds no settings"),
        ("experiment.json", lambda file: file.write_text("{}"), "damaged: label in experiment.json must be"),
        ("experiment.json", Path.unlink, "damaged: experiment.json is missing: "),
        ("done", lambda file: file.write_text(""), "damaged: done is damaged: "),
        ("done", lambda file: file.write_text("[]"), "damaged: done is damaged: it holds '[]' in place of a table"),
    ],
)
def test_a_damaged_run_is_told_as_such_beside_the_others(
    run: Path, runs: Path, name: str, damage: Callable[[Path], None], told: str
) -> None:
    """As folders of earlier versions, without checksums; for those that have them see test_damage.py."""
    without_checksums(run)
    damage(run / name)
    assert load(run).status.startswith(told)
    lines = printed(run, *find([runs]))
    assert told in lines[1] and lines[1].split()[0] in (run.name, "fedavg")
    assert len(lines) == 1 + 3 + 1 + 4, "the others are there as well, and who was unseen"
    assert [
        result["status"] == "done" for result in results([load(folder) for folder in [run, *find([runs])]], None)
    ] == [False] + [True] * 3


# ----------------------------------------------------------------------------------------------------- tables


def test_seeds_share_a_row_with_mean_and_deviation(runs: Path) -> None:
    header, *rows = comparison([load(folder) for folder in find([runs])], "last10")
    assert header == [
        "accuracy (%), by last10",
        "seeds",
        "rounds",
        "train",
        "held-out",
        "unseen",
        "train - held-out",
        "held-out - unseen",
    ]
    by_label = {row[0]: row for row in rows}
    assert set(by_label) == {"fedavg", "fedavg + gma(0.6)"}
    masked = by_label["fedavg + gma(0.6)"]
    alone = comparison([load(find([runs])[0])], "last10")
    assert (alone[0][1], alone[1][1]) == ("seed", "0")  # `seeds 0` would read as none
    assert masked[1:3] == ["0,1", "4"]
    chosen = [run.chosen("last10") for run in map(load, find([runs])) if run.rounds == 4]
    unseen = [100 * one.values["unseen"] for one in chosen if one]
    mean, half = sum(unseen) / 2, abs(unseen[0] - unseen[1]) / 2
    assert masked[5] == f"{mean:.2f} ± {half * 2**0.5:.2f}"
    assert by_label["fedavg"][1:3] == ["0", "2"] and "±" not in by_label["fedavg"][5]


def test_gaps_are_differences_of_the_figures_beside_them(runs: Path) -> None:
    row = next(
        row for row in comparison([load(folder) for folder in find([runs])], "held-out")[1:] if row[0] == "fedavg"
    )
    train, heldout, unseen, first, second = map(float, row[3:])
    assert first == pytest.approx(train - heldout, abs=0.011) and second == pytest.approx(heldout - unseen, abs=0.011)


def test_settings_that_differ_tell_equal_labels_apart(tmp_path: Path) -> None:
    def recorded(name: str, **train: float) -> Recorded:
        settings = {
            "seed": 0,
            "label": "fedavg",
            "data": {},
            "algorithm": {"name": "fedavg", "mask": "none"},
            "train": {"rounds": 5, **train},
            "run": {"folder": name},
        }
        return Recorded(tmp_path / f"{name}-s0", RunSettings.from_json(settings), [], 5, "done")

    rows = comparison([recorded("a", lr=0.1, batch=8), recorded("b", lr=0.2, batch=8)], "held-out")
    assert [row[0] for row in rows[1:]] == ["fedavg, train.lr=0.1", "fedavg, train.lr=0.2"]
    assert [row[0] for row in comparison([recorded("a", lr=0.1)], "held-out")[1:]] == ["fedavg"]


def test_rounds_that_differ_are_a_range(runs: Path) -> None:
    settings = load(find([runs])[0]).settings
    members = [
        Recorded(Path(f"x-s{seed}"), replace(settings, seed=seed), [], rounds, "unfinished")
        for seed, rounds in enumerate((5, 1, 9))
    ]
    assert comparison(members, "held-out")[1][1:] == ["0,1,2", "1-9", "unfinished"]


# -------------------------------------------------------------------------------------------- selection rules


def test_a_rule_that_one_run_lacks_is_a_dash_and_one_that_all_lack_is_refused(runs: Path) -> None:
    folders = find([runs])
    rows = {line.split("  ")[0]: line for line in printed(*folders, rule="window(3,4)")[1:3]}
    assert rows["fedavg"].split()[-1] == "-" and "±" in rows["fedavg + gma(0.6)"]
    with pytest.raises(AccordError, match=r"window\(8,9\) holds no evaluated round"):
        printed(*folders, rule="window(8,9)")
    with pytest.raises(AccordError, match="there is no selection rule 'best'"):
        printed(*folders, rule="best")


def test_without_held_out_data_the_default_is_the_last_rounds(tmp_path: Path, runs: Path) -> None:
    fed = blobs()
    bare = accord.data.Federation(fed.x, fed.y, fed.train, unseen=fed.unseen, name="blobs")
    accord.fit(mlp(), bare, rounds=2, sample=4, evaluate_every=1, folder=tmp_path)
    (recorded,) = [load(folder) for folder in find([tmp_path])]
    (told,) = results([recorded], None)
    assert told["selected"]["rule"] == "last10" and set(told["selected"]["values"]) == {"train", "unseen"}
    assert not any(line.startswith("by held-out") for line in printed(recorded.folder))
    mixed = results([recorded, *map(load, find([runs]))], None)
    assert {one["selected"]["rule"] for one in mixed} == {"last10"}, "one rule for one table"
    with pytest.raises(AccordError, match="there is no held-out data"):
        results([recorded], "held-out")


@pytest.mark.parametrize(
    ("rule", "overrides", "told"),
    [
        ("best", [], "there is no selection rule 'best'"),
        ("window(5,9)", [], r"window\(5,9\) holds no evaluated round: rounds 10 to 25"),
        ("held-out", ["data.heldout=0"], "there is no held-out data"),
    ],
)
def test_a_rule_that_could_choose_nothing_is_refused_before_training(
    rule: str, overrides: list[str], told: str
) -> None:
    with pytest.raises(AccordError, match=told):
        rehearse(rule, parse("", ["train.rounds=25", *overrides]))


@pytest.mark.parametrize("rule", ["held-out", "last10", "oracle", "window(20,20)", "window(25,25)"])
def test_a_rule_that_will_choose_something_is_let_pass(rule: str) -> None:
    rehearse(rule, parse("", ["train.rounds=25"]))


# ---------------------------------------------------------------------------------------------------- drawing


def test_columns_of_numbers_go_to_the_right_and_words_to_the_left() -> None:
    assert align([["name", "size", "what"], ["a", "5 MB", "x"], ["long", "12 MB", "yz"], ["b", "-", ""]]) == [
        "name   size  what",
        "a      5 MB  x",
        "long  12 MB  yz",
        "b         -",
    ]


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [(0.12345, "accuracy", "12.35"), (0.5, "loss", "0.5"), (None, "accuracy", "-"), (float("nan"), "loss", "-")],
)
def test_figures_are_percent_for_accuracy_and_a_dash_for_nothing(value: float | None, metric: str, text: str) -> None:
    assert Metric(metric).figure(value) == text


def test_spread_is_the_sample_deviation() -> None:
    assert spread([0.5], Metric("accuracy")) == "50.00"
    assert spread([0.1, 0.2, 0.3], Metric("accuracy")) == "20.00 ± 10.00"


def with_splits(folder: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    """A run of three rounds whose splits, by round, are changed."""
    run = accord.fit(mlp(), blobs(), rounds=3, evaluate_every=1, folder=folder, verbose=False)
    assert run.folder is not None
    without_checksums(run.folder)
    path = run.folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    change([row["evaluation"]["splits"] for row in rows])
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return run.folder


@pytest.mark.parametrize(("round", "split"), [(0, "unseen"), (1, "train"), (2, "heldout")])
def test_evaluations_of_other_metrics_are_damage(round: int, split: str, tmp_path: Path) -> None:
    folder = with_splits(tmp_path, lambda splits: splits[round][split].pop("accuracy"))
    assert "its evaluations are not of the same metrics" in load(folder).status


@pytest.mark.parametrize("silent", [0, 1, 2])
@pytest.mark.parametrize("split", ["train", "heldout", "unseen"])
def test_a_round_without_one_of_the_splits_is_no_damage(split: str, silent: int, tmp_path: Path) -> None:
    """As of a deployment whose nodes did not answer: means are those of the rounds that have it."""
    folder = with_splits(tmp_path, lambda splits: splits[silent].pop(split))
    recorded, run = load(folder), accord.load(folder, model=mlp())
    assert recorded.status == "done" and recorded.history == run.history
    there = [e.score(split) for _, e in run.history if split in e.splits]
    chosen = run.select("last10")
    assert list(chosen.values) == ["train", "heldout", "unseen"] and chosen.rounds == [1, 2, 3]
    assert len(there) == 2 and chosen.values[split] == pytest.approx(sum(there) / 2)
    best = run.select("oracle").values["unseen"]
    assert best == max(e.score("unseen") for _, e in run.history if "unseen" in e.splits)
    assert "by last10 (rounds 1 to 3): train" in str(run) and "<svg" in run._repr_html_()
    assert [line.get_label() for line in run.plot().axes[0].lines] == ["train", "heldout", "unseen"]
    header, row = comparison([recorded], "last10")
    assert {"train", "held-out", "unseen"} <= set(header) and "-" not in row
    drawn = _curves([recorded], 10)["metrics"]["accuracy"]
    assert [math.isnan(value) for value in drawn[split]["mean"]] == [number == silent for number in range(3)]
    points = curves.read([folder], [split], None).points
    assert [point["round"] for point in points] == [number for number in (1, 2, 3) if number != silent + 1]
