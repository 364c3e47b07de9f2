"""Models as people have them: several inputs, by name or by place, and answers that hold logits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import accord
from accord.core.errors import AccordError
from accord.data import Federation, from_arrays, from_samples, from_torch

QUIET: dict[str, Any] = {"rounds": 2, "lr": 0.1, "batch": 8, "verbose": False, "device": "cpu"}
ENGINES = ("sequential", "processes", "vectorised")


@dataclass
class Answer:
    logits: Tensor
    attention: None = None


class Reader(nn.Module):
    """Words, of which a mask says which are there, and a picture."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.pixels = nn.Embedding(20, 8), nn.Linear(4, 8)
        self.last = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 3))

    def read(self, ids: Tensor, mask: Tensor, picture: Tensor) -> Tensor:
        there = mask.unsqueeze(-1).float()
        text = (self.words(ids) * there).sum(1) / there.sum(1).clamp(min=1)
        return self.last(text + self.pixels(picture.flatten(1)))


class ByName(Reader):
    def forward(self, *, picture: Tensor, ids: Tensor, mask: Tensor) -> Answer:
        assert ids.dtype == torch.int64 and mask.dtype == torch.bool and picture.shape[1:] == (2, 2)
        return Answer(self.read(ids, mask, picture))


class ByPlace(Reader):
    def forward(self, ids: Tensor, mask: Tensor, picture: Tensor) -> Tensor:
        return self.read(ids, mask, picture)


class Flat(Reader):
    """The same by hand, of one tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return self.read(x[:, :5].long().clamp(0, 19), x[:, 5:10].bool(), x[:, 10:].float().view(-1, 2, 2))


def owner(number: int, count: int = 20) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(number)
    ids, mask = torch.randint(0, 20, (count, 5), generator=draw), torch.rand(count, 5, generator=draw) < 0.8
    return ids, mask, torch.rand(count, 2, 2, generator=draw), ids[:, 0] % 3


def named(ids: Tensor, mask: Tensor, picture: Tensor) -> dict[str, Tensor]:
    return {"ids": ids, "mask": mask, "picture": picture}


def by_hand(ids: Tensor, mask: Tensor, picture: Tensor) -> Tensor:
    return torch.cat([ids, mask, picture.flatten(1)], dim=1).double()


OWNERS = {f"owner-{number}": owner(number) for number in range(5)}


def federation(form: Any) -> Federation:
    """Of float64 what is given is made float32, in which these numbers are the same."""
    return from_arrays({who: (form(*x), y) for who, (*x, y) in OWNERS.items()}, unseen=1, heldout=0.2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("model", "form"), [(ByName, named), (ByPlace, lambda *x: x)])
def test_equals_the_same_model_of_one_tensor(engine: str, model: Any, form: Any) -> None:
    fed = federation(form)
    assert fed.fields is not None and fed.x.shape == (100, 14)
    found = accord.fit(model(), fed, engine=engine, **QUIET)
    expected = accord.fit(Flat(), federation(by_hand), engine=engine, **QUIET)
    assert torch.equal(found.last.vector, expected.last.vector)
    assert found.rows == expected.rows


def test_lanes_agree_with_one_by_one() -> None:
    one, many = (accord.fit(ByName(), federation(named), engine=name, **QUIET) for name in ("sequential", "vectorised"))
    torch.testing.assert_close(one.last.vector, many.last.vector, rtol=1e-4, atol=1e-6)


def test_the_model_comes_back_as_it_was_given() -> None:
    mine = ByName()
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    trained = accord.fit(mine, federation(named), **QUIET).model()
    ids, mask, picture, _ = owner(0)
    assert isinstance(trained(ids=ids, mask=mask, picture=picture), Answer)
    assert trained.state_dict().keys() == before.keys() and not trained._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    assert not mine._forward_pre_hooks


class Answers(nn.Module):
    """One tensor in, an answer with logits out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(14, 3)

    def forward(self, x: Tensor) -> Answer:
        return Answer(self.inner(x))


class Says(Answers):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.inner(x)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_logits_of_an_answer_are_what_counts(engine: str) -> None:
    runs = [accord.fit(model(), federation(by_hand), engine=engine, **QUIET) for model in (Answers, Says)]
    assert torch.equal(runs[0].last.vector, runs[1].last.vector) and runs[0].rows == runs[1].rows


