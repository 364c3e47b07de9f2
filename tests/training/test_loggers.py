"""What other programs are told of a run, read back with their own libraries."""

import json
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import accord
from accord.core.errors import AccordError
from accord.experiments.execute import Interrupt, execute_seed
from accord.experiments.experiment import parse
from accord.runs.evaluation import Evaluation, Figures, SplitRow
from accord.runs.rows import RoundRow
from accord.training.loggers import LOGS, numbers
from accord.training.loop import Event
from conftest import blobs, mlp, sentence

TEXT = """
[data]
name = "digits"
clients = 6
unseen = 2

[model]
name = "logistic"

[train]
rounds = {rounds}
sample = 3
evaluate_every = 2

[algorithm]
mask = "gma"

[run]
log = ["{log}"]
folder = "{folder}"
"""


class Silent:
    """Nobody looks on."""

    data = None

    def start(self, *_: object) -> None: ...
    def note(self, *_: object) -> None: ...
    def round(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...


def train(log: str, folder: Path, rounds: int = 4) -> Path:
    experiment = parse(TEXT.format(rounds=rounds, log=log, folder=folder))
    run = execute_seed(experiment, 0, Silent(), Interrupt(), resume=True, fresh=False)
    assert run.folder is not None
    return run.folder


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_row_as_numbers() -> None:
    heldout, unseen = (
        SplitRow(2, 9, {"accuracy": Figures(share), "loss": Figures(float("inf"))}) for share in (0.25, 0.75)
    )
    row = RoundRow(
        round=3,
        train_loss=0.5,
        engine_fields={"penalty": 2.0, "left_out_again": {}},
        agreement_by_layer={"w": 0.25},
        evaluation=Evaluation({"heldout": heldout, "unseen": unseen}),
    )
    counts = dict.fromkeys(("invited", "accepted", "steps", "samples"), 0)
    assert numbers(row) == counts | {
        "train_loss": 0.5,
        "agreement_by_layer/w": 0.25,
        "penalty": 2.0,
        "heldout/accuracy": 0.25,
        "unseen/accuracy": 0.75,
        "gap/participation/accuracy": -0.5,
    }


def test_tensorboard_reads_what_was_written_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train("tensorboard", tmp_path, 4)
    folder = train("tensorboard", tmp_path, 6)
    events = reader.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    told = {event.step: event.value for event in events.Scalars("train_loss")}
    assert told == pytest.approx({row["round"]: row["train_loss"] for row in rows(folder)})
    unseen = {event.step: event.value for event in events.Scalars("unseen/accuracy")}
    assert unseen == pytest.approx(
        {
            row["round"]: row["evaluation"]["splits"]["unseen"]["accuracy"]["by_sample"]
            for row in rows(folder)
            if "evaluation" in row
        }
    )


def test_mlflow_reads_what_was_written_and_a_resumed_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # databases, which MLflow prefers, take more than its client
    train("mlflow", tmp_path, 4)
    folder = train("mlflow", tmp_path, 6)
    client = mlflow.MlflowClient()
    run_id = json.loads((folder / "mlflow.json").read_text())["run_id"]
    told = {metric.step: metric.value for metric in client.get_metric_history(run_id, "train_loss")}
    assert told == pytest.approx({row["round"]: row["train_loss"] for row in rows(folder)})
    run = client.get_run(run_id)
    assert (
        run.info.status == "FINISHED"
        and run.data.params["algorithm.mask.name"] == "gma"
        and run.info.run_name == folder.name
    )


def test_mlflow_without_settings_keeps_runs_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own default is a database, which takes more than its client; then files, and a second run finds the first
    one's."""
    mlflow = pytest.importorskip("mlflow")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    folders = [train("mlflow", tmp_path / "a"), train("mlflow", tmp_path / "b")]
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    database = tmp_path / "mlflow.db"  # where all of MLflow is installed
    client = mlflow.MlflowClient(f"sqlite:///{database}" if database.exists() else (tmp_path / "mlruns").as_uri())
    for folder in folders:
        run = client.get_run(json.loads((folder / "mlflow.json").read_text())["run_id"])
        assert run.info.status == "FINISHED" and run.data.metrics["train_loss"] == pytest.approx(
            rows(folder)[-1]["train_loss"]
        )


def test_mlflow_in_a_place_it_refuses_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "carrier-pigeon://loft")
    with sentence(
        "MLflow cannot keep runs at carrier-pigeon://loft: ", "set MLFLOW_TRACKING_URI to a server's address"
    ):
        LOGS["mlflow"](tmp_path, {})


def test_mlflow_is_told_how_a_run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = tmp_path / "logs"  # which is not there yet

    def status(hook: Callable[[Event], bool | None]) -> str:
        hooks = [LOGS["mlflow"](folder, {}), hook]
        with suppress(ZeroDivisionError, KeyboardInterrupt):
            accord.fit(mlp(), blobs(), rounds=4, evaluate_every=4, folder=tmp_path / "runs", device="cpu", hooks=hooks)
        return str(
            mlflow.MlflowClient().get_run(json.loads((folder / "mlflow.json").read_text())["run_id"]).info.status
        )

    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    assert status(lambda event: event.round == 1) == "KILLED"
    assert status(lambda event: bool(1 / 0)) == "FAILED"
    assert status(interrupted) == "KILLED"
    asked: list[str] = []

    def look(event: Event) -> None:
        run_id = json.loads((folder / "mlflow.json").read_text())["run_id"]
        asked.append(mlflow.MlflowClient().get_run(run_id).info.status)

    assert status(look) == "FINISHED" and set(asked) == {"RUNNING"}


def test_every_hook_that_asked_is_told_once_how_the_run_ended(tmp_path: Path) -> None:
    told: list[str] = []

    def ask(event: Event) -> bool:
        if event.round in (1, 3):
            event.at_end(told.append)
            event.at_end(lambda how: told.append(f"{how} too"))
        return event.round == 2

    for _ in range(2):  # the first run is stopped after round 2, the second goes on after it
        accord.fit(mlp(), blobs(), rounds=4, folder=tmp_path, device="cpu", hooks=[ask])
    assert told == ["stopped", "stopped too", "finished", "finished too"]


def records(content: bytes) -> Iterator[bytes]:
    """What a W&B file holds: after a header of 7 bytes, blocks of 32 KiB with pieces that have a checksum, a length and
    a kind (1 whole, 2 first, 3 middle, 4 last)."""
    at, piece = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        piece = (b"" if kind in (1, 2) else piece) + content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield piece


@pytest.mark.slow
def test_wandb_offline_holds_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = train("wandb", tmp_path)
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    told = {}
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {
                (item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item
            }
            told[items["_step"]] = items["train_loss"]
    assert told == pytest.approx({row["round"]: row["train_loss"] for row in rows(folder)})


@pytest.mark.parametrize("name", LOGS)
def test_a_missing_program_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    for module in [
        module for module in sys.modules if module.split(".")[0] == name or module.startswith("torch.utils.tensorboard")
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AccordError, match=rf"needs the package {name}: pip install 'accord-fl\[{name}\]'"):
        LOGS[name](tmp_path, {})


def test_an_unknown_program_is_one_sentence() -> None:
    with pytest.raises(AccordError, match="run.log must be one of tensorboard, mlflow, wandb, got 'notes'"):
        parse('[run]\nlog = ["notes"]')
    assert os.environ.get("WANDB_MODE") is None
