"""Local descent of many lanes at once: what every lane needs is laid out on the device, and its steps are run or
replayed."""

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor, nn

from accord.core.layout import change_of_buffers
from accord.core.record import State
from accord.data.federated import Federation
from accord.engines.contract import Job, Order
from accord.engines.transfer import sent
from accord.engines.vectorised.batchable import check_batchable, pads
from accord.engines.vectorised.channels_last import with_channels_last
from accord.engines.vectorised.client_lane import Lane, Trained
from accord.engines.vectorised.full_gradient import full_gradient
from accord.engines.vectorised.fuse import made_for_lanes
from accord.engines.vectorised.lanes import Lanes, Model
from accord.engines.vectorised.planning import Padded, padded, waves
from accord.engines.vectorised.replay import Captured, Eager
from accord.engines.vectorised.sending import Shipment, arrays_of, shipped
from accord.kernels import lane_step
from accord.kernels.cuda import CudaError

_LARGE = 8_000_000  # parameters from which lanes run side by side: such a model's kernels fill the device by themselves
_STREAMS = 10  # ResNet-18 in bfloat16: 7 % faster than four
# bytes that samples may take on a CUDA device as the model reads them: every step is then spared a few kernels
_READY = 8 << 30
_OF_STEPS = frozenset({"mean_gradient", "last_gradient"})  # what is reported of the steps' gradients

Batches = list[tuple[Padded, dict[str, np.ndarray]]]  # parts to run one after another, and what is sent of them


def width_of(job: Job) -> int:
    """How wide batches are, whoever is in a round: a sum over a batch is then the same sum. Whole-client batches have
    no such width."""
    return min(job.training.batch or 1, max((len(rows) for rows in job.fed.train.values()), default=1))


class Descent:
    """Trains lanes of one model on one device. `at_once` bounds how many go together; it is halved when the device runs
    out of memory."""

    def __init__(self, job: Job, fed: Federation, drops_out: bool, at_once: int | None = None) -> None:
        self.device, self.drops_out, self.at_once = job.device, drops_out, at_once
        self.halved_to: int | None = None
        cuda, streams = job.device.type == "cuda", _streams(job)
        large = streams is not None
        tuned = cuda and _compiles(job.device)
        fed = fed.prepared(_READY) if cuda else fed
        module, innermost = copy.deepcopy(job.module).to(job.device), large and "channels-last" in job.speed
        if tuned and not large and "bf16" not in job.speed:
            module = made_for_lanes(module, fed)
        elif tuned and large and "compile" not in job.speed and _has_pictures(module):
            turned, why = with_channels_last(module, fed)
            if turned is None:
                warnings.warn(f"the model keeps torch's order of channels, which is slower: {why}", stacklevel=2)
            else:
                module, innermost = turned, True
        self.model = Model(
            module,
            job.whole,
            fed,
            job.loss,
            tuned=tuned,
            speed=job.speed,
            streams=streams,
            innermost=innermost,
        )
        if not large:
            check_batchable(self.model, drops_out)
        self.pads = pads(self.model)
        self._full_gradient = partial(full_gradient, self.model, self.pads, drops_out)
        self.width = width_of(job)
        draws = {"dropout": drops_out, "augment": fed.augment is not None}
        self._keyed = [purpose for purpose, drawn in draws.items() if drawn]
        self._shared = replace(self.model.arrangement, layout=job.layout)  # what is not personal comes first
        self._eager = Eager(self.model, self._shared.size)
        self._captured: dict[tuple[object, ...], Captured] = {}
        self._ready: tuple[Sequence[Order], Batches] | None = None

    def lay_out(self, orders: Sequence[Order]) -> None:
        """Lays out the batches of lanes that will be asked for next: for a host that has nothing to do while the device
        works."""
        orders = [order for order in orders if order[1]]
        fits = 0 < len(orders) <= (self.at_once or len(orders))
        self._ready = (orders, self._batches(orders)) if fits else None

    def _laid_out(self, orders: Sequence[Order]) -> Batches:
        """The batches of these lanes; if they are those that were laid out before, they are ready."""
        ready, self._ready = self._ready, None
        if ready and [id(rows) for rows, _ in ready[0]] == [id(rows) for rows, _ in orders]:
            return ready[1]
        return self._batches(orders)

    def _batches(self, orders: Sequence[Order]) -> Batches:
        spare = self.device.type == "cuda"  # where every shape is captured: plans then have few of them
        parts = waves(padded(orders, self.width, spare), self.pads, spare)
        return [(part, arrays_of(part, self.model.layout.dtype)) for part in parts]

    def twin(self) -> "Descent":
        """The same with a layout of its own for the lanes that come next."""
        twin = copy.copy(self)
        twin._ready = None
        return twin

    def forget(self) -> None:
        """Lets go of the device's memory."""
        self._captured.clear()

    def __call__(self, lanes: Sequence[Lane]) -> Trained:
        """As many lanes at once as there is memory for."""
        jobs = {id(lane.job): lane.job for lane in lanes}
        needs = frozenset[str]().union(*(job.algorithm.needs for job in jobs.values()))
        while True:
            size = min(self.at_once or len(lanes), len(lanes))
            try:
                parts = [self._descend_together(lanes[at : at + size], needs) for at in range(0, len(lanes), size)]
                break
            except torch.cuda.OutOfMemoryError:
                if size == 1:
                    raise
                self._captured.clear()
                torch.cuda.empty_cache()
                self.at_once = self.halved_to = math.ceil(size / 2)
                warnings.warn(
                    f"the device ran out of memory with {size} lanes at once: going on with {self.at_once}",
                    stacklevel=2,
                )
        return Trained.joined(parts)

    def _descend_together(self, chosen: Sequence[Lane], needs: frozenset[str]) -> Trained:
        """What these lanes' rounds come to. `needs`: what any lane must report besides its update; all then do."""
        # Libraries compute a batch of one in another way: with company, a lane's bits do not depend on how many there
        # are.
        if len(chosen) == 1:
            return self._descend_together([*chosen, *chosen], needs).of(slice(1))
        layout = self.model.layout
        lanes, begun = self._lanes(chosen, needs)
        numbers: State = {}
        for part, arrays in self._laid_out([(lane.rows, lane.sizes) for lane in chosen]):
            sent = shipped(part, arrays, chosen, self._keyed, layout.dtype, self.device)
            numbers = numbers or sent.numbers()
            steps = self._steps(lanes, sent)
            lanes = steps.run(lanes, sent, part.steps)
        delta, figures = steps.ended()
        gradients = {} if lanes.gradients is None else {"mean_gradient": lanes.gradients / numbers["steps"]}
        if lanes.last is not None:
            gradients["last_gradient"] = lanes.last.clone()  # lanes that are replayed are overwritten by the next ones
        if "start_gradient" in needs:
            gradients["start_gradient"], _ = self._full_gradient(chosen, "start", lanes.start, begun)
        moved = after = begun
        if layout.buffers:
            after = layout.pack_buffers(lanes.buffers, lead=(len(chosen),))
            moved = change_of_buffers(begun, after)
        losses: State = {}
        if needs & {"end_gradient", "end_loss"}:
            gradients["end_gradient"], losses["end_loss"] = self._full_gradient(chosen, "end", lanes.w, after)
        job, shared = chosen[0].job, self._shared
        views = job.personal_part(self.model.arrangement.restored(lanes.w), after) if job.algorithm.personal else {}
        personal = {name: value.clone() for name, value in views.items()}
        moved = moved[:, : job.layout.buffer_size].contiguous()
        extra = {name: shared.restored(value[:, : shared.size].contiguous()) for name, value in gradients.items()}
        return Trained(
            shared.restored(delta), moved, figures, numbers["samples"], numbers["steps"], extra | losses, personal
        )

    def _steps(self, lanes: Lanes, sent: Shipment) -> Eager | Captured:
        """How steps of these shapes are run."""
        if self.device.type != "cuda":
            return self._eager
        key = *sent.kind, lanes.drift is None, lanes.needs, type(lanes.optimiser)
        if key not in self._captured:
            self._captured[key] = Captured(self.model, self._shared.size, lanes, sent)
        return self._captured[key]

    def _lanes(self, chosen: Sequence[Lane], needs: frozenset[str]) -> tuple[Lanes, Tensor]:
        """Where every lane begins, and its buffers as one table `[L, B]`."""
        starts, begins, drifts = zip(*_begins(chosen), strict=True)
        start, begun, drift = _stacked(starts), _stacked(begins), None
        if any(each is not None for each in drifts):
            drift = _stacked([torch.zeros_like(start[0]) if each is None else each for each in drifts])
        buffers = self.model.layout.unpack_buffers(begun.to(self.device))
        arranged = self.model.arrangement.arranged
        start, drift = arranged(start), None if drift is None else arranged(drift)
        return Lanes(start, buffers, chosen[0].job.training.rule, drift, needs & _OF_STEPS), begun


