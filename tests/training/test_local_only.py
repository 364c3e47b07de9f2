"""Clients that each have a model of their own: on what it is evaluated."""

import numpy as np

import accord
from accord.engines.contract import Table
from accord.training.local_only import merge_alone
from conftest import blobs, mlp


def test_own_models_on_own_data_and_their_mean_elsewhere() -> None:
    own = [Table([("train", c)], np.array([10]), {"loss": np.array([v])}) for c, v in (("a", 1.0), ("b", 2.0))]
    shared = [Table([("test", "test")], np.array([10]), {"loss": np.array([v])}) for v in (4.0, 8.0)]
    merged = merge_alone(own, shared)
    assert merged.groups == [("train", "a"), ("train", "b"), ("test", "test")]
    assert merged.sums["loss"].tolist() == [1.0, 2.0, 6.0]


def test_clients_that_train_alone_are_evaluated_on_the_same_draw() -> None:
    splits = []
    for algorithm in (accord.local_only(), None):
        run = accord.fit(mlp(), blobs(), algorithm, rounds=1, evaluate_samples=40)
        splits.append({name: split["samples"] for name, split in run.rows[-1]["evaluation"]["splits"].items()})
    assert splits[0]["train"] == 40 and splits[0] == splits[1]
