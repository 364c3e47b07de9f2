"""What a run tells to other programs while it goes on: TensorBoard, MLflow, Weights & Biases (`run.log`).

Each is a hook that gets a round's numbers by name. A resumed run goes on in the same place; rounds that it repeats overwrite what was told
of them, as far as the program can.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import flat
from accord.training.loop import Event, Hook


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """A round's row as flat numbers: `train_loss`, `agreement_by_layer/conv1.weight`, `unseen/accuracy`, `gap/participation/accuracy`."""
    told = {key: value for key, value in row.items() if isinstance(value, int | float) and not isinstance(value, bool) and key != "round"}
    told |= {f"agreement_by_layer/{layer}": value for layer, value in row.get("agreement_by_layer", {}).items()}
    evaluation = row.get("evaluation") or {"splits": {}, "gaps": {}}
    for split, metrics in evaluation["splits"].items():
        told |= {f"{split}/{name}": value["by_sample"] for name, value in metrics.items() if isinstance(value, Mapping)}
    for gap, metrics in evaluation["gaps"].items():
        told |= {f"gap/{gap}/{name}": value["by_sample"] for name, value in metrics.items()}
    return {name: float(value) for name, value in told.items() if value is not None and math.isfinite(value)}


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
        for name, value in numbers(event.row).items():
            writer[0].add_scalar(name, value, event.round)
        if "evaluation" in event.row or event.round == event.rounds:
            writer[0].flush()

    return tell


def mlflow(folder: Path, settings: Mapping[str, Any]) -> Hook:
    """A run of MLflow, where `MLFLOW_TRACKING_URI` points, or wherever MLflow keeps runs otherwise. `mlflow.json` says which it is."""
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise _missing("mlflow") from None
    try:
        client = MlflowClient()
    except MlflowException as error:
        raise AccordError(f"MLflow cannot keep runs here, set MLFLOW_TRACKING_URI: {str(error).splitlines()[0]}") from None
    kept = folder / "mlflow.json"
    started: list[str] = []

    def begin() -> str:
        if kept.exists():
            return str(json.loads(kept.read_text())["run_id"])
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
        for name, value in numbers(event.row).items():
            client.log_metric(started[0], name, value, step=event.round)
        if event.round == event.rounds:
            client.set_terminated(started[0])

    return tell


def wandb(folder: Path, settings: Mapping[str, Any]) -> Hook:
    """A run of Weights & Biases, named after the run's folder. `WANDB_MODE=offline` keeps it here, in the run's folder."""
    try:
        import wandb as library
    except ImportError:
        raise _missing("wandb") from None
    started: list[Any] = []

    def tell(event: Event) -> None:
        if not started:
            started.append(library.init(project="accord", id=folder.name, resume="allow", dir=str(folder), config=flat(settings)))
        started[0].log(numbers(event.row), step=event.round)
        if event.round == event.rounds:
            started[0].finish()

    return tell


LOGS: dict[str, Callable[[Path, Mapping[str, Any]], Hook]] = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}


def _missing(name: str) -> AccordError:
    return AccordError(f"run.log = {name!r} needs the package {name}: pip install 'accord-fl[{name}]'")
