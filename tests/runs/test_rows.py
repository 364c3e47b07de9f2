"""Rows of a run: one form in JSON, appended in blocks, read back as they are asked for, and none kept in memory."""

import gc
import json
import math
import tracemalloc
from pathlib import Path

import pytest

import accord
from accord.core.metrics import GAPS, TITLES, Metric
from accord.runs import rows as module
from accord.runs.evaluation import Evaluation, Figures, SplitRow
from accord.runs.rows import Log, RoundRow, Rows, read_history, read_rows
from accord.training.loop import Event
from conftest import blobs, mlp

TRAIN, HELDOUT = (
    SplitRow(2, 9, {"loss": Figures(loss), "accuracy": Figures(share, share, 0.1, 0.1, 0.2, 0.3)})
    for loss, share in ((math.inf, 0.75), (1.0, 0.5))
)
EVALUATION = Evaluation(
    {"train": TRAIN, "heldout": HELDOUT}, ("loss",), {"held-out, b": HELDOUT}, {"epsilon": 5.0, "delta": 1e-5}
)
WHOLE = RoundRow(
    round=3,
    invited=4,
    accepted=3,
    left_out={"c1": "lost"},
    steps=6,
    samples=60,
    train_loss=math.nan,
    engine_fields={"bytes_up": 9, "left_out_again": {}},
    attackers=0,
    update_norm=math.inf,
    agreement=0.5,
    agreement_by_layer={"w": 0.5},
    privacy={"clipped": 0.5},
    evaluation=EVALUATION,
    off_schedule=True,
)


def test_a_row_and_its_json_are_one() -> None:
    form = WHOLE.to_json()
    assert json.loads(json.dumps(form, allow_nan=False)) == form
    again = RoundRow.from_json(form)
    assert again == WHOLE == form and again.to_json() == form and list(again.to_json()) == list(form)
    assert form["train_loss"] is None and form["update_norm"] is None and "step_norm" not in form
    assert again.engine_fields == WHOLE.engine_fields and again.evaluation == EVALUATION and again.agreement == 0.5
    assert WHOLE["evaluation"]["splits"]["heldout"]["accuracy"]["by_sample"] == 0.5
    assert "skipped" not in WHOLE and WHOLE.get("attackers") == 0 and len(WHOLE) == len(form)
    gap = EVALUATION["gaps"]["out_of_sample"]
    assert gap == {"loss": {"by_sample": None, "by_client": None}, "accuracy": {"by_sample": 0.25, "by_client": 0.25}}


def test_a_metric_says_how_it_is_printed_and_compared() -> None:
    accuracy, error = Metric("accuracy"), Metric("mae", smaller_is_better=True)
    assert (accuracy.title, error.title) == ("accuracy (%)", "mae")
    assert accuracy.figures([[0.91234, None], [math.nan]]) == [["91.23", "-"], ["-"]]
    assert error.figure(0.0123456) == "0.01235" and error.score(2.0) == -2.0 and accuracy.score(math.nan) == -math.inf
    assert (accuracy.best([0.1, 0.3, None, 0.3]), error.best([2.0, 1.0, math.inf])) == (1, 1)
    assert EVALUATION.metric == accuracy and EVALUATION.score("heldout") == 0.5
    assert [gap.difference for gap in GAPS.values()] == ["train - held-out", "held-out - unseen"]
    assert list(TITLES) == ["train", "heldout", "unseen", "test"]


def rows_in(folder: Path) -> Rows:
    return Rows(Log(folder / "metrics.jsonl"))


