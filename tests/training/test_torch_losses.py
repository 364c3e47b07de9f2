"""Losses of torch's as people have them: they are asked for a number per sample."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord.core.losses import per_sample_loss
from accord.data import Federation
from conftest import blobs, mlp

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("loss", "output", "target", "expected"),
    [
        # log(1 + e^0) of a label that is there or not; a sample's labels are averaged
        (nn.BCEWithLogitsLoss(), [[0.0, 0.0]], [[1, 0]], [0.6931472]),
        (nn.BCEWithLogitsLoss(), [[0.0], [0.0]], [1, 0], [0.6931472] * 2),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0)), [0.0, 0.0], [1, 0], [3 * 0.6931472, 0.6931472]),
        (nn.BCEWithLogitsLoss(reduction="sum"), [[0.0, 0.0]], [[1, 0]], [2 * 0.6931472]),
        (nn.MSELoss(), [[1.0], [3.0]], [2.0, 5.0], [1.0, 4.0]),  # not the square of all pairs
        (nn.L1Loss(), [[1.0, 2.0]], [[2.0, 5.0]], [2.0]),
        (F.mse_loss, [1.0, 3.0], [2.0, 5.0], [1.0, 4.0]),
        (functools.partial(F.huber_loss, delta=1.0), [0.0], [3.0], [2.5]),
        (nn.CrossEntropyLoss(), [[0.0, 0.0]], [1], [0.6931472]),
    ],
)
def test_by_hand(loss: Any, output: list, target: list, expected: list[float]) -> None:
    got = per_sample_loss(loss, CPU)(torch.tensor(output), torch.tensor(target))
    assert got.tolist() == pytest.approx(expected)
    if isinstance(loss, nn.Module):
        assert loss.reduction in ("mean", "sum")  # the user's own stays as it is


def test_what_gives_a_number_per_sample_is_left_alone() -> None:
    """Also because a run folder is named by it."""

    def mine(output: Tensor, target: Tensor) -> Tensor:
        return output[:, 0]

    for loss in (mine, nn.MSELoss(reduction="none"), functools.partial(F.mse_loss, reduction="none")):
        assert per_sample_loss(loss, CPU) is loss


@pytest.mark.parametrize("engine", ["sequential", "processes", "vectorised"])
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy])
def test_a_run_with_torchs_cross_entropy_is_the_run_without(engine: str, loss: Any) -> None:
    options: dict[str, Any] = {"rounds": 2, "lr": 0.1, "engine": engine, "verbose": False}
    found, expected = (accord.fit(mlp(), blobs(), loss=which, **options) for which in (loss, None))
    assert torch.equal(found.last.vector, expected.last.vector) and found.rows == expected.rows


def labelled(labels: int) -> Federation:
    """Samples whose features say which labels they have."""
    generator = torch.Generator().manual_seed(0)
    arrays = {}
    for client in "abc":
        x = torch.randn(60, 4, generator=generator)
        y = (x[:, :labels] > 0).long()
        arrays[client] = (x, y if labels > 1 else y[:, 0])
    return accord.data.from_arrays(arrays, heldout=0.2)


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_several_labels_per_sample(engine: str, tmp_path) -> None:
    torch.manual_seed(0)
    model, options = nn.Linear(4, 3), {"rounds": 20, "lr": 0.5, "engine": engine, "verbose": False}
    run = accord.fit(model, labelled(3), loss=nn.BCEWithLogitsLoss(), folder=tmp_path, **options)
    assert run.history[-1][1].metric.name == "loss"
    assert run.history[-1][1].splits["heldout"].metrics["loss"].by_sample < 0.3
    again = accord.fit(model, labelled(3), loss=nn.BCEWithLogitsLoss(), folder=tmp_path, **options)
    assert again.folder == run.folder  # recognised, though the loss is another object


def test_a_single_logit_for_two_classes() -> None:
    torch.manual_seed(0)
    metrics = ["accuracy", "auc", "f1", "balanced_accuracy"]
    run = accord.fit(
        nn.Linear(4, 1), labelled(1), rounds=20, lr=0.5, loss=nn.BCEWithLogitsLoss(), metrics=metrics, verbose=False
    )
    figures = run.history[-1][1].splits["heldout"].metrics
    assert all(figures[name].by_sample > 0.9 for name in metrics)
