"""What a run says to Flower: a line of the log for every round, and results in Flower's own records."""

import logging
import math

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result
from torch import nn

from accord.runs.rows import RoundRow
from accord.runs.run import Run
from accord.training.loop import Event

_log = logging.getLogger("flwr")


def log_round(event: Event) -> None:
    row = event.row
    out = "".join(f"; left out: {client} ({why})" for client, why in row.left_out.items())
    again = row.engine_fields.get("left_out_again", {})
    out += "".join(f"; not corrected by: {client} ({why})" for client, why in again.items())
    out += "".join(f"; bad reply: {who} ({why})" for who, why in row.engine_fields.get("bad_replies", {}).items())
    out += "".join(f"; excluded: {node}" for node in row.engine_fields.get("excluded", ()))
    travelled = f"{row.engine_fields.get('bytes_down', 0):,} bytes down, {row.engine_fields.get('bytes_up', 0):,} up"
    _log.info(
        "round %s/%s: %s of %s reports, %s%s",
        event.round,
        event.rounds,
        row.accepted,
        row.invited,
        travelled,
        out,
    )


def arrays_of_model(module: nn.Module) -> ArrayRecord:
    return ArrayRecord(module.state_dict())


def numbers_of(row: RoundRow) -> MetricRecord:
    return MetricRecord(dict(row.numbers()))


def evaluation_of(row: RoundRow) -> MetricRecord | None:
    numbers: dict[str, float] = {}
    for split, figures in row.evaluation.splits.items() if row.evaluation else ():
        means = {f"{split}.{metric}": of.by_sample for metric, of in figures.metrics.items()}
        numbers |= {name: mean for name, mean in means.items() if mean is not None and math.isfinite(mean)}
    return MetricRecord(numbers) if numbers else None


def result_of(run: Run, seen: dict[int, MetricRecord]) -> Result:
    evaluated = {row.round: record for row in run.recorded if (record := evaluation_of(row)) is not None}
    trained = {row.round: numbers_of(row) for row in run.recorded}
    return Result(arrays_of_model(run.model()), trained, evaluated, seen)
