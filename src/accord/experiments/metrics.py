"""The key `train.metrics`: what a run measures, by name."""

from collections.abc import Sequence
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.measure import Measure, Metrics, PerSample
from accord.core.metric_names import METRICS
from accord.experiments.options import unknown
from accord.rules.registry import imported


def metrics_named(names: Sequence[str], folder: Path | None) -> Metrics:
    """Metrics by name: accord's own, and a user's `module:object`, which is called by the object's name."""
    metrics: dict[str, PerSample | Measure] = {}
    for name in names:
        title = name.partition(":")[2] or name
        if title in metrics:
            raise AccordError(f"train.metrics must differ from each other, got {list(names)}")
        if ":" not in name and name not in METRICS:
            raise unknown("train.metrics", name, METRICS, " or module:object of yours")
        try:
            metrics[title] = imported(name, folder) if ":" in name else METRICS[name]
        except AccordError as error:
            raise AccordError(f"train.metrics: {error}") from None
    return metrics
