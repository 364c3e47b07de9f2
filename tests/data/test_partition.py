"""Splits: every sample has exactly one owner, and the skews are the ones docs/explanation/mathematics.md names."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.errors import AccordError
from accord.data.partition import SMALLEST, SPLITS, deal_classes, dirichlet, iid, labels, quantity


def classes_of(count: int, kinds: int) -> np.ndarray:
    return np.random.RandomState(count + kinds).permutation(np.arange(count) % kinds)


@pytest.mark.parametrize("split", SPLITS)
@given(clients=st.integers(1, 12), kinds=st.integers(1, 12), extra=st.integers(0, 300), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_sample_has_exactly_one_owner(split: str, clients: int, kinds: int, extra: int, seed: int) -> None:
    y = classes_of(max(40 * clients, kinds) + extra, kinds)
    classes = {"classes": max(-(-kinds // clients), min(2, kinds))}
    options = {"labels": classes, "exact": classes, "quantity": {"beta": 1.0}}.get(split, {})
    parts = SPLITS[split](y, clients, seed, **options)
    assert len(parts) == clients
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))


@pytest.mark.parametrize("split", SPLITS)
def test_the_same_seed_gives_the_same_owners_whatever_ran_before(split: str) -> None:
    y = classes_of(1000, 10)
    once = SPLITS[split](y, 10, 3)
    SPLITS[split](y, 7, 4)
    np.random.seed(5)
    again, other = SPLITS[split](y, 10, 3), SPLITS[split](y, 10, 4)
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


def test_iid_parts_are_equal_and_mixed() -> None:
    y = np.repeat(np.arange(10), 1000)  # sorted by class: only shuffling mixes it
    parts = iid(y, 7, seed=0)
    assert sorted({len(part) for part in parts}) == [1428, 1429]
    assert all(np.bincount(y[part], minlength=10).min() > 100 for part in parts)


@given(clients=st.integers(1, 40), kinds=st.integers(1, 25), data=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_main_classes_are_distinct_and_dealt_evenly(clients: int, kinds: int, data: st.DataObject, seed: int) -> None:
    classes = data.draw(st.integers(1, kinds))
    hands = deal_classes(clients, classes, kinds, seed)
    assert all(len(hand) == classes == len(set(hand)) for hand in hands)
    holders = np.bincount(np.concatenate(hands), minlength=kinds)
    assert holders.max() - holders.min() <= 1
    assert holders.sum() == clients * classes


def test_hands_differ_beyond_the_first_deck() -> None:
    hands = {tuple(sorted(hand)) for hand in deal_classes(50, 2, 10, seed=0)}
    assert len(hands) > 15  # one deck over and over would give 5


@given(clients=st.integers(5, 30), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_without_noise_clients_hold_their_main_classes_only(clients: int, seed: int) -> None:
    y = classes_of(3000, 10)
    parts = labels(y, clients, seed, classes=2, noise=0.0)
    for part, hand in zip(parts, deal_classes(clients, 2, 10, seed), strict=True):
        assert set(y[part].tolist()) == set(hand)


def test_labels_worked_by_hand() -> None:
    # 5 clients x 2 main classes of 10: each class has one owner. 1,000 samples, 100 of each class. noise 0.1 of the
    # data is 100 samples, 20 for each client; the other 900 go to the owner of their class.
    y = classes_of(1000, 10)
    hands, parts = deal_classes(5, 2, 10, seed=1), labels(y, 5, seed=1, classes=2, noise=0.1)
    counts = np.array([np.bincount(y[part], minlength=10) for part in parts])
    own = np.zeros((5, 10), dtype=bool)
    for client, hand in enumerate(hands):
        own[client, hand] = True
    # a client has 20 noise samples: those outside its main classes can be counted, 8 in 10 on average, never more than
    # 20
    outside = np.where(own, 0, counts).sum(axis=1)
    assert np.all(outside <= 20)
    assert 60 <= outside.sum() <= 95
    # each main class is whole, less what the noise took of it and gave to others
    inside = np.where(own, counts, 0).sum(axis=0)
    assert np.array_equal(inside, 100 - np.where(own, 0, counts).sum(axis=0))


def test_the_seed_shuffles_samples_within_a_class_too() -> None:
    y = classes_of(100, 2)
    one, other = (labels(y, 4, seed, classes=2, noise=0.0) for seed in (0, 1))  # everybody has both classes
    assert not np.array_equal(one[0], other[0])


def test_two_owners_share_a_class_in_near_equal_parts() -> None:
    y = np.repeat([0, 1, 2], [101, 50, 7])
    parts = labels(y, 6, seed=0, classes=1, noise=0.0)  # three classes over six clients: two owners each
    assert sorted(len(part) for part in parts) == [3, 4, 25, 25, 50, 51]


@pytest.mark.parametrize("noise", [0.25, 1.0])
def test_noise_is_a_share_of_the_data_dealt_evenly(noise: float) -> None:
    # One class holds nearly everything, so without noise nine of ten clients would own almost nothing.
    y = np.repeat(np.arange(10), [9910] + [10] * 9)
    sizes = np.sort([len(part) for part in labels(y, 10, seed=0, classes=1, noise=noise)])
    even = noise * 10_000 / 10
    assert np.all(sizes[:9] >= even)
    assert np.all(sizes[:9] <= even + 10)
    assert sizes[9] >= even + (1 - noise) * 9910 - 60


def test_small_alpha_is_more_skewed_than_large() -> None:
    y = classes_of(10_000, 10)

    def largest_share(alpha: float) -> float:
        counts = np.array([np.bincount(y[part], minlength=10) for part in dirichlet(y, 10, seed=0, alpha=alpha)])
        return float((counts.max(axis=1) / counts.sum(axis=1)).mean())

    skews = [largest_share(alpha) for alpha in (0.1, 1.0, 100.0)]
    assert skews[0] > 0.4 > skews[1] > 0.16 > skews[2]


@pytest.mark.parametrize("clients", [10, 100, 400])
def test_quantity_leaves_every_client_ten(clients: int) -> None:
    y = classes_of(60_000, 10)
    for seed in range(5):
        sizes = [len(part) for part in quantity(y, clients, seed)]
        assert min(sizes) >= SMALLEST == 10
        assert max(sizes) > 2 * 60_000 / clients  # and sizes do differ


def test_quantity_mixes_classes_evenly() -> None:
    y = np.repeat(np.arange(10), 1000)  # sorted by class: a run of rows would hold few classes
    largest = max(quantity(y, 10, seed=0), key=len)
    shares = np.bincount(y[largest], minlength=10) / len(largest)
    assert np.all((shares > 0.07) & (shares < 0.13))


def test_quantity_sizes_are_those_of_a_plain_redraw() -> None:
    # The plain way: draw all sizes again until none is short. Means by rank over many seeds must agree.
    random = np.random.RandomState(0)
    sizes = np.diff(
        np.round(np.cumsum(random.dirichlet([0.5] * 5, 60_000), axis=1)[:, :-1] * 100), prepend=0, append=100, axis=1
    )
    plain = np.sort(sizes[(sizes >= 10).all(axis=1)], axis=1)
    ours = np.sort([[len(part) for part in quantity(np.zeros(100), 5, seed)] for seed in range(600)], axis=1)
    assert np.allclose(ours.mean(axis=0), plain.mean(axis=0), atol=1.0)


BAD = [
    ("iid", {"clients": 0}, "clients must be a whole number of at least 1, got 0"),
    ("iid", {"clients": 2.0}, "clients must be a whole number of at least 1, got 2.0"),
    ("iid", {"clients": 101}, "clients must be at most the 100 samples, unseen ones included, got 101"),
    ("labels", {"noise": 1.4}, "noise must be between 0 and 1, got 1.4"),
    ("labels", {"noise": float("nan")}, "noise must be between 0 and 1, got nan"),
    ("labels", {"classes": 11}, "classes must be a whole number from 1 to the 10 classes of the data, got 11"),
    ("labels", {"classes": 0}, "from 1 to the 10 classes of the data, got 0"),
    ("labels", {"clients": 3, "classes": 2}, "take at least 4 main classes or 5 clients"),
    ("dirichlet", {"alpha": 0.0}, "alpha must be a number above 0, got 0.0"),
    ("dirichlet", {"alpha": 1e-4}, "no draw of 1,000 with alpha 0.0001 left each of 10 clients a sample"),
    ("quantity", {"beta": -1.0}, "beta must be a number above 0, got -1.0"),
    ("quantity", {"beta": 1e-9}, "take fewer clients, more data or a larger beta"),
    (
        "quantity",
        {"clients": 10, "beta": 0.5},
        "100 samples could not be cut for 10 clients with at least 10 each and beta 0.5",
    ),
    ("quantity", {"clients": 11}, "100 samples could not be cut for 11 clients"),
]


@pytest.mark.parametrize(("split", "options", "sentence"), BAD)
@pytest.mark.filterwarnings("error")
def test_a_bad_request_gets_a_sentence(split: str, options: dict, sentence: str) -> None:
    with pytest.raises(AccordError, match=re.escape(sentence)):
        SPLITS[split](classes_of(100, 10), **{"clients": 10, "seed": 0, **options})


def test_labels_must_be_one_per_sample() -> None:
    with pytest.raises(AccordError, match=re.escape("labels of shape (4, 2)")):
        labels(np.zeros((4, 2)), 2, seed=0)
    assert list(map(len, iid(np.zeros((4, 2)), 2, seed=0))) == [2, 2]  # which asks no labels
