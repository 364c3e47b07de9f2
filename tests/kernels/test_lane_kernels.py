"""Kernels made for lanes, and the modules that use them. Those in Triton need a CUDA device or Triton's interpreter;
those in CUDA C++ are emulated where there is no device."""

import importlib.util
import itertools
import os
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.layout import Layout
from accord.core.losses import cross_entropy
from accord.engines.vectorised import lane_layers
from accord.engines.vectorised.fuse import fused, made_for_lanes
from accord.engines.vectorised.lane_layers import LaneConv, LaneLinear
from accord.engines.vectorised.lanes import Model, gather, gradients, lanes_step_
from accord.kernels import lane_block, lane_linear, lane_norms, lane_step, segments
from accord.models import lenet
from accord.rules.local.optimisers import SGD, Adam
from accord.rules.local.step import Optimiser, Piece
from conftest import blobs, mlp
from emulation import emulate

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if CUDA else "cpu"
kernels = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no CUDA device here, and Triton does not interpret")


def close(found: Tensor, wanted: Tensor) -> bool:
    return bool((found.cpu() - wanted.cpu()).norm() <= 1e-5 * wanted.cpu().norm() + 1e-12)


def apart(values: Tensor) -> Tensor:
    """The same values with something between the lanes, as parameters of one flat buffer have it."""
    wide = torch.full((len(values), values[0].numel() + 5), float("nan"), device=values.device)
    wide[:, 3 : 3 + values[0].numel()] = values.reshape(len(values), -1)
    return wide[:, 3 : 3 + values[0].numel()].view(values.shape)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where there is no CUDA device, kernels in CUDA C++ are emulated."""
    if CUDA:
        return
    for module in (lane_step, lane_block):
        emulate(module, monkeypatch, tmp_path_factory)


def block(channels: int, size: int, kernels: int, taps: int, edge: int = 0, **after: bool) -> lane_block.Shape:
    return lane_block.Shape(channels, size, size, kernels, taps, taps, edge, edge, **after)


SHAPES = {
    "lenet's first": block(1, 28, 6, 5),
    "lenet's second": block(6, 12, 16, 5),
    "leaf-cnn's first": block(1, 28, 32, 5, 2),
    "leaf-cnn's second: channels by parts": block(32, 14, 64, 5, 2),
    "odd image": block(3, 9, 5, 3, 1),
    "more zeros than image": block(2, 7, 4, 5, 2),
    "one tap": block(2, 8, 20, 1),
    "even taps, image by parts": block(3, 40, 4, 4, 1),
    "taps that fill registers": block(5, 11, 40, 7, 3),
    "one pixel": block(4, 4, 3, 3),
    "oblong": lane_block.Shape(2, 5, 12, 3, 1, 4, 0, 2),
    "no pool": block(3, 9, 5, 3, 1, pool=False),
    "no pool, odd output": block(2, 12, 9, 4, pool=False),
    "nothing after it": block(4, 8, 6, 3, pool=False, relu=False),
    "pool alone": block(2, 10, 4, 5, 2, relu=False),
}


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_block_is_convolution_relu_and_max_pool(shape: lane_block.Shape, bias: bool) -> None:
    assert shape.fits
    torch.manual_seed(0)
    lanes, batch = 2, 3
    x = torch.randn(lanes, batch, shape.channels, shape.height, shape.width, device=DEVICE)
    weight = apart(torch.randn(lanes, shape.kernels, shape.channels, shape.high, shape.wide, device=DEVICE) * 0.3)
    more = torch.randn(lanes, shape.kernels, device=DEVICE) if bias else None
    out, which = lane_block.forward(x, weight, more, shape)
    g = torch.randn_like(out)
    dw, db = apart(torch.zeros_like(weight)), torch.empty(lanes, shape.kernels, device=DEVICE)
    lane_block.weight_gradients(x, g, which, shape, dw, db if bias else None)
    dx = lane_block.image_gradient(weight, g, which, shape)
    for lane in range(lanes):
        image, w = x[lane].double().requires_grad_(), weight[lane].double().requires_grad_()
        b = None if more is None else more[lane].double().requires_grad_()
        wanted = F.conv2d(image, w, b, padding=(shape.top, shape.left))
        wanted = F.relu(wanted) if shape.relu else wanted
        wanted = F.max_pool2d(wanted, 2) if shape.pool else wanted
        wanted.backward(g[lane].double())
        assert close(out[lane], wanted.detach()) and close(dw[lane], w.grad) and close(dx[lane], image.grad)
        assert b is None or close(db[lane], b.grad)
    alone, _ = lane_block.forward(x[1:], weight[1:], None if more is None else more[1:], shape)
    assert torch.equal(alone[0], out[1]), "a lane's bits do not depend on the others"


@pytest.mark.usefixtures("emulated")
def test_a_diverged_lane_stays_nan_and_leaves_the_others_alone() -> None:
    x, weight = torch.randn(2, 2, 1, 8, 8, device=DEVICE), torch.randn(2, 3, 1, 3, 3, device=DEVICE)
    alone, _ = lane_block.forward(x, weight, None, block(1, 8, 3, 3))
    weight[1] = float("nan")
    out, _ = lane_block.forward(x, weight, None, block(1, 8, 3, 3))
    assert bool(out[1].isnan().all()) and torch.equal(out[0], alone[0])


def test_blocks_without_kernels_are_told_beforehand() -> None:
    assert not block(1, 28, 6, 9).fits, "too many taps"
    assert not block(3, 128, 8, 3, 1).fits, "a channel that is too large"
    assert not block(1, 5, 8, 5).fits, "nothing is left once pooled"


@kernels
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("rows", [1, 20, 33])
def test_bias_and_relu_there_and_back(relu: bool, rows: int) -> None:
    y, bias, g = (
        torch.randn(3, rows, 70, device=DEVICE),
        torch.randn(3, 70, device=DEVICE),
        torch.randn(3, rows, 70, device=DEVICE),
    )
    before = y.clone().requires_grad_()
    more = bias.clone().requires_grad_()
    wanted = before + more[:, None]
    wanted = F.relu(wanted) if relu else wanted
    wanted.backward(g)
    lane_linear.finish_(y, bias, relu)
    assert torch.equal(y, wanted)
    into = apart(torch.zeros(3, 70, device=DEVICE))
    assert torch.equal(lane_linear.gradient_before(y, g, relu, into), before.grad)
    assert close(into, more.grad)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("size", [1500, 1501, 3], ids=["aligned", "not aligned", "tiny"])
@pytest.mark.parametrize(
    "given",
    [
        (),
        ("factor",),
        ("weight_decay", "gradients"),
        ("mu", "drift"),
        ("factor", "weight_decay", "gradients", "mu", "drift"),
    ],
)
@pytest.mark.parametrize("optimiser", [SGD(), Adam()], ids=["sgd", "adam"])
def test_a_step_is_that_of_plain_torch(given: tuple[str, ...], optimiser: Optimiser, size: int) -> None:
    torch.manual_seed(0)
    lanes, steps = 3, np.ones(1)
    kept = [f"kept {number}" for number in range(optimiser.vectors)]
    matrices = {
        name: torch.rand(lanes, size, device=DEVICE) + 0.1
        for name in ("w", *kept, "gradient", "gradients", "drift", "start")
    }
    numbers = [*optimiser.constants(0.1), *optimiser.corrections(0.1, steps)]
    columns = {name: torch.rand(lanes, 1, device=DEVICE) for name in ("factor", "weight_decay", "mu", *numbers)}
    count = torch.tensor([[4.0], [0.0], [1.0]], device=DEVICE)
    matrices["gradient"][1] = float("nan")  # the lane that rests may hold anything
    results = []
    for step in (partial(lanes_step_, optimiser), optimiser.fused):
        m = {name: value.clone() for name, value in matrices.items()}
        some = {name: m[name] for name in ("drift", "gradients") if name in given}
        piece = Piece(m["w"], m["start"], kept=[m[name] for name in kept], **some)
        rates = {name: columns[name] for name in (*numbers, *given) if name in columns}
        step(m["gradient"], piece, count=count, **rates)
        results.append([m[name] for name in ("w", *kept, "gradients")])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-6)
    assert torch.equal(results[1][0][1], matrices["w"][1])


# ------------------------------------------------------------------------------------------ rewritten modules


def test_a_fused_model_has_the_same_parameters_and_gives_the_same() -> None:
    model = nn.Sequential(
        lenet(), nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 3)), nn.ReLU()
    )
    twin = fused(model)
    assert [name for name, _ in twin.named_parameters()] == [name for name, _ in model.named_parameters()]
    kinds = [type(part) for part in twin.modules()]
    assert kinds.count(LaneConv) == 2 and kinds.count(LaneLinear) == 5
    x = torch.randn(4, 1, 28, 28)
    assert torch.equal(twin(x), model(x))
    assert not any(isinstance(part, LaneConv | LaneLinear) for part in model.modules()), "the original is left alone"


def test_what_somebody_looks_at_is_not_fused() -> None:
    model, seen = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), []
    model[1].register_forward_hook(lambda *_: seen.append(1))
    twin = fused(model)
    twin(torch.randn(2, 4))
    assert len(seen) == 1 and type(twin[1]) is nn.ReLU


def test_a_layer_used_twice_keeps_its_own_relu() -> None:
    layer = nn.Linear(4, 4)
    x = torch.randn(5, 4)
    for model in (
        nn.Sequential(layer, nn.ReLU(), layer),
        nn.Sequential(nn.Sequential(layer, nn.ReLU()), nn.Sequential(layer)),
    ):
        assert torch.equal(fused(model)(x), model(x))


def test_other_precisions_and_kinds_stay_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(4, 3).double(), nn.ReLU(), nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2))
    assert [type(part) for part in fused(model)] == [type(part) for part in model]


class Picky(nn.Module):
    """A model whose forward pass takes single layers out of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[2](self.layers[0](x))


