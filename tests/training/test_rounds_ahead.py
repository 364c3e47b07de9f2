"""A round that begins before the host knows what came of the one before: the run is the same, byte for byte."""

from dataclasses import replace

import pytest
import torch

import accord
from accord.data import Federation
from accord.engines.vectorised import Vectorised
from accord.training.hooks import Event
from conftest import blobs, mlp

ALGORITHMS = [
    accord.fedavg(),
    accord.fedadam(mask=accord.gma(0.4)),
    accord.fedavg(average=accord.corrective(0.3, passes=2)),
    accord.scaffold(),
    accord.pooled(),
    accord.local_only(),
]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds that engines begin, which do so ahead of time though the device is a CPU."""
    rounds: list[int] = []
    begin = Vectorised.begin

    def noted(engine: Vectorised, work: object, cohort: object) -> object:
        rounds.append(work.round)
        return begin(engine, work, cohort)

    monkeypatch.setattr(Vectorised, "begin", noted)
    monkeypatch.setattr(Vectorised, "ahead", property(lambda engine: engine))
    return rounds


def with_nan(fed: Federation) -> Federation:
    """One client's samples are NaN."""
    x = fed.x.clone()
    x[fed.train[fed.clients[2]]] = float("nan")
    return replace(fed, x=x)


def train(fed: Federation, algorithm: accord.Algorithm, **more: object) -> accord.Run:
    settings = {"rounds": 12, "sample": 4, "batch": 8, "evaluate_every": 5, "engine": "vectorised", "device": "cpu"}
    return accord.fit(mlp(), fed, algorithm, **{**settings, **more})


def told(run: accord.Run) -> tuple[list[dict], bytes]:
    return run.rows, run.last.vector.numpy().tobytes()


@pytest.mark.filterwarnings("ignore::accord.training.loop.SkippedRound")
@pytest.mark.parametrize("fails", [False, True], ids=["sound", "a client fails"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_the_run_is_the_same(algorithm: accord.Algorithm, fails: bool, request: pytest.FixtureRequest) -> None:
    fed = with_nan(blobs()) if fails else blobs()
    plain = train(fed, algorithm)
    begun = request.getfixturevalue("begun")
    assert told(train(fed, algorithm)) == told(plain)
    assert sorted(set(begun)) == list(range(1, 13))
    assert fails or len(begun) == 12


def test_a_round_that_was_begun_from_a_model_that_never_came_is_begun_again(begun: list[int]) -> None:
    run = train(with_nan(blobs()), accord.fedavg())
    left_out = {row["round"] for row in run.rows if row["left_out"]}
    again = {number for number in begun if begun.count(number) > 1}
    assert again and again <= {number + 1 for number in left_out}


def test_a_hook_ends_a_run_whose_next_round_has_begun(begun: list[int]) -> None:
    weights = []

    def hook(event: Event) -> bool:
        weights.append(event.snapshot()[0].weight.clone())
        return event.round == 3

    run = train(blobs(), accord.fedavg(), hooks=[hook])
    assert run.rounds == 3 and begun == [1, 2, 3, 4]
    straight = train(blobs(), accord.fedavg(), rounds=3)
    assert torch.equal(run.last.vector, straight.last.vector)
    assert torch.equal(weights[-1], straight.model()[0].weight)


def test_no_round_begins_before_an_evaluation_that_may_end_the_run(begun: list[int]) -> None:
    train(blobs(), accord.fedavg(), rounds=4, evaluate_every=1, hooks=[lambda event: event.round == 2])
    assert begun == [1, 2]
