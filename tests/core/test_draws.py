"""Random draws: keyed, frozen, and the same on every device."""

import hashlib
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from accord.core import draws


def test_draws_are_frozen() -> None:
    """Numbers that may never change: a change would orphan every recorded run."""
    assert draws.permutation(8, 0, "batches", 1, "c0", 0).tolist() == [7, 6, 1, 4, 3, 0, 2, 5]
    assert draws.choose(100, 5, 0, "sample", 1).tolist() == [8, 44, 64, 65, 76]
    assert draws.uniform(2, 0, "lost", 1).tolist() == [0.2644206283303411, 0.19955688293569807]
    assert draws.dirichlet([0.5, 0.5, 0.5], 0, "partition").tolist() == pytest.approx(
        [0.889781343689, 0.021426621687, 0.088792034624]
    )


def test_every_part_of_a_key_counts() -> None:
    keys = [
        draws.key(0, "a"),
        draws.key(1, "a"),
        draws.key(0, "b"),
        draws.key(0, "a", 1),
        draws.key(0, "a", "1"),
        draws.key(0, "a", 1, 1),
    ]
    assert len(set(keys)) == len(keys)


def test_a_key_is_a_hash_of_json() -> None:
    path = [1, -2, 'client "é" \n of 日本', True, 0.5]
    text = json.dumps([2**80, "batches", *path], separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    assert draws.key(2**80, "batches", *path) == int.from_bytes(digest, "little")


def test_a_stream_starts_anew_whatever_was_drawn_before() -> None:
    fresh = np.random.Philox(key=draws.key(7, "x", 1)).random_raw(9)
    for before in (1, 2, 3, 4, 5):
        draws.raw(before, 0, "another")
        assert (draws.raw(9, 7, "x", 1) == fresh).all()


@pytest.mark.parametrize("count", [1, 2, 499, 500, 512, 5000])
def test_the_order_of_equal_draws_is_kept(count: int) -> None:
    """Also of draws that differ in their last bits alone, where many are sorted with their places in those."""
    drawn = draws.raw(count, 0, "x")
    few, close = drawn % np.uint64(7), drawn % np.uint64(1024) + np.uint64(1 << 40)
    equal = np.full(count, np.iinfo(np.uint64).max)
    late = drawn.copy()
    late[-2:] = late[0]
    for values in (drawn, few, close, equal, late):
        order = draws.stable_order(values)
        assert order.dtype == np.int64 and (order == values.argsort(kind="stable")).all()


@pytest.mark.parametrize("counts", [[], [5], [3, 1, 8, 8], [499, 2], [500, 3, 1500], [400] + [2] * 400])
def test_permutations_together_are_those_alone(counts: list[int]) -> None:
    paths = [(round, f"c{round}") for round in range(len(counts))]
    found = draws.permutations(counts, 4, "x", paths)
    alone = [draws.permutation(n, 4, "x", *path) for n, path in zip(counts, paths, strict=True)]
    assert [order.tolist() for order in found] == [order.tolist() for order in alone]


def test_a_draw_as_large_as_what_fills_up_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = np.iinfo(np.uint64).max
    monkeypatch.setattr(draws, "raw", lambda n, *key: np.array([largest, 1, 0, 2], dtype=np.uint64)[:n])
    found = draws.permutations([2, 4], 0, "x", [(1,), (2,)])
    assert [order.tolist() for order in found] == [[1, 0], [2, 1, 3, 0]]


def test_permutation_and_choice_are_what_they_say() -> None:
    assert sorted(draws.permutation(1000, 3, "x")) == list(range(1000))
    chosen = draws.choose(50, 20, 3, "x")
    assert len(set(chosen)) == 20 and (np.diff(chosen) > 0).all() and chosen.max() < 50


def test_uniform_is_uniform() -> None:
    values = draws.uniform(100_000, 0, "u")
    assert abs(values.mean() - 0.5) < 0.005 and abs(values.var() - 1 / 12) < 0.002
    assert values.min() >= 0 and values.max() < 1


def test_splitmix64_against_the_published_stream() -> None:
    """The first numbers of the generator from seed 1234567, as its reference implementation gives them."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    bits = draws.splitmix64(1234567, torch.arange(5))
    assert [int(b) % 2**64 for b in bits] == expected


def test_dropout_is_keyed_and_has_the_right_rate() -> None:
    x = torch.ones(200, 500)
    with draws.Routed(7) as mode:
        first, second = F.dropout(x, 0.3), F.dropout(x, 0.3)
    with draws.Routed(7):
        again = F.dropout(x, 0.3)
    assert mode.calls == 2
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert (first == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)
    assert first.max().item() == pytest.approx(1 / 0.7)


def test_dropout_ignores_torchs_generator_and_leaves_it_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with draws.Routed(1):
        nn.Dropout(0.5)(torch.ones(10))
    assert torch.equal(torch.get_rng_state(), before)


def test_feature_dropout_drops_whole_channels() -> None:
    with draws.Routed(3):
        out = nn.Dropout2d(0.5)(torch.ones(4, 32, 3, 3))
    per_channel = out.flatten(2)
    assert ((per_channel == 0).all(-1) | (per_channel == 2).all(-1)).all()
    assert 0 < (per_channel[..., 0] == 0).float().mean() < 1


def test_no_dropout_in_evaluation_or_at_rate_zero() -> None:
    x = torch.ones(5)
    with draws.Routed(3):
        assert torch.equal(nn.Dropout(0.5).eval()(x), x)
        assert torch.equal(nn.Dropout(0.0)(x), x)
        assert torch.equal(nn.Dropout(1.0)(x), 0 * x)
