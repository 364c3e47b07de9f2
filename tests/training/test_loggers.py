"""What other programs are told of a run, read back with their own libraries."""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from accord.core.errors import AccordError
from accord.experiments.execute import Interrupt, execute_seed
from accord.experiments.experiment import parse
from accord.training.loggers import LOGS, numbers

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
    row = {
        "round": 3,
        "train_loss": 0.5,
        "left_out": {},
        "skipped": None,
        "agreement_by_layer": {"w": 0.25},
        "evaluation": {
            "splits": {"unseen": {"clients": 2, "samples": 9, "accuracy": {"by_sample": 0.75}, "loss": {"by_sample": float("inf")}}},
            "gaps": {"participation": {"accuracy": {"by_sample": -0.5}}},
        },
    }
    assert numbers(row) == {"train_loss": 0.5, "agreement_by_layer/w": 0.25, "unseen/accuracy": 0.75, "gap/participation/accuracy": -0.5}


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
        {row["round"]: row["evaluation"]["splits"]["unseen"]["accuracy"]["by_sample"] for row in rows(folder) if "evaluation" in row}
    )


def test_mlflow_reads_what_was_written_and_a_resumed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert run.info.status == "FINISHED" and run.data.params["algorithm.mask.name"] == "gma" and run.info.run_name == folder.name


def records(content: bytes) -> Iterator[bytes]:
    """What a W&B file holds: after a header of 7 bytes, blocks of 32 KiB with pieces that have a checksum, a length and a kind (1 whole,
    2 first, 3 middle, 4 last)."""
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
            items = {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
            told[items["_step"]] = items["train_loss"]
    assert told == pytest.approx({row["round"]: row["train_loss"] for row in rows(folder)})


@pytest.mark.parametrize("name", LOGS)
def test_a_missing_program_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    for module in [module for module in sys.modules if module.split(".")[0] == name or module.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AccordError, match=rf"needs the package {name}: pip install 'accord-fl\[{name}\]'"):
        LOGS[name](tmp_path, {})


def test_an_unknown_program_is_one_sentence() -> None:
    with pytest.raises(AccordError, match="run.log must be one of tensorboard, mlflow, wandb, got 'notes'"):
        parse('[run]\nlog = ["notes"]')
    assert os.environ.get("WANDB_MODE") is None