def test_a_model_that_picks_layers_stays_as_it_is() -> None:
    model, plain = Picky(), mlp()
    assert made_for_lanes(model, blobs()) is model
    assert isinstance(made_for_lanes(plain, blobs())[0], LaneLinear)


# ------------------------------------------------------------- where gradients are written to


class Twice(nn.Module):
    """One layer used twice, and another that shares its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tied, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4, bias=False)
        self.tied.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.tied(self.first(torch.tanh(self.first(x)))))


def _finish(y: Tensor, bias: Tensor | None, relu: bool) -> None:
    if bias is not None:
        y += bias[:, None]
    if relu:
        y.relu_()


def _gradient_before(y: Tensor, g: Tensor, relu: bool, into_bias: Tensor | None) -> Tensor:
    before = torch.where(y > 0, g, 0.0) if relu else g
    if into_bias is not None:
        into_bias.copy_(before.sum(1))
    return before


@pytest.fixture
def lanes_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers for lanes take lanes on the CPU too; what the linear ones do around their products is then plain torch."""
    if not CUDA:
        is_batched = torch._C._functorch.is_batchedtensor
        monkeypatch.setattr(lane_layers, "_with_lanes", lambda x: is_batched(x) and x.dtype == torch.float32)
    if not (CUDA or INTERPRETED):
        monkeypatch.setattr(lane_linear, "finish_", _finish)
        monkeypatch.setattr(lane_linear, "gradient_before", _gradient_before)


