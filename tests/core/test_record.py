"""Records: three ways to combine, none of which mutates."""

import pytest
import torch

from accord.core.layout import Layout
from accord.core.record import Field, Record, tally, total, votes
from accord.core.reports import why_leave_out


def test_fields_combine_by_sum_minimum_and_rows() -> None:
    a = Record(
        s=Field(torch.tensor([1.0])), m=Field(torch.tensor([2.0]), "min"), r=Field(torch.tensor([[1.0, 2.0]]), "rows")
    )
    b = Record(
        s=Field(torch.tensor([10.0])), m=Field(torch.tensor([-1.0]), "min"), r=Field(torch.tensor([[3.0, 4.0]]), "rows")
    )
    both = a + b
    assert both["s"].item() == 11
    assert both["m"].item() == -1
    assert both["r"].tolist() == [[1, 2], [3, 4]]
    assert a["s"].item() == 1 and b["s"].item() == 10  # adding made a new record


def test_records_of_parts_add_part_by_part() -> None:
    nested = Record(part=Record(x=Field(torch.tensor([1.0]))))
    assert (nested + nested).part("part")["x"].item() == 2


def test_a_copy_shares_no_memory_and_fields_have_paths() -> None:
    value = torch.ones(2)
    record = Record(a=Field(value, kind="update"), part=Record(b=Field(value, kind="update")))
    apart = record.copy().add_(record)
    assert apart["a"].tolist() == apart.part("part")["b"].tolist() == [2.0, 2.0] and value.tolist() == [1.0, 1.0]
    assert {path: field.kind for path, field in record.fields().items()} == {"a": "update", "part.b": "update"}


def test_the_total_and_the_votes_of_one_pass_are_those_of_two() -> None:
    x, weight = torch.randn(9, 50), torch.rand(9, 1)
    both, apart = tally(x, weight), (total(x, weight), votes(x))
    assert all(torch.equal(one.value, other.value) for one, other in zip(both, apart, strict=True))
    assert [field.kind for field in both] == ["update", "votes"]


def test_records_of_different_rules_do_not_add() -> None:
    with pytest.raises(ValueError, match="different rules"):
        Record(a=Field(torch.zeros(1))) + Record(b=Field(torch.zeros(1)))
    with pytest.raises(ValueError, match="a sum of number met a min of number"):
        Record(a=Field(torch.zeros(1))) + Record(a=Field(torch.zeros(1), "min"))
    with pytest.raises(KeyError, match="the record has no 'b', only a"):
        _ = Record(a=Field(torch.zeros(1)))["b"]


def test_totals_with_leading_lanes() -> None:
    x = torch.randn(2, 5, 7)  # two runs in lockstep, five clients, seven parameters
    weight = torch.rand(2, 5, 1)
    assert torch.allclose(total(x).value, x.sum(1), atol=1e-6)
    assert torch.allclose(total(x, weight).value, (weight * x).sum(1), atol=1e-6)
    assert torch.equal(votes(x).value, x.sign().sum(1))


def test_every_report_is_checked_before_it_is_added() -> None:
    layout, good = Layout.flat(3), torch.ones(3)
    assert why_leave_out(good, 5, layout) is None
    assert why_leave_out(good, 0, layout) == "no samples"
    assert why_leave_out(torch.ones(4), 5, layout) == "wrong shape (4,), expected (3,)"
    assert why_leave_out(torch.tensor([1.0, float("nan"), 0.0]), 5, layout) == "NaN in the update"
    assert why_leave_out(torch.tensor([1.0, float("-inf"), 0.0]), 5, layout) == "infinity in the update"
    assert why_leave_out(good, 5, layout, torch.tensor([float("nan")])) == "NaN or infinity in the buffers"
    assert (
        why_leave_out(good, 5, layout, None, [torch.tensor([float("inf")])])
        == "NaN or infinity in what the client would remember"
    )


def test_sums_do_not_depend_on_how_clients_are_cut_into_blocks() -> None:
    x, weight = torch.randn(9, 50), torch.rand(9, 1)
    one_by_one = total(x[:1], weight[:1])
    for k in range(1, 9):
        one_by_one = one_by_one + total(x[k : k + 1], weight[k : k + 1])
    assert torch.allclose(one_by_one.value, total(x, weight).value, atol=1e-6)
    assert "x=Field" in repr(Record(x=one_by_one))
