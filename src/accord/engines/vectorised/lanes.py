"""Local steps of many clients in lockstep. A lane is one client of one run.

The parameters of all lanes are one buffer `[L, P]`. A step gathers every lane's batch on the device, runs the model
once for all of them (`torch.func.vmap`: grouped convolutions, batched matrix products) and moves the whole buffer. A
lane that has finished, or whose batch is shorter than the others', is masked. On CUDA the step is captured once as a
graph and replayed (`replay.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from accord.attacks import flipped
from accord.core import draws
from accord.core.layout import Layout
from accord.core.losses import PerSample
from accord.core.record import State
from accord.data.federated import Federation
from accord.engines import speed
from accord.engines.vectorised.channels_last import Arrangement, last
from accord.engines.vectorised.convolve import Unfolded
from accord.engines.vectorised.lane_layers import placed
from accord.rules.local import Optimiser
from accord.rules.local.step import Piece, clipping, step_

COUNTS = ("samples", "steps", "met")  # of a lane: its training samples, its steps, and the samples it meets in them


@dataclass(frozen=True)
class Model:
    """What is the same for all lanes. The federation's samples are on the device.

    `tuned`: NVIDIA's compiler and Triton are there, and with them kernels made for lanes. `streams` says how lanes are
    run: None, all in one batched computation, which is best for small models; else each by itself, spread over these
    CUDA streams (none of them: one after another), which is best for models whose kernels are large.
    """

    module: nn.Module
    layout: Layout
    fed: Federation
    loss: PerSample
    tuned: bool = False
    speed: frozenset[str] = frozenset()
    streams: tuple[torch.cuda.Stream, ...] | None = None
    innermost: bool = False  # channels, of lanes that run by themselves: see `channels_last`

    @cached_property
    def arrangement(self) -> Arrangement:
        """How every lane's parameters lie in memory."""
        return Arrangement(self.layout, self.streams is not None, self.innermost)

    @cached_property
    def of_convolutions(self) -> list[int]:
        """The weights of convolutions in float32, by number."""
        named = self.module.named_modules()
        weights = {f"{name}.weight" for name, part in named if isinstance(part, nn.modules.conv._ConvNd)}
        entries = enumerate(self.layout.parameters)
        return [number for number, e in entries if e.name in weights and e.dtype == torch.float32]

    @cached_property
    def placed(self) -> dict[int, str]:
        """Parameters, by number, whose gradients layers write where they belong, and the buffers that say where: see
        `lane_layers`."""
        return placed(self.module, self.layout)

    @cached_property
    def losses_of_one(self) -> Callable[[State, Tensor, Tensor], Tensor]:
        """The losses `[B]` of one lane's samples, given its parameters and buffers."""

        def losses(state: State, x: Tensor, y: Tensor) -> Tensor:
            with speed.precision(self.speed, x.device):
                output = functional_call(self.module, state, (last(x) if self.innermost else x,))
            return self.loss(speed.widened(self.speed, output), y)

        return torch.compile(losses, dynamic=False) if "compile" in self.speed else losses


@dataclass
class Plan:
    """What the host sends for `S` steps of every lane. Numbers per lane are columns `[L, 1]`."""

    rows: Tensor  # [S, L, B], filled up with rows of the lane's own
    share: Tensor  # [S, L, B], of a sample in its lane's mean loss; 0 where it only fills up
    count: Tensor  # [S, L], how many samples count; 0: nothing to do for this lane
    columns: State  # numbers that all steps have in common: see `sending`
    numbers: State = field(default_factory=dict)  # [S, L, 1], of the optimiser's steps, where they differ by step
    dropout: Tensor | None = None  # [S, L], keys
    augment: Tensor | None = None  # [S, L], keys
    top: Tensor | None = None  # where some lane flips its labels: see `accord.attacks.flipped`
    rests: bool = True  # some lane has nothing to do in some step