def lines(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def test_rows_are_written_in_blocks_and_an_evaluation_at_once(tmp_path: Path) -> None:
    log = Log(tmp_path / "metrics.jsonl")
    rows = Rows(log)
    for number in range(1, 64):
        rows.append(RoundRow(round=number))
    assert lines(tmp_path) == 0 and [row.round for row in rows] == list(range(1, 64)), "whoever has the rows sees all"
    rows.append(RoundRow(round=64))
    assert lines(tmp_path) == 64
    rows.append(RoundRow(round=65))
    rows.append(RoundRow(round=66, evaluation=EVALUATION))
    assert lines(tmp_path) == 66
    rows.append(RoundRow(round=67))
    log.flush()
    assert [row.round for row in read_rows(tmp_path)] == [row.round for row in rows] == list(range(1, 68))
    assert read_history(tmp_path) == (67, 0, [(66, EVALUATION)]) and rows.history() == [(66, EVALUATION)]


def test_rows_of_slow_rounds_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", -1.0)
    rows_in(tmp_path).append(RoundRow(round=1))
    assert lines(tmp_path) == 1


@pytest.mark.parametrize("on_disk", [True, False])
def test_rows_by_their_place(tmp_path: Path, on_disk: bool) -> None:
    rows = rows_in(tmp_path) if on_disk else Rows()
    for number in range(1, 201):
        rows.append(RoundRow(round=number))
    assert (rows[0].round, rows[100].round, rows[-1].round, rows[-2].round) == (1, 101, 200, 199)
    assert [row.round for row in rows[-3:]] == [198, 199, 200] and len(rows) == 200
    with pytest.raises(IndexError):
        rows[200]
    so_far = rows.so_far()
    rows.append(RoundRow(round=201))
    assert len(so_far) == 200 and so_far[-1].round == 200 and [row.round for row in so_far] == list(range(1, 201))


def test_many_runs_hold_no_file_open_and_no_row_in_memory(tmp_path: Path) -> None:
    def open_files() -> int:
        gc.collect()  # what earlier tests left open, too
        here = Path("/proc/self/fd")
        return len(list(here.iterdir())) if here.exists() else 0

    def rows_kept() -> int:
        gc.collect()
        return sum(type(kept) is RoundRow for kept in gc.get_objects())

    before, kept_before = open_files(), rows_kept()
    runs = [Rows(Log(tmp_path / f"{number}.jsonl")) for number in range(300)]
    for number in range(1, 131):
        for rows in runs:
            rows.append(RoundRow(round=number))
    assert open_files() == before
    assert rows_kept() <= kept_before + len(runs) + 10, "the last one of each"
    # less than a block waits; a slow machine writes what has waited for a second, so that blocks end elsewhere
    assert all(len(path.read_text().splitlines()) > 130 - 64 for path in tmp_path.iterdir())


def test_a_run_keeps_its_rows_when_its_folder_goes_on(tmp_path: Path) -> None:
    def train(rounds: int) -> accord.Run:
        return accord.fit(mlp(), blobs(), rounds=rounds, sample=3, evaluate_every=2, folder=tmp_path, verbose=False)

    first = train(3)
    rows, text = first.rows, str(first)
    assert [row["round"] for row in rows] == [1, 2, 3] and rows[-1]["off_schedule"]
    longer = train(6)
    assert first.rows == rows and str(first) == text, "also the evaluation that it got because it ended there"
    assert "evaluation" not in longer.rows[2] and longer.recorded[5].evaluation is not None


@pytest.mark.slow
@pytest.mark.parametrize(("on_disk", "most"), [(True, 400), (False, 1600)])
def test_memory_does_not_grow_with_the_rounds(tmp_path: Path, on_disk: bool, most: int) -> None:
    seen: list[int] = []

    def look(event: Event) -> None:
        if event.round in (200, 1000):
            gc.collect()
            seen.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        folder = tmp_path if on_disk else None
        accord.fit(
            mlp(),
            blobs(),
            accord.fedavg(mask=accord.gma()),
            rounds=1000,
            sample=2,
            steps=1,
            evaluate_every=1,
            engine="sequential",
            folder=folder,
            hooks=[look],
            verbose=False,
        )
    finally:
        tracemalloc.stop()
    assert (seen[1] - seen[0]) / 800 < most, "bytes a round; the objects of a row are about 8 kB"