class Items(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        return self.items[number]


def test_every_way_in_gives_the_same_samples() -> None:
    """Clients by arrays, all samples at once, Datasets of pairs, and of dictionaries as tokenisers make them."""
    expected = federation(named)
    parts = [torch.cat(part) for part in zip(*OWNERS.values(), strict=True)]
    x, y, whose = named(*parts[:3]), parts[3], np.repeat(list(OWNERS), 20)
    pairs = Items([({name: value[i] for name, value in x.items()}, y[i]) for i in range(100)])
    items = Items([{"labels": y[i], **{name: value[i].numpy() for name, value in x.items()}} for i in range(100)])
    feds = [from_samples(x, y, whose, unseen=1, heldout=0.2)]
    feds += [from_torch(data, whose, unseen=1, heldout=0.2) for data in (pairs, items)]
    feds += [from_arrays({"all": pairs, "more": items}, heldout=0)]
    for fed in feds[:3]:
        assert fed.fields == expected.fields and torch.equal(fed.x, expected.x) and torch.equal(fed.y, expected.y)
    assert torch.equal(feds[3].x, torch.cat([expected.x, expected.x]))


def test_a_tuple_with_an_array_for_each_sample_is_the_samples() -> None:
    x = tuple(np.full(3, float(number), dtype=np.float32) for number in range(4))
    assert from_samples(x, [0, 1, 0, 1], ["a", "a", "b", "b"], heldout=0).x.shape == (4, 3)


def test_a_recorded_run_goes_on_and_is_told_apart_by_its_fields(tmp_path: Path) -> None:
    names = []
    for fed in (federation(named), federation(lambda ids, mask, picture: named(ids, mask, picture.flatten(1)))):
        model = ByName() if not names else ByNameFlat()
        run = accord.fit(model, fed, folder=tmp_path, **QUIET)
        again = accord.fit(model, fed, folder=tmp_path, **QUIET | {"rounds": 3})
        assert again.folder == run.folder and again.rounds == 3
        names.append(run.folder)
    assert names[0] != names[1]


class ByNameFlat(Reader):
    def forward(self, *, picture: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        return self.read(ids, mask, picture.view(-1, 2, 2))


def test_predictions_of_a_loaded_run_are_those_of_its_model(tmp_path: Path) -> None:
    run = accord.fit(ByName(), federation(named), folder=tmp_path, **QUIET)
    ids, mask, picture, _ = owner(9)
    expected = run.model()(ids=ids, mask=mask, picture=picture).logits.softmax(1)
    data = {"picture": picture.numpy(), "ids": ids.numpy().astype(np.int32), "mask": mask}
    assert run.folder is not None
    for one in (run, accord.load(run.folder, model=ByName())):
        torch.testing.assert_close(one.predict(data).probabilities, expected)
    with pytest.raises(AccordError, match="the model takes ids: 5 int64, mask: 5 bool, .*: give a dict"):
        run.predict(ids)
    with pytest.raises(AccordError, match="an input of the data holds ids: 4 int64, but the first ids: 5 int64"):
        run.predict({**data, "ids": ids[:, :4]})


@pytest.mark.parametrize(
    ("clients", "sentence"),
    [
        ({"a": ({"ids": [[1]], "mask": [[1], [1]]}, [0])}, "the inputs of a have different numbers of samples: ids 1"),
        (
            {"a": ({"ids": [[1]]}, [0]), "b": ({"words": [[1]]}, [0])},
            "a sample of b has the inputs words, but the first one has ids",
        ),
        ({"a": ({"ids": [["x"]]}, [0])}, "input ids of a is list, not numbers of one shape"),
        ({"a": ({}, [0])}, "a sample has no inputs"),
    ],
)
def test_bad_inputs(clients: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AccordError, match=sentence):
        from_arrays(clients)


class Mostly(nn.Module):
    """A frozen base with a buffer, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base, self.head = nn.Linear(14, 8), nn.Linear(8, 3)
        self.base.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.base(x).relu())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_frozen_base_is_neither_sent_nor_changed(engine: str) -> None:
    model = Mostly()
    run = accord.fit(model, federation(by_hand), accord.fedavg(mask=accord.gma(0.4)), engine=engine, **QUIET)
    assert len(run.last.vector) == 8 * 3 + 3  # what a round's record adds up, masks and averages
    trained = run.model()
    assert torch.equal(trained.base.weight, model.base.weight) and torch.equal(trained.base.bias, model.base.bias)
    assert not torch.equal(trained.head.weight, model.head.weight)


def test_a_model_that_takes_other_arguments() -> None:
    with pytest.raises(
        AccordError, match="the model cannot read samples of ids: 5 int64, mask: 5 bool, picture: 2 x 2"
    ):
        accord.fit(Says(), federation(named), **QUIET)


def test_a_network_of_several_inputs_cannot_be_cut_in_two() -> None:
    with pytest.raises(AccordError, match="causalfed cuts a network of one input in two, and samples here are ids: 5"):
        accord.fit(nn.Sequential(nn.Linear(14, 4), nn.Linear(4, 3)), federation(named), accord.causalfed(), **QUIET)
