"""Local descent of many lanes at once: what every lane needs is laid out on the device, and its steps are run or
replayed."""

import copy
import math
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from accord.core.layout import change_of_buffers
from accord.core.record import State
from accord.data.federated import Federation
from accord.engines.contract import Job
from accord.engines.vectorised.batchable import check_batchable, pads
from accord.engines.vectorised.client_lane import COUNTS, RATES, Lane, Trained, draw_keys, tops
from accord.engines.vectorised.full_gradient import full_gradient
from accord.engines.vectorised.fuse import made_for_lanes
from accord.engines.vectorised.lanes import Lanes, Model, Plan, run
from accord.engines.vectorised.planning import Order, Padded, lengthened, padded, waves
from accord.engines.vectorised.replay import Captured, shapes
from accord.engines.vectorised.transfer import numbers_sent, sent
from accord.kernels import lane_step
from accord.kernels.cuda import CudaError

_LARGE = 8_000_000  # parameters from which lanes run side by side: such a model's kernels fill the device by themselves
_STREAMS = 4  # more were no faster
# bytes that samples may take on a CUDA device as the model reads them: every step is then spared a few kernels
_READY = 8 << 30


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
        cuda = job.device.type == "cuda"
        large = cuda and job.whole.size > _LARGE
        tuned = cuda and _compiles(job.device)
        fed = fed.prepared(_READY) if cuda else fed
        plain = copy.deepcopy(job.module).to(job.device)
        self.model = Model(
            made_for_lanes(plain, fed) if tuned and not large and "bf16" not in job.speed else plain,
            job.whole,
            fed,
            job.loss,
            tuned=tuned,
            speed=job.speed,
            streams=tuple(torch.cuda.Stream() for _ in range(_STREAMS)) if large else None,
        )
        if not large:
            check_batchable(self.model, drops_out)
        self.pads = pads(self.model)
        self._full_gradient = partial(full_gradient, self.model, self.pads, drops_out)
        self.width = width_of(job)
        self._captured: dict[tuple[object, ...], Captured] = {}
        self._ready: tuple[Sequence[Order], Padded] | None = None

    def lay_out(self, orders: Sequence[Order]) -> None:
        """Lays out the batches of lanes that will be asked for next: for a host that has nothing to do while the device
        works."""
        orders = [order for order in orders if order[1]]
        fits = 0 < len(orders) <= (self.at_once or len(orders))
        self._ready = (orders, padded(orders, self.width)) if fits else None

    def _laid_out(self, orders: Sequence[Order]) -> Padded:
        """The batches of these lanes; if they are those that were laid out before, they are ready."""
        ready, self._ready = self._ready, None
        if ready and [id(rows) for rows, _ in ready[0]] == [id(rows) for rows, _ in orders]:
            return ready[1]
        return padded(orders, self.width)

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
        numbers = self._numbers(chosen)
        lanes, begun = self._lanes(chosen, numbers, needs)
        for part in waves(self._laid_out([(lane.rows, lane.sizes) for lane in chosen]), self.pads):
            if self.device.type == "cuda":
                lanes = self._replayed(lanes, part, chosen)
            else:
                lanes = run(self.model, lanes, self._plan(part, chosen, len(part.count)), len(part.count))
        extra = {} if lanes.gradients is None else {"mean_gradient": lanes.gradients / numbers["steps"]}
        if lanes.last is not None:
            extra["last_gradient"] = lanes.last.clone()  # lanes that are replayed are overwritten by the next ones
        if "start_gradient" in needs:
            extra["start_gradient"], _ = self._full_gradient(chosen, "start", lanes.start, begun)
        ended = self.model.layout.pack_buffers(lanes.buffers, lead=(len(chosen),)).to(begun.device)
        if needs & {"end_gradient", "end_loss"}:
            extra["end_gradient"], extra["end_loss"] = self._full_gradient(chosen, "end", lanes.w, ended)
        moved = change_of_buffers(begun, ended)
        loss = lanes.loss / numbers["met"].squeeze(1)
        job = chosen[0].job
        personal = {name: value.clone() for name, value in job.personal_part(lanes.w, ended).items()}
        # contiguous, as kernels take them; where all is shared, that is what they are
        delta = (lanes.w - lanes.start)[:, : job.layout.size].contiguous()
        moved = moved[:, : job.layout.buffer_size].contiguous()
        extra = {name: value[:, : job.layout.size].contiguous() for name, value in extra.items()}
        return Trained(delta, moved, loss, numbers["samples"], numbers["steps"], extra, personal)

    def _numbers(self, chosen: Sequence[Lane]) -> dict[str, Tensor]:
        """A column `[L, 1]` for each of `COUNTS`, `RATES` and the optimiser's numbers, in one copy that the host does
        not wait for."""
        rates: dict[int, tuple[float, ...]] = {}
        for lane in chosen:
            if id(lane.work) not in rates:
                rates[id(lane.work)] = lane.rates
        rows = [(*lane.counts, *rates[id(lane.work)]) for lane in chosen]
        table = torch.tensor(rows, dtype=self.model.layout.dtype)
        columns = sent(table, self.device).unsqueeze(-1).unbind(1)
        first = chosen[0]
        names = *COUNTS, *RATES, *first.job.training.rule.constants(first.work.lr)
        return dict(zip(names, columns, strict=True))

    def _replayed(self, lanes: Lanes, part: Padded, chosen: Sequence[Lane]) -> Lanes:
        steps = len(part.count)
        plan = self._plan(lengthened(part, 1 << (steps - 1).bit_length()), chosen, steps)  # few shapes, so few captures
        key = shapes(lanes, plan)
        if key not in self._captured:
            self._captured[key] = Captured(self.model, lanes, plan)
        return self._captured[key].run(lanes, plan, steps)

    def _lanes(self, chosen: Sequence[Lane], numbers: dict[str, Tensor], needs: frozenset[str]) -> tuple[Lanes, Tensor]:
        """Where every lane begins, and its buffers as one table `[L, B]`."""
        layout, device = self.model.layout, self.device
        starts = _begins(chosen)
        begun = _stacked([buffers for _, buffers in starts])
        jobs = list({id(lane.job): lane.job for lane in chosen}.values())
        optimiser = jobs[0].training.rule
        drifts = [
            lane.job.widened(lane.job.algorithm.local.drift(lane.work.memory["local"], lane.own))
            if lane.own or lane.work.memory["local"]
            else None
            for lane in chosen
        ]
        start = _stacked([vector for vector, _ in starts])
        lanes = Lanes(
            start,
            layout.unpack_buffers(begun.to(device)),
            optimiser,
            {name: numbers[name] for name in optimiser.constants(0.0)},
            weight_decay=numbers["weight_decay"] if any(job.training.rule.penalty for job in jobs) else None,
            clip=numbers["clip"] if any(job.training.clip for job in jobs) else None,
            mu=numbers["mu"] if any(job.algorithm.local.mu for job in jobs) else None,
            drift=(
                _stacked([torch.zeros_like(start[0]) if d is None else d for d in drifts])
                if any(d is not None for d in drifts)
                else None
            ),
            gradients=torch.zeros_like(start) if "mean_gradient" in needs else None,
            last=torch.zeros_like(start) if "last_gradient" in needs else None,
            top=tops(chosen, device),
        )
        return lanes, begun

    def _plan(self, part: Padded, chosen: Sequence[Lane], steps: int) -> Plan:
        """The steps on the device, with the keys of their draws; only the first `steps` of them will be run."""
        dropout = draw_keys("dropout", part, chosen, self.device) if self.drops_out else None
        augment = draw_keys("augment", part, chosen, self.device) if self.model.fed.augment is not None else None
        arrays = part.rows, part.share, part.count
        rows, share, count = (numbers_sent(values, self.model.layout.dtype, self.device) for values in arrays)
        return Plan(
            rows,
            share,
            count,
            dropout,
            augment,
            self._by_step(part, chosen),
            rests=bool((part.count[:steps] == 0).any()),
        )

    def _by_step(self, part: Padded, chosen: Sequence[Lane]) -> State:
        """The optimiser's numbers that differ by step, `[S, L, 1]` each. A lane that takes part in step n has taken all
        before it, so that the step's number is the lane's own."""
        known: dict[int, dict[str, np.ndarray]] = {}
        for lane in chosen:
            if id(lane.work) not in known:
                known[id(lane.work)] = lane.job.training.rule.corrections(lane.work.lr, part.number + 1.0)
        first = known[id(chosen[0].work)]
        tables = {name: np.stack([known[id(lane.work)][name] for lane in chosen], 1)[..., None] for name in first}
        return {name: numbers_sent(values, self.model.layout.dtype, self.device) for name, values in tables.items()}


def _compiles(device: torch.device) -> bool:
    """Whether kernels made for lanes can be compiled; if not, a sentence says why."""
    why = None if find_spec("triton") is not None else "Triton is not installed"
    try:
        lane_step.kernels(device)
    except CudaError as error:
        why = str(error)
    if why:
        warnings.warn(f"torch's own kernels train small models, several times as slowly: {why}", stacklevel=2)
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
    which = torch.tensor([place[id(vector)] for vector in vectors])
    return torch.stack(list(different.values())).index_select(0, sent(which, vectors[0].device))


def _begins(chosen: Sequence[Lane]) -> list[tuple[Tensor, Tensor]]:
    """Where every lane begins: its vector and buffers. Lanes of one run that remember nothing begin in one place."""
    known: dict[int, tuple[Tensor, Tensor]] = {}
    starts = []
    for lane in chosen:
        start = None if lane.own else known.get(id(lane.work))
        if start is None:
            shared = lane.job.algorithm.local.start(lane.work.vector, lane.work.buffers, lane.own)
            start = lane.job.assembled(*shared, lane.own)
            known[id(lane.work)] = start
        starts.append(start)
    return starts
