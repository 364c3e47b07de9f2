"""What a server takes for a figure: everything that accord's metrics compute, also of a model that diverged, and
nothing that no data could give."""

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.core.losses import LOSSES, accuracy, smaller_is_better
from accord.core.measure import EVERY_NUMBER, declared, figure_of, group, in_range, per_sample
from accord.core.metric_names import METRICS

OF_GROUP = sorted(name for name, metric in METRICS.items() if declared(metric).of_group)
NUMBERS = ("mae", "r2")


def outputs(name: str, count: int, classes: int, spoil: float | None = None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count + classes)
    output = 3 * torch.randn(count, 1 if name in NUMBERS else classes, generator=generator)
    if spoil is not None:
        output[0] = spoil
    if name in NUMBERS:
        return output, torch.randn(count, 1, generator=generator)
    return output, torch.randint(0, classes, (count,), generator=generator)


def test_every_metric_has_a_range_and_every_one_of_a_group_a_check() -> None:
    assert all(declared(metric).range != EVERY_NUMBER for metric in METRICS.values())
    for name in OF_GROUP:
        measure = declared(METRICS[name])
        assert measure.could_be(measure.lift(*outputs(name, 20, 3)), 20)


def test_a_metric_of_yours_has_no_range_unless_it_declares_one() -> None:
    @functools.wraps(accuracy)
    def percent(output: Tensor, target: Tensor) -> Tensor:
        return 100 * accuracy(output, target)

    for metric in (percent, smaller_is_better(accuracy), lambda output, target: output[:, 0], group(lambda o, t: 9.0)):
        assert declared(metric).range == EVERY_NUMBER
    assert declared(per_sample(percent, range=(0.0, 100.0))).range == (0.0, 100.0)
    assert declared(accuracy).range == (0.0, 1.0)
    assert not group(lambda output, target: 9.0).could_be(torch.ones(3), 3)


@pytest.mark.parametrize("spoil", [None, math.nan, math.inf, 1e30])
@pytest.mark.parametrize("count", [1, 2, 57])
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("name", METRICS)
def test_what_a_metric_computes_is_in_range(name: str, classes: int, count: int, spoil: float | None) -> None:
    output, target = outputs(name, count, classes, spoil)
    measure = declared(METRICS[name])
    if not measure.of_group:
        total = torch.tensor([float(measure(output, target).double().sum())], dtype=torch.float64)
        assert in_range(total, measure.range, torch.tensor([count]).double())
        return
    figure = figure_of(name, measure, output, target, "all")
    assert figure is None or in_range(torch.tensor([figure]).double(), measure.range, torch.ones(1).double())
    assert measure.could_be(measure.lift(output, target), count)


def some(lifted: Tensor, change: Any) -> Tensor:
    changed = lifted.clone()
    change(changed)
    return changed


@pytest.mark.parametrize("name", [name for name in OF_GROUP if name != "perplexity"])
def test_what_is_not_that_of_so_many_samples(name: str) -> None:
    measure = declared(METRICS[name])
    lifted = measure.lift(*outputs(name, 20, 3))
    first = (0,) * lifted.ndim
    for bad in (
        lifted * 2,
        -lifted,
        lifted[..., :1],
        lifted[None],
        some(lifted, lambda of: of.__setitem__(first, 1e300)),
        some(lifted, lambda of: of.__setitem__(first, math.nan)),
    ):
        assert not measure.could_be(bad, 20)
    assert not measure.could_be(lifted, 21) and not declared(METRICS["accuracy"]).could_be(lifted, 20)


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("accuracy", 10.0, True),
        ("accuracy", 10.1, False),
        ("accuracy", -0.1, False),
        ("accuracy", math.nan, False),
        ("mae", -1.0, False),
        ("mae", 1e9, True),
        ("mae", math.nan, True),
        ("r2", 10.5, False),
        ("r2", -1e9, True),
    ],
)
def test_sums_of_ten_samples(name: str, value: float, fits: bool) -> None:
    bounds = declared(METRICS[name]).range
    assert in_range(torch.tensor([value]).double(), bounds, torch.tensor([10.0]).double()) == fits


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(("value", "samples", "fits"), [(-1.0, 10.0, False), (1e9, 10.0, True), (1e9, 0.0, False)])
def test_a_loss_is_not_below_0_and_over_no_samples_it_is_0(loss: Any, value: float, samples: float, fits: bool) -> None:
    bounds = declared(loss).range
    assert in_range(torch.tensor([value]).double(), bounds, torch.tensor([samples]).double()) == fits
