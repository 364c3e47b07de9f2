"""What is measured of a model's outputs: numbers per sample, NaN predictions, and, only where a metric of a whole group
is asked for, the outputs themselves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from accord.engines.contract import Group, Job, Table
from accord.engines.group_values import Exact, Outputs, bounds_of

# of some samples, by name: loss and metrics, a number per sample, and what is kept beside them
Values = dict[str, np.ndarray]
NAN, OUTPUT, TARGET = "NaN predictions", "outputs", "targets"


def smaller(job: Job) -> frozenset[str]:
    """Those of which less is better, and the loss."""
    return frozenset({"loss"} | {name for name, measure in job.measures.items() if measure.smaller_is_better})


def per_sample(job: Job) -> list[str]:
    """What `numbers` gives, in order."""
    return ["loss", *job.of_sample, NAN]


def numbers(job: Job, output: Any, target: Tensor) -> dict[str, Tensor]:
    """A number per sample, `[B]`: loss, metrics, and whether the prediction is NaN, which counts as wrong in every
    metric."""
    nan, metrics = _nan_predictions(output, target), job.of_sample.items()
    values = {name: of(output, target).double().masked_fill(nan, of.nan_counts_as) for name, of in metrics}
    return {"loss": job.loss(output, target).double(), **values, NAN: nan.double()}


def _nan_predictions(output: Any, target: Tensor) -> Tensor:
    """Which samples' predictions hold a NaN, `[B]`."""
    if not isinstance(output, Tensor) or len(output) != len(target):
        return torch.zeros(len(target), dtype=torch.bool, device=target.device)
    return output.detach().isnan().reshape(len(target), -1).any(1)


def kept(output: Tensor, target: Tensor) -> dict[str, Tensor]:
    """What metrics of a whole group need of every sample."""
    reduced = output.dtype in (torch.bfloat16, torch.float16)  # which numpy does not have, or not all of
    return {OUTPUT: output.float() if reduced else output, TARGET: target}


def measured(job: Job, output: Any, target: Tensor) -> dict[str, Tensor]:
    """All that an evaluation keeps of a batch."""
    values = numbers(job, output, target)
    return values | kept(output, target) if job.of_group else values


def tabulate(job: Job, groups: Sequence[Group], parts: Sequence[Values]) -> Table:
    """The values of all evaluation batches, in their order, by group."""
    sizes = np.array([len(rows) for _, _, rows in groups], dtype=np.int64)
    owner = np.repeat(np.arange(len(groups)), sizes)

    def together(name: str) -> np.ndarray:
        return np.concatenate([part[name] for part in parts]) if parts else np.zeros(0)

    sums = {name: np.bincount(owner, together(name), minlength=len(groups)) for name in per_sample(job)}
    gathered = (torch.from_numpy(together(OUTPUT)), torch.from_numpy(together(TARGET))) if job.of_group else None
    return table_of(job, [(split, client) for split, client, _ in groups], sizes, sums, gathered)


def table_of(
    job: Job,
    groups: list[tuple[str, str]],
    sizes: np.ndarray,
    sums: Mapping[str, np.ndarray],
    gathered: tuple[Tensor, Tensor] | None,
) -> Table:
    """A table from sums of `numbers` by group and, where a metric needs them, all outputs and targets."""
    added = {name: sums[name] for name in per_sample(job) if name != NAN}
    values = {}
    if gathered is not None:
        everything = Outputs(*gathered, bounds_of(sizes), groups)
        values = {name: Exact(name, measure, everything) for name, measure in job.of_group.items()}
    return Table(groups, sizes, added, smaller(job), values, sums[NAN], ("loss", *job.metrics))
