"""GroupNorm with channels innermost, what is added to it and ReLU, against torch in double precision."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.kernels import group_norm
from accord.kernels.group_norm import Shape
from emulation import emulate

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not CUDA:
        emulate(group_norm, monkeypatch, tmp_path_factory)


def innermost(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


SIDES = {
    "resnet's first layers": (64, 32, 2),
    "its last": (512, 4, 2),
    "one group, odd side": (8, 5, 1),
    "a group for every four channels": (24, 3, 6),
    "pixels that do not fill the last turn": (32, 21, 2),
    "one pixel": (16, 1, 2),
}


KINDS = [(False, False, torch.float32), (True, False, torch.float32), (True, True, torch.float32)]


@pytest.mark.parametrize(("relu", "more", "dtype"), [*KINDS, (True, True, torch.bfloat16)])
@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
def test_it_is_torchs_with_sum_and_relu(side: tuple[int, int, int], relu: bool, more: bool, dtype: torch.dtype) -> None:
    channels, size, groups = side
    shape = Shape(channels, size * size, groups, relu, more, dtype == torch.bfloat16)
    assert shape.fits
    torch.manual_seed(0)
    x, added, g = (innermost(torch.randn(3, channels, size, size, device=DEVICE).to(dtype)) for _ in range(3))
    weight, bias = torch.randn(channels, device=DEVICE), torch.randn(channels, device=DEVICE)
    y, statistics = group_norm.forward(x, weight, bias, added if more else None, 1e-5, shape)
    dx, dmore, (dweight, dbias) = group_norm.backward(x, y, g, weight, statistics, shape)

    leaves = [t.double().requires_grad_() for t in (x, weight, bias, added)]
    wanted = F.group_norm(leaves[0], groups, leaves[1], leaves[2], 1e-5)
    wanted = wanted + leaves[3] if more else wanted
    wanted = F.relu(wanted) if relu else wanted
    wanted.backward(g.double())
    found = [y, dx, dweight, dbias, *([dmore] if dmore is not None else [])]
    expected = [wanted, *(leaf.grad for leaf in leaves[: 4 if more else 3])]
    most = 1e-5 if dtype == torch.float32 else 5e-3
    for here, there in zip(found, expected, strict=True):
        assert there is not None
        assert (here.double() - there).norm() <= most * there.norm() + 1e-6
    assert y.is_contiguous(memory_format=torch.channels_last) and y.dtype == dtype


def test_a_constant_picture_a_nan_and_rounding_to_even() -> None:
    shape = Shape(8, 4, 1, relu=True, narrow=True)
    x = innermost(torch.full((2, 8, 2, 2), 3.0, device=DEVICE, dtype=torch.bfloat16))
    x[1, 0, 0, 0] = float("nan")
    y, _ = group_norm.forward(
        x, torch.ones(8, device=DEVICE), torch.full((8,), 1.00390625, device=DEVICE), None, 1e-5, shape
    )
    assert torch.equal(y[0], torch.ones_like(y[0])), "1 + 2^-8 lies between two numbers, and 1 is the even one"
    assert bool(y[1].isnan().all())


def test_what_has_no_kernel_is_told_beforehand() -> None:
    assert not Shape(64, 1024, 32).fits, "two channels a group"
    assert not Shape(64, 56 * 56, 2).fits, "a group that is too large for registers"
    assert not Shape(30, 16, 4).fits, "channels that groups do not divide"
