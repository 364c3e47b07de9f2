"""What a run tells to other programs while it goes on: TensorBoard, MLflow, Weights & Biases (`run.log`).

Each is a hook that gets a round's numbers by name. A resumed run goes on in the same place; rounds that it repeats
overwrite what was told of them, as far as the program can.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import flat
from accord.runs.rows import RoundRow
from accord.training.hooks import Event, Hook


def numbers(row: RoundRow) -> dict[str, float]:
    """A round's row as flat numbers: `train_loss`, `agreement_by_layer/conv1.weight`, `unseen/accuracy`,
    `gap/participation/accuracy`."""
    values: dict[str, float | None] = {**row.numbers()}
    del values["round"]
    values |= {f"agreement_by_layer/{layer}": value for layer, value in (row.agreement_by_layer or {}).items()}
    if row.evaluation is not None:
        for split, figures in row.evaluation.splits.items():
            values |= {f"{split}/{name}": of.by_sample for name, of in figures.metrics.items()}
        for gap, metrics in row.evaluation.gaps().items():
            values |= {f"gap/{gap}/{name}": of.by_sample for name, of in metrics.items()}
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def tensorboard(folder: Path, settings: Mapping[str, Any]) -> Hook:
    """Event files in the run's folder, under `tensorboard`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise _missing("tensorboard") from None
    writer: list[Any] = []

    def tell(event: Event) -> None:
        if not writer:  # from this round on: what a stopped run had told of it is taken back
            writer.append(SummaryWriter(str(folder / "tensorboard"), purge_step=event.round))
            event.at_end(lambda _: writer.pop().close())
        for name, value in numbers(event.row).items():
            writer[0].add_scalar(name, value, event.round)
        if event.row.evaluation is not None:
            writer[0].flush()

    return tell


def mlflow(folder: Path, settings: Mapping[str, Any]) -> Hook:
    """A run of MLflow, where `MLFLOW_TRACKING_URI` points, or wherever MLflow keeps runs otherwise. `mlflow.json` says
    which it is."""
    client = _mlflow_client()
    kept = folder / "mlflow.json"
    started: list[str] = []

    def begin() -> str:
        if kept.exists():
            run_id = json.loads(kept.read_text())["run_id"]
            client.update_run(run_id, status="RUNNING")
            return str(run_id)
        folder.mkdir(parents=True, exist_ok=True)  # a hook of a run in Python may name any folder
        experiment = client.get_experiment_by_name("accord")
        number = experiment.experiment_id if experiment else client.create_experiment("accord")
        run_id = client.create_run(number, run_name=folder.name).info.run_id
        for name, value in flat(settings).items():
            client.log_param(run_id, name, value)
        kept.write_text(json.dumps({"run_id": run_id}))
        return str(run_id)

    def tell(event: Event) -> None:
        if not started:
            started.append(begin())
            event.at_end(lambda how: client.set_terminated(started.pop(), _MLFLOW_STATUS[how]))
        for name, value in numbers(event.row).items():
            client.log_metric(started[0], name, value, step=event.round)

    return tell


_MLFLOW_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
_FILES_ALLOWED = "MLFLOW_ALLOW_FILE_STORE"


def _mlflow_client() -> Any:
    """MLflow's client. Where nobody said where runs go, and MLflow's own place, a database, needs more than its client,
    they go to files in `mlruns`; MLflow opens such a folder only if it is told to."""
    try:
        import mlflow as library
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise _missing("mlflow") from None
    try:
        return library.MlflowClient()
    except MlflowException as error:
        if library.is_tracking_uri_set():
            why = str(error).strip().splitlines()[0].partition(". ")[0]
            raise AccordError(
                f"MLflow cannot keep runs at {library.get_tracking_uri()}: {why} (set MLFLOW_TRACKING_URI to a server's"
                f" address, or to a folder's with {_FILES_ALLOWED}=true, or leave it out)"
            ) from None
    before = os.environ.get(_FILES_ALLOWED)
    os.environ[_FILES_ALLOWED] = "true"
    try:
        return library.MlflowClient(Path("mlruns").absolute().as_uri())
    finally:
        if before is None:
            del os.environ[_FILES_ALLOWED]
        else:
            os.environ[_FILES_ALLOWED] = before


def wandb(folder: Path, settings: Mapping[str, Any]) -> Hook:
    """A run of Weights & Biases, named after the run's folder. `WANDB_MODE=offline` keeps it here, in the run's
    folder."""
    try:
        import wandb as library
    except ImportError:
        raise _missing("wandb") from None
    started: list[Any] = []

    def tell(event: Event) -> None:
        if not started:
            started.append(
                library.init(project="accord", id=folder.name, resume="allow", dir=str(folder), config=flat(settings))
            )
            event.at_end(lambda how: started.pop().finish(exit_code=how == "failed"))
        started[0].log(numbers(event.row), step=event.round)

    return tell


LOGS: dict[str, Callable[[Path, Mapping[str, Any]], Hook]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
}


def _missing(name: str) -> AccordError:
    return AccordError(f"run.log = {name!r} needs the package {name}: pip install 'accord-fl[{name}]'")
