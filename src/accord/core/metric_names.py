"""`accord.metrics`: accord's own metrics by name, and how a metric of yours declares what it is."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from accord.core.class_metrics import F1, Auc, AveragePrecision, BalancedAccuracy, CalibrationError
from accord.core.errors import AccordError, did_you_mean
from accord.core.language_metrics import Perplexity
from accord.core.losses import accuracy, default_metrics
from accord.core.measure import Measure, Metrics, PerSample, check_custom_metric, group, per_sample
from accord.core.number_metrics import R2, Mae

auc = Auc()
average_precision = AveragePrecision()
balanced_accuracy = BalancedAccuracy()
calibration_error = CalibrationError()
f1 = F1()
mae = Mae()
perplexity = Perplexity()
r2 = R2()

METRICS: dict[str, PerSample | Measure] = {
    "accuracy": accuracy,
    "auc": auc,
    "average_precision": average_precision,
    "balanced_accuracy": balanced_accuracy,
    "calibration_error": calibration_error,
    "f1": f1,
    "mae": mae,
    "perplexity": perplexity,
    "r2": r2,
}

__all__ = ["METRICS", "Measure", "accuracy", "group", "per_sample", *(name for name in METRICS if name != "accuracy")]


def named(name: str) -> PerSample | Measure:
    """A metric of accord's own."""
    if name not in METRICS:
        raise AccordError(f"there is no metric {name!r}: {did_you_mean(name, METRICS)}")
    return METRICS[name]


def chosen_metrics(metrics: Metrics | Sequence[str] | str | None, y: Tensor, own_loss: bool = False) -> Metrics:
    """What is measured: names of accord's own metrics, or metrics by the names that they are to have; where nobody
    says, those that suit the targets, and the loss where it is the user's own."""
    if metrics is None:
        return default_metrics(y, own_loss)
    if isinstance(metrics, str):
        metrics = [metrics]
    if not isinstance(metrics, Mapping):
        if not isinstance(metrics, Sequence) or not all(isinstance(name, str) for name in metrics):
            raise AccordError(
                f"metrics must be names such as 'auc', or a dictionary of functions by the names that they are to"
                f" have, got {metrics!r}"
            )
        return {name: named(name) for name in metrics}
    for name, metric in metrics.items():
        if not callable(metric):
            raise AccordError(f"the metric {name} must be a function of (output, target), got {metric!r}")
        check_custom_metric(name, metric)
    return metrics
