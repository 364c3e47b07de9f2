"""Masks: numbers worked by hand, and the invariants of votes."""

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord import AccordError, and_mask, gma, masked, mean
from accord.core.layout import Layout
from accord.core.record import Record
from accord.core.reports import Reports
from accord.core.round import Round
from accord.rules.combine import combine
from accord.rules.masks import threshold


def reports_of(deltas: torch.Tensor) -> Reports:
    ones = torch.ones(len(deltas), 1)
    return Reports(deltas, ones, ones, ones[:, :0])


def lower(rule: gma | and_mask, record: Record, layout: Layout | None = None) -> torch.Tensor:
    layout = layout or Layout.flat(record["votes"].shape[-1])
    return rule.lower(record, {}, Round(1, layout, 10))[0]


# Ten clients by four coordinates: 7 against 3 (net 4), 6 against 4 (net 2), all alike, and 5 against 4 with one zero
# (net 1).
TEN = torch.stack(
    [
        torch.tensor([1.0] * 7 + [-1.0] * 3),
        torch.tensor([-2.0] * 6 + [0.5] * 4),
        torch.tensor([0.1] * 10),
        torch.tensor([1.0] * 5 + [-1.0] * 4 + [0.0]),
    ],
    dim=1,
)


def test_soft_mask_by_hand() -> None:
    assert combine(gma(0.4), TEN).mask.tolist() == pytest.approx([1.0, 0.2, 1.0, 0.1])


def test_hard_mask_by_hand() -> None:
    assert combine(and_mask(0.4), TEN).mask.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_rescale_divides_each_tensor_by_the_share_it_kept() -> None:
    layout = Layout.of(torch.nn.Linear(2, 1))  # a weight of two and a bias of one
    deltas = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]])  # kept: half of the weight, none of the bias
    record = and_mask().lift(reports_of(deltas), {})
    assert lower(and_mask(0.5, rescale=True), record, layout).tolist() == [2.0, 0.0, 0.0]


def test_masked_names_both() -> None:
    assert masked(0.3) == gma(0.3)
    assert masked(0.3, soft=False) == and_mask(0.3)


def test_a_coordinate_nobody_moves_has_no_agreement() -> None:
    lowered = combine(gma(0.4), torch.zeros(3, 2))
    assert lowered.mask.tolist() == [0.0, 0.0]  # nobody voted, so A = 0


@pytest.mark.parametrize("count", range(2, 101))
def test_ties_at_exactly_tau_pass_for_every_cohort_and_every_net_vote(count: int) -> None:
    """A net vote of v among n reaches tau = v / n, written as a decimal that is exact, and not the next hundredth above
    it."""
    for percent in range(101):
        least = threshold(percent / 100, count)
        assert Fraction(least, count) >= Fraction(percent, 100) > Fraction(least - 1, count)


def test_thresholds_are_exact_where_floats_are_not() -> None:
    assert threshold(0.3333333333, 30_000_000_000) == 9_999_999_999
    assert threshold(0.33333333331, 30_000_000_000) == 10_000_000_000
    assert threshold(0.07, 100) == 7  # 0.07 * 100 is 7.000000000000001
    assert threshold(0.1 + 0.2, 10) == 4  # what was written is 0.30000000000000004, and that is more than 3 of 10


@pytest.mark.parametrize("count", [10, 20, 50, 100])
def test_a_tie_at_exactly_tau_passes_whole_in_any_client_order(count: int) -> None:
    net = 4 * count // 10
    ups = (count + net) // 2
    column = torch.tensor([1.0] * ups + [-1.0] * (count - ups))
    for order in (torch.arange(count), torch.arange(count).flip(0), torch.randperm(count)):
        assert combine(gma(0.4), column[order, None]).mask.item() == 1.0
        assert combine(and_mask(0.4), column[order, None]).mask.item() == 1.0
        assert combine(and_mask(0.4001), column[order, None]).mask.item() == 0.0


cohorts = st.integers(1, 12).flatmap(
    lambda k: st.lists(st.lists(st.integers(-3, 3).map(float), min_size=5, max_size=5), min_size=k, max_size=k)
)


@settings(deadline=None, max_examples=150)
@given(rows=cohorts, tau=st.integers(0, 100).map(lambda t: t / 100), data=st.data())
def test_order_and_blocks_of_clients_change_neither_votes_nor_mask(
    rows: list[list[float]], tau: float, data: st.DataObject
) -> None:
    deltas = torch.tensor(rows)
    order = torch.tensor(data.draw(st.permutations(range(len(rows)))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows) - 1)))) if len(rows) > 1 else []
    bounds = [0, *cuts, len(rows)]
    for rule in (gma(tau), and_mask(tau)):
        whole = rule.lift(reports_of(deltas), {})
        parts = [rule.lift(reports_of(deltas[order][a:b]), {}) for a, b in pairwise(bounds)]
        added = parts[0]
        for part in parts[1:]:
            added = added + part
        assert torch.equal(whole["votes"], added["votes"])
        assert torch.equal(lower(rule, whole), lower(rule, added))


@settings(deadline=None, max_examples=100)
@given(rows=cohorts, tau=st.integers(0, 100).map(lambda t: t / 100))
def test_mask_bounds_and_signs(rows: list[list[float]], tau: float) -> None:
    """A mask lies in [0, 1], grows as tau falls, does not see a change of scale, and does not see a flip of all
    signs."""
    deltas = torch.tensor(rows)
    soft, hard = combine(gma(tau), deltas).mask, combine(and_mask(tau), deltas).mask
    assert ((soft >= 0) & (soft <= 1) & (hard <= soft)).all()
    assert (combine(gma(max(tau - 0.3, 0)), deltas).mask >= soft).all()
    assert torch.equal(combine(gma(tau), -3.5 * deltas).mask, soft)


def stepped(rule: object, deltas: torch.Tensor) -> torch.Tensor:
    lowered = combine(rule, deltas, torch.arange(1, len(deltas) + 1))
    return lowered.update if lowered.mask is None else lowered.mask * lowered.update


@pytest.mark.parametrize("make", [gma, and_mask])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bit_equal_to_averaging_where_the_mask_has_nothing_to_say(make: type, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    deltas = torch.randn(7, 1000).to(dtype)
    plain = stepped(mean(), deltas)
    assert torch.equal(stepped(make(0.0), deltas), plain)  # tau 0
    assert torch.equal(stepped(make(1.0), deltas[:1]), stepped(mean(), deltas[:1]))  # one client
    unanimous = deltas.abs()
    assert torch.equal(stepped(make(1.0), unanimous), stepped(mean(), unanimous))  # unanimity


@pytest.mark.parametrize("tau", [-0.1, 1.4, float("nan")])
@pytest.mark.parametrize("make", [gma, and_mask])
def test_tau_out_of_range_is_refused_with_its_value(make: type, tau: float) -> None:
    with pytest.raises(AccordError, match=r"tau must be between 0 and 1, got"):
        make(tau)
