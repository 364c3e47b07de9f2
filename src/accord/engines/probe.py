"""A look at model, loss and metrics before training: what does not fit is said at once, in a sentence, not after an
hour."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from accord.core import draws
from accord.core.errors import AccordError
from accord.core.losses import cross_entropy, dense_cross_entropy
from accord.core.measure import Measure, PerSample
from accord.core.predicted import NO_LABEL, class_axes
from accord.engines.contract import Job
from accord.engines.measuring import NAN, OUTPUT, TARGET


@dataclass(frozen=True)
class Probed:
    """What an engine must know of a model: whether it drops out, and how few samples it can train on."""

    drops_out: bool
    least_batch: int


def probe(job: Job) -> Probed:
    """Runs two samples through a copy of the model, the loss and every metric."""
    x, y = two_samples(job)
    for name in job.metrics:
        if name in ("loss", "clients", "samples", NAN, OUTPUT, TARGET):
            raise AccordError(f"a metric cannot be called {name!r}: that name is taken in every evaluation")
    with torch.no_grad(), torch.random.fork_rng(devices=[job.device] if job.device.type == "cuda" else []):
        model = copied(job.module).to(job.device).train()
        output, drops_out = _run(model, x, str(job.fed.fields or f"shape {tuple(x.shape[1:])}"))
        _check_classes(job, output)
        _per_sample("loss", job.loss, output, y)
        for name, measure in job.measures.items():
            _fits(name, measure, output, y)
        return Probed(drops_out, least_batch=1 if _trains_on_one(model, x) else 2)


@torch.no_grad()
def draws_in_evaluation(job: Job) -> bool:
    """Whether the model is random even when it is evaluated. Such a model draws from its run's own seed, batch by
    batch."""
    x, _ = job.fed.read(torch.zeros(1, dtype=torch.int64))
    with torch.random.fork_rng(devices=[]), draws.Routed(0) as mode:
        before = torch.get_rng_state()
        copied(job.module).cpu().eval()(x.cpu())
        return mode.calls > 0 or not torch.equal(before, torch.get_rng_state())


def two_samples(job: Job) -> tuple[Tensor, Tensor]:
    """Some client's first two samples, or its only one twice, as the model reads them."""
    rows = next((rows[:2] for rows in job.fed.train.values() if len(rows)), None)
    if rows is None:
        raise AccordError("no participating client has any training data")
    x, y = job.fed.read(rows.repeat(2)[:2])
    return x.to(job.device), y.to(job.device)


def copied(module: nn.Module) -> nn.Module:
    """A copy of the user's model, or a sentence that says why there is none."""
    try:
        return copy.deepcopy(module)
    except RuntimeError as error:
        raise AccordError(
            f"the model cannot be copied: {error} (if it uses torch.nn.utils.weight_norm, use"
            " torch.nn.utils.parametrizations instead)"
        ) from error


def _run(model: nn.Module, x: Tensor, what: str) -> tuple[Any, bool]:
    """The output, and whether dropout was called. Refuses a model that puts a new buffer in an old one's place: that
    would be lost."""
    before = {name: id(buffer) for name, buffer in model.named_buffers()}
    try:
        with draws.Routed(0) as mode:
            output = model(x)
    except Exception as error:
        raise AccordError(f"the model cannot read samples of {what}: {error}") from error
    replaced = [name for name, buffer in model.named_buffers() if before.get(name) != id(buffer)]
    if replaced:
        name = replaced[0]
        raise AccordError(
            f"the model replaces its buffer {name} instead of changing it in place: write self.{name}.copy_(...)"
        )
    return output, mode.calls > 0


def _fits(name: str, measure: Measure, output: Any, y: Tensor) -> None:
    """Refuses a metric that is not for such outputs and targets. One of a whole group is not tried: two samples may not
    be enough for it."""
    if measure.of_group and not isinstance(output, Tensor):
        raise AccordError(f"the metric {name} is of a whole group, and the model gives a {type(output).__name__}")
    if isinstance(output, Tensor):
        try:
            measure.check(output, y)
        except AccordError as error:
            raise AccordError(f"the metric {name} {error}") from None
    if not measure.of_group:
        _per_sample(f"metric {name}", measure, output, y)


def _check_classes(job: Job, output: Any) -> None:
    """Refuses labels that the model has no output for, where the loss is the usual one of classes."""
    fed, dense = job.fed, job.loss is dense_cross_entropy
    if not isinstance(output, Tensor) or not (dense or (job.loss is cross_entropy and output.ndim == 2)):
        return
    outputs = output.shape[1 if not dense or class_axes(output, fed.y)[0] else -1]
    if not len(fed.y) or (int(fed.y.min()) >= 0 and int(fed.y.max()) < outputs):
        return
    for _, client, rows in fed.groups():
        labels = fed.y[rows.to(fed.y.device)]
        bad = ((labels < 0) & (labels != NO_LABEL if dense else True)) | (labels >= outputs)
        if bad.any():
            place = bad.nonzero()[0].tolist()
            raise AccordError(
                f"the model has {outputs} outputs, one for each class from 0 to {outputs - 1}, but client {client} has"
                f" label {int(labels[tuple(place)])} in row {int(rows[place[0]])}"
            )


def _per_sample(what: str, function: PerSample, output: Any, y: Tensor) -> None:
    try:
        values = function(output, y)
    except Exception as error:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise AccordError(
            f"the {what} cannot take outputs of shape {shape} and targets of shape {tuple(y.shape)}: {error}"
        ) from error
    if not isinstance(values, Tensor) or tuple(values.shape) != (len(y),):
        got = f"shape {list(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
        hint = ": use reduction='none'" if what == "loss" else ""
        raise AccordError(f"the {what} must give one number per sample, a tensor of shape [{len(y)}], got {got}{hint}")
    if isinstance(output, Tensor) and not torch.allclose(
        function(output[:1], y[:1]), values[:1], rtol=1e-3, atol=1e-5, equal_nan=True
    ):
        shapes = f"outputs of shape {tuple(output.shape)} and targets of shape {tuple(y.shape)}"
        raise AccordError(f"the {what} of a sample changes with the other samples of its batch: do {shapes} broadcast?")


def _trains_on_one(model: nn.Module, x: Tensor) -> bool:
    """BatchNorm has no statistics of a single value per channel, and says so with an error."""
    try:
        model(x[:1])
    except ValueError:
        return False
    return True
