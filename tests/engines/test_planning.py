"""Batches as rectangular arrays: every lane's own, in their order; what fills up counts for nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from accord.core import draws
from accord.engines.contract import Member, Order, batches, orders
from accord.engines.vectorised import Vectorised
from accord.engines.vectorised.planning import padded, waves
from engine_jobs import make_job

RAGGED: list[Order] = [
    (np.arange(10, 16), [2, 2, 2]),
    (np.arange(20, 25), [2, 2, 1]),
    (np.arange(30, 33), [1, 2]),
    (np.arange(40, 41), [1]),
    (np.arange(50, 60), [2, 2, 2, 2, 2]),
]


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("pads", [True, False])
def test_every_lane_meets_its_batches_in_their_order(pads: bool, width: int, spare: bool) -> None:
    parts = waves(padded(RAGGED, width, spare), pads, spare)
    met: list[list[list[int]]] = [[] for _ in RAGGED]
    for part in parts:
        length = 1 << (part.steps - 1).bit_length() if spare else part.steps
        assert part.rows.shape[:2] == part.count.shape == (length, len(RAGGED)) and len(part.number) == length
        assert not part.count[part.steps :].any()
        for rows, counts, number in zip(part.rows, part.count.astype(int), part.number, strict=True):
            for lane, (own, count) in enumerate(zip(rows, counts, strict=True)):
                assert not count or number == len(met[lane])
                met[lane] += [own[:count].tolist()] if count else []
    for (rows, sizes), found in zip(RAGGED, met, strict=True):
        assert found == [part.tolist() for part in np.split(rows, np.cumsum(sizes)[:-1])]


def test_what_fills_up_is_the_lanes_own_and_has_no_share() -> None:
    plan = padded(RAGGED, 3)
    share = plan.share(np.dtype(np.float32))
    for step, counts in enumerate(plan.count.astype(int)):
        for lane, count in enumerate(counts):
            expected = [np.float32(1.0 / max(count, 1))] * count + [0.0] * (3 - count)
            assert share[step, lane].tolist() == expected
            assert set(plan.rows[step, lane]) <= set(RAGGED[lane][0])
    assert share.dtype == np.float32 and plan.rests


def test_lanes_that_share_an_order_have_it_twice() -> None:
    once, twice = padded(RAGGED[:2]), padded([RAGGED[0], RAGGED[1], RAGGED[0]])
    assert (twice.rows == once.rows[:, [0, 1, 0]]).all() and (twice.count == once.count[:, [0, 1, 0]]).all()


def test_batches_are_drawn_once_for_the_rows_of_a_client() -> None:
    """Of several runs in lockstep: by the rows themselves, also where a client's name or its rows' numbers are those of
    another run's client."""
    job = make_job(batch=8)
    engine = Vectorised(job)
    client, rows = next(iter(job.fed.train.items()))
    first, same, alike, fewer = (Member(client, of) for of in (rows, rows, rows.clone(), rows[:3]))
    (drawn,) = engine._drawn(job, 1, [first])
    assert engine._drawn(job, 1, [first])[0] is drawn and engine._drawn(job, 1, [same])[0] is drawn
    (again,), (short,) = engine._drawn(job, 1, [alike]), engine._drawn(job, 1, [fewer])
    assert again is not drawn and (again[0] == drawn[0]).all() and sum(short[1]) == 3
    assert engine._drawn(job, 1, [first])[0] is drawn and engine._drawn(job, 2, [first])[0] is not drawn
    ((_, half),) = engine._drawn(job, 1, [Member(client, rows, share=0.5)])
    assert 0 < len(half) < len(drawn[1])
    other = replace(job, fed=replace(job.fed))
    assert engine._drawn(other, 1, [Member(client, rows)])[0] is not drawn


@pytest.mark.parametrize("longest", [40, 1200])
def test_batches_of_many_clients_are_those_of_each(longest: int) -> None:
    """Shuffled anew each epoch, by a draw of their own, whoever else is in the round."""
    job = make_job(batch=8, epochs=3)
    sizes = {"a": 17, "b": longest, "none": 0, "slow": 24, "one": 1}
    members = [
        Member(name, torch.arange(size) * 7 + at, share=0.5 if name == "slow" else 1.0)
        for at, (name, size) in enumerate(sizes.items())
    ]
    together = orders(job, 5, members, least=2)
    for member, (rows, taken) in zip(members, together, strict=True):
        assert [part.tolist() for part in batches(job, 5, member, least=2)] == [
            part.tolist() for part in (torch.from_numpy(rows).split(taken) if taken else [])
        ]
    (rows, taken), slow = together[0], together[3][1]
    assert taken == [8, 9] * 3 and slow == [8] * 5 and together[2][1] == []
    for epoch in range(3):
        own = members[0].numbers[draws.permutation(17, job.seed, "batches", 5, "a", epoch)]
        assert (rows[17 * epoch : 17 * (epoch + 1)] == own).all()
