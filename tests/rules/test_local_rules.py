"""Settings of local training, schedules, and named algorithms."""

import pytest

import accord
from accord import AccordError
from accord.core import schedule
from accord.rules.local import Training, control_variates, prox, sgd
from accord.rules.named import ALGORITHMS


def test_schedules_by_hand() -> None:
    assert [schedule.exponential(1.0, 0.5).at(r) for r in (1, 2, 3)] == [1.0, 0.5, 0.25]
    assert [schedule.steps(1.0, every=2, decay=0.1).at(r) for r in (1, 2, 3, 5)] == pytest.approx([1.0, 1.0, 0.1, 0.01])
    cosine = schedule.cosine(1.0, over=10, floor=0.2)
    assert [cosine.at(r) for r in (1, 6, 11, 50)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert Training(lr=0.3).lr_at(7) == 0.3


def test_a_schedule_changes_the_rounds_it_says(fed) -> None:
    from conftest import mlp

    constant = accord.fit(mlp(), fed, rounds=1, sample=3, lr=0.1)
    stepped = accord.fit(mlp(), fed, rounds=1, sample=3, lr=schedule.steps(0.1, every=1, decay=0.5))
    assert (constant.last.vector == stepped.last.vector).all()
    constant = accord.fit(mlp(), fed, rounds=2, sample=3, lr=0.1)
    stepped = accord.fit(mlp(), fed, rounds=2, sample=3, lr=schedule.steps(0.1, every=1, decay=0.5))
    assert (constant.last.vector != stepped.last.vector).any()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Training(epochs=0), "epochs must be a whole number of at least 1, got 0"),
        (lambda: Training(epochs=True), "epochs must be a whole number of at least 1, got True"),
        (lambda: Training(batch=2.5), "batch must be a whole number of at least 1, got 2.5"),
        (lambda: Training(lr=0.0), "lr must be above 0, got 0.0"),
        (lambda: Training(lr=float("nan")), "lr must be above 0, got nan"),
        (lambda: Training(momentum=1.0), "momentum must be at least 0 and below 1, got 1.0"),
        (lambda: Training(weight_decay=-1.0), "weight_decay must be 0 or more"),
        (lambda: Training(clip=0.0), "clip must be above 0"),
        (lambda: prox(-1.0), "mu must be 0 or more, got -1.0"),
        (lambda: control_variates("III"), "option must be 'mean', 'I' or 'II', got 'III'"),
        (lambda: control_variates("II").check(momentum=0.9), "momentum must be 0 for SCAFFOLD.s option II, got 0.9"),
        (lambda: schedule.cosine(1.0, over=0), "over must be at least 1"),
        (lambda: schedule.cosine(1.0, over=5, floor=2.0), "floor must be between 0 and lr"),
        (lambda: schedule.steps(1.0, every=0), "every must be at least 1"),
        (lambda: schedule.steps(1.0, decay=0.0), "decay must be above 0"),
        (lambda: schedule.exponential(1.0, decay=1.5), "decay must be above 0 and at most 1, got 1.5"),
    ],
)
def test_bad_settings_are_refused(make, says: str) -> None:
    with pytest.raises(AccordError, match=says):
        make()


def test_the_papers_algorithms_are_combinations_of_parts() -> None:
    assert accord.fedprox(0.0).local.mu == accord.fedavg().local.mu == 0.0 and accord.fedavg().local == sgd()
    assert accord.fedadam(mask=accord.gma(0.3)).mask == accord.gma(0.3)
    assert accord.fedadam().server != accord.fedyogi().server
    assert accord.scaffold().needs == {"mean_gradient"}
    assert accord.scaffold("I").needs == {"start_gradient"}
    # frozen, so comparable and hashable
    assert {hash(make()) for make in ALGORITHMS.values()}.__len__() == len(ALGORITHMS)
