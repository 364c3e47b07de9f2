"""Records of several runs as one, and apart again."""

import torch

from accord.core.record import Field, Record
from accord.rules.company import stacked, unstacked


def whole() -> Record:
    votes = Field(torch.arange(12.0).view(3, 4), kind="votes")
    return Record(average=Record(delta=Field(torch.ones(3, 4)), least=Field(torch.zeros(3, 1), "min")), votes=votes)


def test_each_runs_record_is_its_rows() -> None:
    record = unstacked(whole(), 3)[1]
    assert record["votes"].tolist() == [4.0, 5.0, 6.0, 7.0]
    described = {name: (field.how, field.kind, tuple(field.value.shape)) for name, field in record.fields().items()}
    assert described == {
        "average.delta": ("sum", "number", (4,)),
        "average.least": ("min", "number", (1,)),
        "votes": ("sum", "votes", (4,)),
    }


def test_all_runs_in_order_are_the_record_they_came_from_and_others_are_put_together() -> None:
    record = whole()
    runs, other = unstacked(record, 3), unstacked(whole(), 3)
    assert stacked(runs) is record
    assert stacked(runs[::-1])["votes"].tolist() == record["votes"].flip(0).tolist()
    assert stacked(runs[:2])["votes"].tolist() == record["votes"][:2].tolist()
    mixed = stacked([runs[0], other[1], runs[2]])
    assert mixed is not record and torch.equal(mixed["votes"], record["votes"])