@dataclass
class Lanes:
    """Where lanes start, and how far a round has come."""

    start: Tensor  # [L, P]
    buffers: State  # name -> [L, ...]
    optimiser: Optimiser  # of the class that all lanes' are of
    drift: Tensor | None = None  # [L, P]
    needs: frozenset[str] = frozenset()  # what is reported besides an update: see `accord.core.protocols.NEEDS`
    begun: bool = field(default=False, init=False)
    w: Tensor = field(init=False)
    loss: Tensor = field(init=False)  # [L], summed over samples
    kept: list[Tensor] = field(init=False)  # [L, P] each, by the optimiser
    gradients: Tensor | None = field(init=False)  # [L, P], where the sum of the steps' gradients is wanted
    last: Tensor | None = field(init=False)  # [L, P], where the gradient of the last step is wanted

    def begin(self) -> None:
        """Puts every lane where it starts. Memory is taken the first time, and is the same from then on."""
        if not self.begun:
            self.begun = True
            self.w = torch.empty_like(self.start, memory_format=torch.contiguous_format)
            self.loss = torch.empty(len(self.start), device=self.start.device)
            self.kept = [torch.empty_like(self.w) for _ in range(self.optimiser.vectors)]
            self.gradients = torch.empty_like(self.w) if "mean_gradient" in self.needs else None
            self.last = torch.empty_like(self.w) if "last_gradient" in self.needs else None
        _, *zero = self.moved
        self.w.copy_(self.start)
        for value in zero:
            value.zero_()

    @property
    def given(self) -> list[Tensor]:
        """What there is before the first step."""
        return [self.start, *([] if self.drift is None else [self.drift]), *self.buffers.values()]

    @property
    def moved(self) -> list[Tensor]:
        """What steps change besides buffers, of lanes that have begun."""
        return [value for value in (self.w, self.loss, *self.kept, self.gradients, self.last) if value is not None]


def advance(model: Model, lanes: Lanes, plan: Plan, step: Tensor) -> None:
    """Step number `step: [1]` of the plan, in place; it ends with the number of the next one."""
    rows, share, count = (part.index_select(0, step)[0] for part in (plan.rows, plan.share, plan.count))
    augment, dropout = (
        None if keys is None else keys.index_select(0, step)[0] for keys in (plan.augment, plan.dropout)
    )
    before = {name: value.clone() for name, value in lanes.buffers.items()}
    gradient, loss = gradients(model, lanes.w, lanes.buffers, rows, share, augment, dropout, plan.top)
    if before:
        active = count > 0
        for name, value in before.items():
            lanes.buffers[name].copy_(torch.where(active.view(-1, *[1] * (value.ndim - 1)), lanes.buffers[name], value))
    if plan.rests:  # a resting lane's share of 0 times a loss that overflowed would be NaN
        loss = torch.where(count > 0, loss, 0.0)
    lanes.loss.addcmul_(loss, count)
    if lanes.last is not None:
        lanes.last.copy_(torch.where(count.unsqueeze(1) > 0, gradient, lanes.last))
    fused = lanes.optimiser.fused if model.tuned and lanes.w.dtype == torch.float32 else None
    columns = {name: column for name, column in plan.columns.items() if name not in COUNTS}
    clip = columns.pop("clip", None)
    (fused or partial(lanes_step_, lanes.optimiser))(
        gradient,
        Piece(lanes.w, lanes.start, lanes.drift, lanes.gradients, lanes.kept),
        count=count.unsqueeze(1),
        factor=None if clip is None else clipping(gradient, clip),
        **columns,
        **{name: values.index_select(0, step)[0] for name, values in plan.numbers.items()},
    )
    step += 1


def lanes_step_(
    optimiser: Optimiser,
    gradient: Tensor,
    piece: Piece,
    *,
    count: Tensor,
    factor: Tensor | None = None,
    weight_decay: Tensor | None = None,
    mu: Tensor | None = None,
    **numbers: Tensor,
) -> None:
    """The local step of many lanes, `[L, P]`, with columns `[L, 1]` of numbers; a lane whose `count` is 0 keeps
    everything."""
    active = count > 0

    def if_active(value: Tensor | None) -> Tensor | None:
        return None if value is None else torch.where(active, value, 0.0)

    step_(
        [torch.where(active, gradient, 0.0)],
        [piece._replace(drift=if_active(piece.drift))],
        optimiser.move_,
        factor=factor,
        weight_decay=if_active(weight_decay),
        mu=if_active(mu),
        **{
            name: torch.where(active, value, optimiser.rest[name]) if name in optimiser.rest else value
            for name, value in numbers.items()
        },
    )


