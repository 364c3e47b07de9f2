"""Records as whole numbers: the sum within its bound, no silent wrap-around, and masks that cancel."""

import functools
import math
import operator
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import accord
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.reports import Reports
from accord.core.round import Round
from accord.privacy.secure_sum import FixedPoint, SecureSum, votes_bits, votes_form
from conftest import sentence


@settings(max_examples=60, deadline=None)
@given(data=st.data(), clients=st.integers(1, 300), bits=st.integers(12, 53), bound=st.floats(1e-6, 1e6))
def test_a_sum_is_right_within_half_a_step_per_client(
    data: st.DataObject, clients: int, bits: int, bound: float
) -> None:
    count = data.draw(st.integers(1, clients))
    form = FixedPoint(clients, bound, bits)
    values = (
        torch.rand(count, 7, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
        .mul(2)
        .sub(1)
        .mul(bound)
    )
    values[:, 0], values[:, 1] = bound, -bound  # the extremes, which must not wrap around
    shares = torch.stack([form.encode(row) for row in values])
    assert int(shares.min()) >= 0 and int(shares.max()) < 1 << bits
    found = form.decode(shares.sum(0), count)
    assert float((found - values.sum(0)).abs().max()) <= count * form.step / 2 + 1e-9 * count * bound
    assert torch.equal(found, form.decode(shares.sum(0) % (1 << bits), count)), (
        "reduced along the way or at the end is the same"
    )


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 7, 8, 10, 100, 1023, 1024])
def test_votes_take_as_few_bits_as_there_are_sums(clients: int) -> None:
    assert votes_bits(clients) == math.ceil(math.log2(2 * clients + 1))
    form = votes_form(clients)
    assert form.bits == votes_bits(clients) and form.levels >= 1
    for sign in (-1.0, 0.0, 1.0):
        total = sum(form.encode(torch.tensor([sign])) for _ in range(clients))
        assert form.decode(total, clients).item() == sign * clients, "whole votes stay whole"
    with (
        sentence(f"bits must be at least {votes_bits(clients)} to add {clients} clients, got {form.bits - 1}")
        if form.bits > 2
        else sentence("bits must be a whole number of at least 2, got 1")
    ):
        FixedPoint(clients, 1.0, form.bits - 1)


def test_nothing_wraps_around_in_silence() -> None:
    form = FixedPoint(clients=3, bound=1.0, bits=8)  # 127 // 3 = 42 levels
    assert form.levels == 42
    one = form.encode(torch.tensor([1.0]))
    assert form.decode(3 * one, 3).item() == pytest.approx(3.0)
    with sentence("a sum of 1 to 3 clients was declared, got 4"):
        form.decode(4 * one, 4)
    with sentence("the sum is larger than 2 clients can make it"):
        form.decode(3 * one, 2)
    for bad in (1.01, -1.01, math.inf, math.nan):
        with sentence("a value to be summed must lie between -1 and 1"):
            form.encode(torch.tensor([0.0, bad]))


def test_forms_that_make_no_sense() -> None:
    with sentence("bits must be at most 53", "got 54"):
        FixedPoint(3, 1.0, 54)
    with sentence("bound must be above 0 and finite, got 0.0"):
        FixedPoint(3, 0.0)
    with sentence("clients must be a whole number of at least 1, got 0"):
        FixedPoint(0, 1.0)


def reports(deltas: torch.Tensor) -> Reports:
    column = torch.ones(len(deltas), 1)
    return Reports(deltas, 120 * column, column, torch.zeros(len(deltas), 0))


@pytest.mark.parametrize(("weighting", "weight"), [("samples", 120.0), ("uniform", 1.0)])
def test_a_summed_record_gives_the_step_of_the_plain_one(
    weighting: Literal["samples", "uniform"], weight: float
) -> None:
    """Each client encodes its own record; the server adds, decodes and lowers what it never saw in parts."""
    algorithm, clients, size = accord.fedavg(mask=accord.gma(0.4), weighting=weighting), 20, 300
    deltas = torch.randn(clients, size, generator=torch.Generator().manual_seed(0)) + 0.3
    round = Round(1, Layout.flat(size), clients)
    memory = algorithm.init(round.layout, clients, torch.zeros(size))
    form = SecureSum(clients, bound=8.0 * weight)
    records = [form.encode(algorithm.lift(reports(delta[None]), memory)) for delta in deltas]
    total = functools.reduce(operator.add, records)
    plain, _, _ = algorithm.lower(algorithm.lift(reports(deltas), memory), memory, round)
    found, _, _ = algorithm.lower(form.decode(total), memory, round)
    assert plain.mask is not None and found.mask is not None
    assert torch.equal(found.mask.float(), plain.mask), "votes are exact, so the mask is"
    assert float((found.update - plain.update).abs().max()) <= form.form("delta").step / 2 / weight + 1e-6
    with sentence("a sum of 1 to 20 clients was declared, got 21"):
        form.decode(total + records[0])
    with sentence("a value to be summed must lie between"):
        form.encode(algorithm.lift(reports(9.0 * torch.ones(1, size)), memory))


def test_only_sums_can_be_summed() -> None:
    with sentence("a secure sum adds, and average.rows combines by rows"):
        SecureSum(3, 1.0).encode(Record(average=Record(rows=Field(torch.zeros(1, 4), "rows"))))


def test_the_server_sees_masked_shares_alone_and_gets_the_right_sum() -> None:
    cohort, size = ["ann", "bob", "cyd", "dee"], 4000
    form = FixedPoint(clients=4, bound=1.0, bits=20)
    values = {client: torch.full((size,), 0.1 * k) for k, client in enumerate(cohort)}
    sent = {client: form.masked(form.encode(x), client, cohort, secret=7) for client, x in values.items()}
    for client, share in sent.items():
        assert int(share.min()) >= 0 and int(share.max()) < 1 << 20
        # equal shares of 16 ranges, whatever the value: 15 degrees of freedom
        counts = torch.bincount(share >> 16, minlength=16).double()
        assert float(((counts - size / 16) ** 2 / (size / 16)).sum()) < 45, client
        hidden = torch.corrcoef(
            torch.stack([share.double(), form.masked(torch.zeros_like(share), client, cohort, secret=8).double()])
        )
        assert abs(float(hidden[0, 1])) < 0.08
    total = form.decode(sum(sent.values()), 4)
    assert torch.allclose(total, torch.full((size,), 0.6, dtype=torch.float64), atol=4 * form.step / 2)
    without = sum(share for client, share in sent.items() if client != "dee") & ((1 << 20) - 1)
    assert float((without.double() - sum(form.encode(values[c]) for c in cohort[:3]).double()).abs().mean()) > 1e5, (
        "noise, if one is missing"
    )


def test_masks_need_a_cohort() -> None:
    form = FixedPoint(3, 1.0)
    assert torch.equal(form.masks(5, "ann", ["ann"], secret=0), torch.zeros(5, dtype=torch.int64)), (
        "alone, there is nobody to hide among"
    )
    for cohort in (["bob"], ["ann", "ann"]):
        with sentence("a cohort must name each client once, 'ann' among them"):
            form.masks(5, "ann", cohort, secret=0)