def _has_pictures(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Conv2d) for part in module.modules())


def _streams(job: Job) -> tuple[torch.cuda.Stream, ...] | None:
    """Those that the lanes of a large model run on, side by side; None where all lanes are one batched computation."""
    if job.device.type != "cuda" or job.whole.size <= _LARGE:
        return None
    return tuple(torch.cuda.Stream() for _ in range(_STREAMS))


def _compiles(device: torch.device) -> bool:
    """Whether kernels made for lanes can be compiled; if not, a sentence says why."""
    why = None if find_spec("triton") is not None else "Triton is not installed"
    try:
        lane_step.kernels(device)
    except CudaError as error:
        why = str(error)
    if why:
        warnings.warn(f"torch's own kernels train, which takes several times as long: {why}", stacklevel=2)
    return why is None


def _stacked(vectors: Sequence[Tensor]) -> Tensor:
    """`[L, ...]`; where all are one vector, without a copy of it for each; where several lanes have one, it is met
    once."""
    different = {id(vector): vector for vector in vectors}
    if len(different) == 1:
        return vectors[0].expand(len(vectors), *vectors[0].shape)
    if len(different) == len(vectors):
        return torch.stack(list(vectors))
    place = dict(zip(different, range(len(different)), strict=True))
    which = np.array([place[id(vector)] for vector in vectors])
    return torch.stack(list(different.values())).index_select(0, sent(which, vectors[0].device))


def _begins(chosen: Sequence[Lane]) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """Where every lane begins, its vector and buffers, and its drift. Lanes of one run that remember nothing begin in
    one place."""
    known: dict[int, tuple[Tensor, Tensor, Tensor | None]] = {}
    starts = []
    for lane in chosen:
        start = None if lane.client_state else known.get(id(lane.work))
        if start is None:
            job, work, local = lane.job, lane.work, lane.job.algorithm.local
            shared = local.start(work.vector, work.buffers, lane.client_state)
            drift = job.widened(local.drift(work.memory["local"], lane.client_state))
            start = known[id(work)] = *job.assembled(*shared, lane.client_state), drift
        starts.append(start)
    return starts