def gradients(
    model: Model,
    w: Tensor,
    buffers: State,
    rows: Tensor,
    share: Tensor,
    augment: Tensor | None = None,
    dropout: Tensor | None = None,
    top: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Each lane's gradient `[L, P]` and value `[L]` of its mean loss over rows `[L, B]`. Buffers are changed in
    place."""
    x, y = model.fed.read(rows, augment)
    if top is not None:
        y = flipped(y, top)
    with torch.enable_grad():
        # What fills a batch up is a sample of the lane's own, so a share of 0 never meets an infinity that is not the
        # lane's anyway.
        if model.streams is not None:
            gradient = torch.zeros_like(w)
            of_lanes = leaves_apart(model, w)
            losses = losses_apart(model, of_lanes, buffers, x, y, dropout)
            grads = iter(torch.autograd.grad(losses, list(chain(*of_lanes)), share, materialize_grads=True))
            for leaves, into in zip(of_lanes, gradient.unbind(0), strict=True):
                model.arrangement.gather(list(islice(grads, len(leaves))), into)
        else:
            leaves = [piece.requires_grad_() for piece in model.layout.pieces(w.detach())]
            gradient = torch.empty_like(w)
            places = model.layout.pieces(gradient)
            handed = {buffer: places[number] for number, buffer in model.placed.items()}
            output = outputs(model, leaves, {**buffers, **handed}, x, dropout)
            losses = model.loss(output.flatten(0, 1), y.flatten(0, 1)).view(rows.shape)
            parts = torch.autograd.grad(losses, leaves, share, materialize_grads=True)
            if handed:
                gather(parts, places)
            else:
                gradient = model.layout.flatten(parts, lead=rows.shape[:1])
    return gradient, (losses.detach() * share).sum(1)


def gather(parts: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    """Gradients by parameter to their places, the pieces of one buffer `[L, P]`. Those that lie there already, written
    by layers that were handed their place, stay."""
    for part, place in zip(parts, places, strict=True):
        if part.data_ptr() != place.data_ptr():
            place.copy_(part)


def outputs(
    model: Model, parameters: Sequence[Tensor], buffers: State, x: Tensor, dropout: Tensor | None = None
) -> Tensor:
    """`[L, B, ...]` of samples `[L, B, ...]`, each lane under its own parameters `[L, ...]`, buffers and dropout key
    `[L]`."""
    named = {e.name: parameter.to(e.dtype) for e, parameter in zip(model.layout.parameters, parameters, strict=True)}

    def one(parameters: State, buffers: State, x: Tensor, key: Tensor | None) -> Tensor:
        with nullcontext() if key is None else draws.Routed(key):
            return functional_call(model.module, {**parameters, **buffers}, (x,))

    with Unfolded() if x.is_cuda else nullcontext(), speed.precision(model.speed, x.device):
        output = vmap(one, in_dims=(0, 0, 0, None if dropout is None else 0))(named, buffers, x, dropout)
    return speed.widened(model.speed, output)


def leaves_apart(model: Model, w: Tensor) -> list[list[Tensor]]:
    """The parameters of every lane of `w: [L, P]`, to be differentiated by. In bfloat16, the weights of all
    convolutions are cast at once."""
    w, entries = w.detach(), model.layout.parameters
    pieces = [piece.to(e.dtype) for e, piece in zip(entries, model.arrangement.pieces(w), strict=True)]
    if "bf16" in model.speed:
        narrow = model.arrangement.pieces(w.to(torch.bfloat16))
        for number in model.of_convolutions:
            pieces[number] = narrow[number]
    return [[piece[lane].requires_grad_() for piece in pieces] for lane in range(len(w))]


def losses_apart(
    model: Model, of_lanes: Sequence[Sequence[Tensor]], buffers: State, x: Tensor, y: Tensor, dropout: Tensor | None
) -> Tensor:
    """`[L, B]`, the loss of every sample, lane by lane, given each lane's parameters. Where streams are given, lanes
    run side by side, forwards and backwards."""
    streams = model.streams or ()
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    losses = []
    for lane, leaves in enumerate(of_lanes):
        mine = streams[lane % len(streams)] if streams else None
        with torch.cuda.stream(mine), nullcontext() if dropout is None else draws.Routed(dropout[lane]):
            state = {name: value[lane] for name, value in buffers.items()}
            state |= {e.name: leaf for e, leaf in zip(model.layout.parameters, leaves, strict=True)}
            losses.append(model.losses_of_one(state, x[lane], y[lane]))
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    return torch.stack(losses)
