"""A class at every pixel, or at every place of a sequence: loss, accuracy and perplexity."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord.core.errors import AccordError
from accord.core.losses import accuracy, dense_cross_entropy
from accord.core.measure import declared
from accord.data import from_arrays

NONE = -100


def scores(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_by_hand() -> None:
    """Two places: log 2 where the classes are level, log(1 + e^-2) where the right one leads by 2. One is right."""
    output, target = torch.tensor([[[0.0, 0.0], [0.0, 2.0]]]), torch.tensor([[1, 1]])  # [1, places, classes]
    wanted = (math.log(2) + math.log(1 + math.exp(-2))) / 2
    output = torch.cat([output, torch.full((1, 2, 1), -1e9)], dim=2)  # a third class: no doubt which dimension it is
    assert dense_cross_entropy(output, target).item() == pytest.approx(wanted)
    assert dense_cross_entropy(output.movedim(2, 1), target).item() == pytest.approx(wanted)
    assert declared(accuracy)(output, target).tolist() == [0.5]
    assert accord.metrics.perplexity(output, target) == pytest.approx(math.exp(wanted))
    half = torch.tensor([[NONE, 1]])
    assert dense_cross_entropy(output, half).item() == pytest.approx(math.log(1 + math.exp(-2)))
    assert declared(accuracy)(output, half).tolist() == [1.0]
    assert accord.metrics.perplexity(output, half) == pytest.approx(1 + math.exp(-2))
    nowhere = torch.tensor([[NONE, NONE]])
    assert dense_cross_entropy(output, nowhere).tolist() == [0.0] == declared(accuracy)(output, nowhere).tolist()
    assert accord.metrics.perplexity(output, nowhere) is None


@pytest.mark.parametrize("shape", [(7,), (5, 6), (2, 3, 4)])
def test_is_torchs_of_each_sample(shape: tuple[int, ...]) -> None:
    output = scores(4, 9, *shape)
    target = torch.randint(0, 9, (4, *shape), generator=torch.Generator().manual_seed(1))
    target[0].view(-1)[:2] = NONE
    expected = torch.stack([F.cross_entropy(output[n : n + 1], target[n : n + 1]) for n in range(4)])
    for form in (output, output.movedim(1, -1)):
        torch.testing.assert_close(dense_cross_entropy(form, target), expected)
        parts = [accord.metrics.perplexity.lift(form[n : n + 2], target[n : n + 2]) for n in (0, 2)]
        pooled = accord.metrics.perplexity.lower(parts[0] + parts[1])
        assert pooled == pytest.approx(math.exp(F.cross_entropy(output, target).item()))
        assert accord.metrics.perplexity(form, target) == pytest.approx(pooled)


@pytest.mark.parametrize(
    ("output", "target", "sentence"),
    [
        ((2, 3, 3), (2, 3), "may have their classes in dimension 1 or in the last one"),
        ((2, 5), (2, 5), r"outputs of shape \(5,\) a sample are not scores of classes for targets of shape \(5,\)"),
        ((2, 5, 4), (2, 3), r"they should be \(classes, 3\) or \(3, classes\)"),
    ],
)
def test_outputs_that_do_not_fit(output: tuple[int, ...], target: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(AccordError, match=sentence):
        dense_cross_entropy(scores(*output), torch.zeros(target, dtype=torch.int64))


def pixels(labels: int = 3) -> accord.data.Federation:
    draw = torch.Generator().manual_seed(0)

    def owner() -> tuple[Tensor, Tensor]:
        x = torch.rand(12, 1, 6, 6, generator=draw)
        return x, (x[:, 0] * labels).long()

    return from_arrays({f"c{n}": owner() for n in range(4)}, unseen=1, heldout=0.25)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 1), nn.ReLU(), nn.Conv2d(8, 3, 1))


@pytest.mark.parametrize("engine", ["sequential", "processes", "vectorised"])
def test_segmentation_learns_on_every_engine(engine: str) -> None:
    run = accord.fit(net(), pixels(), rounds=12, batch=4, lr=0.5, engine=engine, verbose=False, device="cpu")
    last = run.history[-1][1].splits["unseen"].metrics
    assert list(last) == ["loss", "accuracy"]
    assert last["accuracy"].by_sample > 0.8  # type: ignore[operator]
    reference = accord.fit(
        net(), pixels(), rounds=12, batch=4, lr=0.5, engine="sequential", verbose=False, loss=nn.CrossEntropyLoss()
    )
    torch.testing.assert_close(run.last.vector, reference.last.vector, rtol=1e-3, atol=1e-4)


def test_several_labels_are_still_judged_by_their_loss() -> None:
    x, y = torch.rand(20, 4), torch.randint(0, 2, (20, 3))
    fed = from_arrays({"a": (x, y), "b": (x, y)}, heldout=0)
    run = accord.fit(nn.Linear(4, 3), fed, rounds=1, loss=nn.BCEWithLogitsLoss(), verbose=False)
    assert list(run.history[-1][1].splits["train"].metrics) == ["loss"]
    with pytest.raises(AccordError, match="several labels per sample take loss=torch.nn.BCEWithLogitsLoss()"):
        accord.fit(nn.Linear(4, 3), fed, rounds=1, verbose=False)


def test_a_pixel_with_a_class_that_the_model_has_not() -> None:
    with pytest.raises(AccordError, match=r"the model has 3 outputs.* but client c1 has label 3 in row"):
        accord.fit(net(), pixels(labels=4), rounds=1, verbose=False)
