"""Metrics of a whole group: against scikit-learn, by hand, and pooled from what clients of a deployment would send."""

import functools
import math
import warnings

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch import Tensor, nn

from accord.core.measure import Measure, declared, figure_of, group, per_sample
from accord.core.metric_names import METRICS, auc, average_precision, balanced_accuracy, calibration_error, f1, mae, r2
from accord.core.predicted import BINS
from conftest import sentence

POOLED = [auc, average_precision, balanced_accuracy, calibration_error, f1]
NAN = math.nan


def scored(samples: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that know something of their targets."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, classes, (samples,), generator=generator)
    return torch.randn(samples, classes, generator=generator) + nn.functional.one_hot(target, classes), target


def test_two_classes_are_scikit_learns() -> None:
    output, target = scored(300, 2)
    probability, predicted = output.double().softmax(1)[:, 1].numpy(), output.argmax(1).numpy()
    assert auc(output, target) == pytest.approx(sklearn.metrics.roc_auc_score(target, probability))
    assert average_precision(output, target) == pytest.approx(
        sklearn.metrics.average_precision_score(target, probability)
    )
    assert f1(output, target) == pytest.approx(sklearn.metrics.f1_score(target, predicted))
    assert balanced_accuracy(output, target) == pytest.approx(
        sklearn.metrics.balanced_accuracy_score(target, predicted)
    )


def test_many_classes_are_scikit_learns_one_against_the_rest() -> None:
    output, target = scored(400, 5)
    probabilities, predicted = output.double().softmax(1).numpy(), output.argmax(1).numpy()
    rest = {"multi_class": "ovr", "average": "macro"}
    assert auc(output, target) == pytest.approx(sklearn.metrics.roc_auc_score(target, probabilities, **rest))
    one_hot = nn.functional.one_hot(target).numpy()
    expected = sklearn.metrics.average_precision_score(one_hot, probabilities, average="macro")
    assert average_precision(output, target) == pytest.approx(expected)
    assert f1(output, target) == pytest.approx(sklearn.metrics.f1_score(target, predicted, average="macro"))


def test_classes_that_a_group_lacks_are_left_out() -> None:
    """With most clients some class is missing, where scikit-learn's own average over classes is undefined."""
    output, target = scored(60, 5)
    output, target = output[target != 3], target[target != 3]
    probabilities = output.double().softmax(1).numpy()
    each = [sklearn.metrics.roc_auc_score(target == of, probabilities[:, of]) for of in (0, 1, 2, 4)]
    assert auc(output, target) == pytest.approx(np.mean(each))


def test_by_hand() -> None:
    # positives 0.9 and 0.4, others 0.6 and 0.1: three of four pairs are in order
    probability = torch.tensor([0.9, 0.4, 0.6, 0.1], dtype=torch.float64)
    output, target = probability.logit(), torch.tensor([1, 1, 0, 0])
    assert auc(output, target) == 0.75
    assert average_precision(output, target) == pytest.approx((1 / 1 + 2 / 3) / 2)
    # predicted 1, 0, 1, 0: one right of two predicted and of two that are there
    assert f1(output[:, None], target) == 0.5 and balanced_accuracy(output, target) == 0.5
    # confidences 0.9 (right), 0.6 (wrong), 0.6 (wrong), 0.9 (right), in two bins
    assert calibration_error(output, target) == pytest.approx(0.5 * 0.1 + 0.5 * 0.6)
    wanted, got = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[1.0], [2.0], [5.0]])
    assert r2(got, wanted) == pytest.approx(1 - 4 / 2)
    assert mae(got, wanted).mean() == pytest.approx(2 / 3)


def test_numbers_are_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    wanted = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    got = wanted + torch.randn(50, 3, generator=generator, dtype=torch.float64)
    assert r2(got, wanted) == pytest.approx(sklearn.metrics.r2_score(wanted, got))
    assert mae(got, wanted).mean() == pytest.approx(sklearn.metrics.mean_absolute_error(wanted, got))


def test_confident_scores_do_not_tie() -> None:
    """Probabilities of these logits are all 1, but their order is known."""
    assert auc(torch.tensor([80.0, 70.0, 60.0, 50.0]), torch.tensor([1, 1, 0, 0])) == 1.0


@pytest.mark.parametrize("metric", [auc, average_precision])
def test_one_class_has_no_figure(metric: Measure) -> None:
    output, target = scored(20, 3)
    assert metric(output, torch.zeros_like(target)) is None
    assert metric(output[:, :2], torch.ones_like(target)) is None


def test_undefined_elsewhere() -> None:
    no = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert f1(no, torch.tensor([0, 0])) is None  # class 1 is neither there nor predicted
    assert r2(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])) is None
    assert r2(torch.tensor([1.0, NAN]), torch.tensor([3.0, 4.0])) is None