def mixed() -> nn.Module:
    """A layer in single precision under a vector in double precision: its gradient has to be cast."""
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), AsDouble(), nn.Linear(5, 4).double())


class AsDouble(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


def conv() -> nn.Module:
    """The 6 numbers of a sample as a picture of 6 x 6, so that convolutions have something to do."""
    return nn.Sequential(Outer(), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4))


class Outer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x[:, None, :, None] * x[:, None, None, :]).contiguous()


@pytest.mark.usefixtures("lanes_anywhere", "emulated")
@pytest.mark.parametrize(("make", "written"), [(mlp, 4), (Twice, 4), (mixed, 0), (conv, 4)])
def test_gradients_are_written_where_they_belong(make: Callable[[], nn.Module], written: int) -> None:
    torch.manual_seed(0)
    module = make().to(DEVICE)
    layout, fed = Layout.of(module), blobs().to(DEVICE)
    w = layout.pack(module) + 0.1 * torch.randn(3, layout.size, device=DEVICE)
    rows, share = torch.arange(12, device=DEVICE).view(3, 4), torch.full((3, 4), 0.25, device=DEVICE)
    plain, ours = (Model(part, layout, fed, cross_entropy) for part in (module, fused(module)))
    assert len(ours.placed) == written
    wanted, losses = gradients(plain, w, {}, rows, share)
    found, same = gradients(ours, w, {}, rows, share)
    assert torch.allclose(found, wanted, atol=1e-5) and torch.allclose(same, losses, atol=1e-5)
    assert not list(ours.module.buffers()), "a place comes with one pass and goes with it"


def test_gradients_that_lie_elsewhere_are_copied() -> None:
    buffer = torch.zeros(2, 5)
    places = [buffer[:, :4].view(2, 2, 2), buffer[:, 4]]
    places[0].fill_(1.0)
    gather([places[0].movedim(0, 0), torch.full((2,), 7.0)], places)
    assert buffer.tolist() == [[1.0, 1.0, 1.0, 1.0, 7.0]] * 2
    gather([torch.full((2, 2, 2), 3.0), places[1]], places)
    assert buffer.tolist() == [[3.0, 3.0, 3.0, 3.0, 7.0]] * 2


@kernels
def test_norms_and_sums_of_segments_are_those_of_each_row() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 2500, device=DEVICE)
    assert close(lane_norms.by_kernel(x), x.norm(dim=1))
    bounds = torch.tensor([0, 3, 3, 700, 2400], device=DEVICE)  # the last samples are nobody's
    found = segments.segment_sums(x.double().view(2, 2, 2500), bounds)
    ends = bounds.tolist()
    wanted = torch.stack([x[:, a:b].double().sum(1) for a, b in itertools.pairwise(ends)], 1).view(2, 2, 4)
    assert torch.allclose(found, wanted, rtol=1e-12)
    assert torch.equal(segments.segment_sums(x[1:2].double(), bounds)[0], found.view(4, 4)[1]), "whoever goes along"