@pytest.mark.parametrize("classes", [2, 4])
def test_nan_predictions_are_the_worst_there_are(classes: int) -> None:
    """Whatever a model could have said instead of NaN would have been at least as good; but for F1 of many classes,
    in which a wrong class is worse than none."""
    output, target = scored(40, classes)
    broken = output.clone()
    broken[::4] = NAN
    for metric in POOLED:
        figure = metric(broken, target)
        sign = -1 if metric.smaller_is_better else 1
        assert sign * figure < sign * metric(output, target)
        for said in range(0 if metric is f1 and classes > 2 else classes):
            instead = broken.clone()
            instead[::4] = 20.0 * nn.functional.one_hot(torch.tensor(said), classes)
            assert sign * figure <= sign * metric(instead, target) + 1e-9


def test_all_nan() -> None:
    output, target = torch.full((6, 2), NAN), torch.tensor([0, 1, 0, 1, 0, 1])
    assert [metric(output, target) for metric in POOLED] == [0.0, 0.5, 0.0, 1.0, 0.0]


def test_infinite_logits_count_as_what_they_say() -> None:
    target = torch.tensor([0, 1, 0, 1])
    output = torch.tensor([[math.inf, 0.0], [0.0, math.inf], [math.inf, -math.inf], [0.0, math.inf]])
    assert auc(output, target) == balanced_accuracy(output, target) == f1(output, target) == 1.0


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("metric", POOLED)
def test_pooled_over_clients(metric: Measure, classes: int) -> None:
    """Counts that clients add up give the figure of all samples: exactly, or, of a histogram, within its bins."""
    output, target = scored(2000, classes, seed=3)
    output[7] = NAN
    parts = zip(output.split(300), target.split(300), strict=True)
    pooled = metric.lower(sum(metric.lift(*part) for part in parts))
    exact = metric(output, target)
    histogram = metric in (auc, average_precision)
    assert pooled == pytest.approx(exact, abs=2 / BINS if histogram else 1e-12)


def test_a_histogram_is_the_metric_of_binned_scores() -> None:
    output, target = scored(500, 2)
    binned = np.floor(output.double().softmax(1)[:, 1].numpy() * BINS)
    for metric, by_sklearn in [
        (auc, sklearn.metrics.roc_auc_score),
        (average_precision, sklearn.metrics.average_precision_score),
    ]:
        assert metric.lower(metric.lift(output, target)) == pytest.approx(by_sklearn(target, binned), abs=1e-12)


def test_the_sums_of_r2() -> None:
    generator = torch.Generator().manual_seed(0)
    wanted = 100 + torch.randn(90, 2, generator=generator, dtype=torch.float64)
    got = wanted + torch.randn(90, 2, generator=generator, dtype=torch.float64)
    total = r2.lift(got[:40], wanted[:40]) + r2.lift(got[40:], wanted[40:])
    assert r2.lower(total) == pytest.approx(r2(got, wanted), abs=1e-9)
    assert r2.lower(r2.lift(got[:5], torch.full((5, 2), 0.1, dtype=torch.float64))) is None


def test_scikit_learn_warns_of_nothing() -> None:
    """Small groups of many classes are the rule here."""
    output, target = scored(4, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(isinstance(metric(output, target), float) for metric in POOLED)


def test_what_a_metric_declares() -> None:
    def near(output: Tensor, target: Tensor) -> Tensor:
        return (output - target).abs()

    assert not declared(near).of_group and not declared(near).smaller_is_better
    assert declared(per_sample(near, smaller_is_better=True)).smaller_is_better
    assert declared(group(near)).of_group
    assert declared(METRICS["accuracy"]).nan_counts_as == 0.0
    wrapped = functools.wraps(METRICS["accuracy"])(near)
    assert declared(wrapped)(torch.ones(1, 2), torch.zeros(1, 2)).tolist() == [[1.0, 1.0]]  # its own, not accuracy's
    smaller = [name for name, of in METRICS.items() if declared(of).smaller_is_better]
    assert smaller == ["calibration_error", "mae", "perplexity"]


def test_what_a_group_metric_of_a_user_may_give() -> None:
    output, target = scored(4, 2)

    def figure(value: object) -> float | None:
        return figure_of("mine", group(lambda output, target: value), output, target, "the test data")

    assert figure(None) is None and figure(NAN) is None and figure(torch.tensor(0.5)) == 0.5 and figure(1) == 1.0
    with sentence("the metric mine must give one number for a group of samples, or None, got Tensor of shape [2]"):
        figure(torch.zeros(2))
    with sentence("the metric mine must give one number", "got str"):
        figure("much")
    with sentence("the metric mine failed on the test data: division by zero"):
        figure_of("mine", group(lambda output, target: 1 / 0), output, target, "the test data")
