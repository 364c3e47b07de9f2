"""Natural clients, shifts bound to their owners, further test sets, and preparation fitted to training data alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import accord
from accord.core.errors import AccordError
from accord.data import (
    CropFlip,
    Federation,
    Samples,
    Scale,
    Standardise,
    coloured,
    deal,
    fitted,
    natural,
    rotated,
    shifted,
    with_tests,
)
from accord.experiments.experiment import parse


def people(count: int = 6, each: int = 5, **changes: object) -> Samples:
    """`count` owners with `each` samples, interleaved, and three rows at the end that are nobody's."""
    owner = torch.cat([torch.arange(count).repeat(each), torch.full((3,), -1)])
    x = torch.arange(len(owner)).float()[:, None]
    fields = {"owner": owner, "owners": tuple(f"p{i}" for i in range(count)), **changes}
    return Samples(x, torch.arange(len(owner)) % 2, **fields)  # type: ignore[arg-type]


def owned(fed: Federation) -> dict[str, list[int]]:
    """Every client's rows, held-out ones included."""
    parts = {**{c: torch.cat([rows, fed.heldout.get(c, rows[:0])]) for c, rows in fed.train.items()}, **fed.unseen}
    return {client: sorted(rows.tolist()) for client, rows in parts.items()}


# -------------------------------------------------------------------------------------------- natural clients


def test_everybody_takes_part_with_their_own_rows() -> None:
    fed = natural(people(), heldout=0.2)
    assert owned(fed) == {f"p{i}": list(range(i, 30, 6)) for i in range(6)}
    assert all(len(rows) == 4 for rows in fed.train.values())
    assert fed.test is None and not fed.unseen  # rows that are nobody's are left alone


def test_nobodys_test_rows_are_the_test_set_and_somebodys_are_theirs() -> None:
    fed = natural(people(test=torch.tensor([0, 30, 31])))
    assert fed.test is not None and fed.test.tolist() == [30, 31]
    assert 0 in owned(fed)["p0"]


def test_those_set_apart_are_the_unseen_ones() -> None:
    samples = people(apart=frozenset({"p1", "p4"}))
    assert list(natural(samples).unseen) == ["p1", "p4"]
    few = natural(samples, clients=2, unseen=1)
    assert len(few.train) == 2 and len(few.unseen) == 1
    assert not {"p1", "p4"} & set(few.train) and set(few.unseen) < {"p1", "p4"}


def test_where_nobody_is_set_apart_those_who_do_not_take_part_are_unseen() -> None:
    fed = natural(people(), clients=4)
    assert len(fed.train) == 4 and set(fed.train) | set(fed.unseen) == {f"p{i}" for i in range(6)}
    assert len(natural(people(), unseen=2).train) == 4
    both = natural(people(), clients=3, unseen=1)
    assert (len(both.train), len(both.unseen)) == (3, 1)
    assert owned(natural(people(), clients=4, seed=1)).keys() == owned(natural(people(), clients=4, seed=1)).keys()
    assert any(set(natural(people(), clients=3, seed=s).train) != set(both.train) for s in range(5))


def test_a_population_trains_and_the_others_are_unseen() -> None:
    populations = {f"p{i}": "young" if i < 2 else "old" for i in range(6)}
    samples = people(populations=populations, apart=frozenset({"p0"}))
    fed = natural(samples, population="young")
    assert list(fed.train) == ["p1"] and set(fed.unseen) == {"p0", "p2", "p3", "p4", "p5"}
    assert fed.populations == populations


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clients": 7}, "clients must be at most 6, got 7"),
        ({"clients": 4, "unseen": 3}, "unseen must be at most 2, got 3"),
        ({"unseen": 6}, "unseen must be at most 5, got 6: one of the 6 clients must participate"),
        ({"population": "old"}, "population must be left out: data has none, got 'old'"),
    ],
)
def test_more_than_there_is_gets_a_sentence(options: dict, sentence: str) -> None:
    with pytest.raises(AccordError, match=sentence):
        natural(people(), **options)


def test_owners_must_be_known_and_have_samples() -> None:
    with pytest.raises(AccordError, match="split 'natural' needs data that say who they come from, and data does not"):
        natural(replace(people(), owner=None))
    with pytest.raises(AccordError, match="client p6 of data has no samples"):
        natural(replace(people(), owners=tuple(f"p{i}" for i in range(7))))
    with pytest.raises(AccordError, match="nobody can participate: every sample of data is in a test set"):
        natural(people(apart=frozenset(f"p{i}" for i in range(6))))
    with pytest.raises(AccordError, match="population must be one of old, young, got 'odd'"):
        natural(people(populations={f"p{i}": "young" if i else "old" for i in range(6)}), population="odd")


# ----------------------------------------------------------------------------------------------------- shifts


def pictures(clients: int = 4) -> Federation:
    x = torch.arange(60 * 36, dtype=torch.int64).remainder(256).to(torch.uint8).view(60, 1, 6, 6)
    return deal(
        x, torch.arange(60) % 10, clients=clients, unseen=1, heldout=0.2, test=torch.arange(50, 60), prepare=Scale()
    )


def test_clients_may_get_a_share_of_the_data() -> None:
    x, y, test = torch.zeros(110, 2), torch.arange(110) % 10, torch.arange(100, 110)
    whole, part, other = (
        deal(x, y, clients=5, test=test, share=share, seed=seed) for share, seed in ((1.0, 0), (0.25, 0), (0.25, 1))
    )
    rows = [{row for own in owned(fed).values() for row in own} for fed in (whole, part, other)]
    assert [len(some) for some in rows] == [100, 25, 25] and rows[1] < rows[0] and rows[1] != rows[2], (
        "drawn by the seed"
    )
    assert part.test is not None and part.test.tolist() == test.tolist(), "the test set stays whole"
    with pytest.raises(AccordError, match="share must be above 0 and at most 1, got 0: "):
        deal(x, y, clients=5, share=0)


def test_a_share_is_part_of_a_runs_name_and_not_for_natural_clients() -> None:
    names = [parse(f'[data]\nname = "digits"\n{line}').folder(0).name for line in ("", "share = 0.25", "share = 0.5")]
    assert len(set(names)) == 3
    assert len(parse('[data]\nname = "digits"\nclients = 3\nshare = 0.5\n').federation(0).train) == 3
    with pytest.raises(AccordError, match="data.share must be a number above 0 and at most 1, got 1.5"):
        parse("[data]\nshare = 1.5\n")
    with pytest.raises(
        AccordError, match="data.share is for clients that are made up, got 0.5: natural ones keep what is theirs"
    ):
        parse('[data]\nsplit = "natural"\nshare = 0.5\n')
    with pytest.raises(AccordError, match="share is for clients that are made up, got 0.5"):
        accord.data.mnist(split="natural", share=0.5)


def test_a_shift_knows_whose_every_row_is() -> None:
    fed = shifted(pictures(), coloured(), seed=0)
    assert fed.shift is not None and fed.shape == (3, 6, 6)
    owners = [*fed.train, *fed.unseen]
    for number, client in enumerate(owners):
        for rows in (fed.train.get(client), fed.heldout.get(client), fed.unseen.get(client)):
            assert rows is None or (fed.shift.owner[rows] == number).all()
    assert fed.test is not None and (fed.shift.owner[fed.test] == len(owners)).all()
    rows = fed.train[owners[0]]
    expected = fed.shift.tables["foreground"][0, fed.y[rows], 0][:, :, None, None] * fed.x[rows] / 255
    assert torch.allclose(fed.read(rows)[0], expected)


def test_a_shift_refuses_what_it_would_get_wrong() -> None:
    fed = pictures()
    with pytest.raises(
        AccordError, match="shift rotated goes by class, and the targets of data are numbers, not classes"
    ):
        shifted(replace(fed, y=fed.y + 0.5), rotated(), seed=0)
    with pytest.raises(
        AccordError, match=r"shift coloured needs pixels from 0 to 255 \(uint8\), and those of data are torch.float32"
    ):
        shifted(replace(fed, x=fed.x / 255), coloured(background=True), seed=0)


def test_colours_and_angles_of_the_test_set_are_nobodys() -> None:
    """Through the pixels themselves: the colour of a white pixel, for every sample of every client."""
    white = replace(pictures(), x=torch.full((60, 1, 6, 6), 255, dtype=torch.uint8))
    for shift in (coloured(), coloured("shared", 2), coloured(background=True)):
        fed = shifted(white, shift, seed=3)
        assert fed.test is not None
        theirs = torch.cat([fed.read(rows)[0][:, :, 0, 0] for split, _, rows in fed.groups() if split != "test"])
        fresh = fed.read(fed.test)[0][:, :, 0, 0]
        assert torch.cdist(theirs, fresh).min() > 0.02
    turned = shifted(pictures(), rotated(), seed=0)
    assert turned.shift is not None and turned.test is not None
    assert torch.equal(turned.read(turned.test)[0], Scale()(turned.x[turned.test]))
    assert (turned.shift.tables["turn"][:-1, :, 0] < 0.99).all() and (turned.shift.tables["turn"][-1, :, 0] == 1).all()


def test_a_shift_moves_along_and_is_part_of_a_runs_name(tmp_path: Path) -> None:
    model = accord.models.logistic(channels=3, size=6)
    runs = [
        accord.fit(model, fed, rounds=1, folder=tmp_path)
        for fed in (
            shifted(pictures(), shift, seed)
            for shift, seed in ((coloured(), 0), (coloured(), 1), (coloured("shared"), 0))
        )
    ]
    assert len({run.folder for run in runs}) == 3
    again = accord.fit(model, shifted(pictures(), coloured(), 0), rounds=1, folder=tmp_path)
    assert again.folder == runs[0].folder


@pytest.mark.parametrize("shape", [(3, 6, 6), (36,)])
def test_a_shift_needs_grey_pictures(shape: tuple[int, ...]) -> None:
    fed = deal(torch.zeros(60, *shape), torch.arange(60) % 10, clients=2)
    with pytest.raises(AccordError, match="shift coloured needs grey pictures, and data holds samples of shape"):
        shifted(fed, coloured(), seed=0)


def test_digits_below_five_are_one_class_and_the_split_still_goes_by_digit() -> None:
    fed = accord.data.digits(clients=5, split="exact", classes=2, shift="binary")
    assert fed.outputs == 2 and fed.shape == (3, 28, 28)
    plain = accord.data.digits(clients=5, split="exact", classes=2)
    assert all(torch.equal(fed.train[client], plain.train[client]) for client in plain.clients)
    assert torch.equal(fed.y, (plain.y >= 5).long())


# ----------------------------------------------------------------------------------------------- augmentation


class Seen(nn.Module):
    """Puts down what it was given; copies of it write to the same lists."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (SEEN if self.training else OTHER).append(x.detach().clone())
        return self.linear(x.flatten(1))


SEEN: list[torch.Tensor] = []
OTHER: list[torch.Tensor] = []


def test_training_is_augmented_and_evaluation_is_not() -> None:
    fed = replace(pictures(), augment=CropFlip(2))
    plain = {picture.numpy().tobytes() for picture in Scale()(fed.x)}
    SEEN.clear(), OTHER.clear()
    accord.fit(Seen(), fed, rounds=2, batch=4, device="cpu")
    first = torch.cat(SEEN[2:])  # after the look at the model before training
    assert sum(picture.numpy().tobytes() in plain for picture in first) < len(first) / 4
    assert all(picture.numpy().tobytes() in plain for batch in OTHER for picture in batch)
    SEEN.clear()
    accord.fit(Seen(), fed, rounds=2, batch=4, device="cpu")
    assert torch.equal(torch.cat(SEEN[2:]), first)  # the same draws, whatever ran before


# ----------------------------------------------------------------------------- further test sets, preparation


def test_further_test_sets_are_evaluated_under_their_names(tmp_path: Path) -> None:
    fed = pictures()
    np.savez(tmp_path / "usps.npz", x=np.zeros((7, 6, 6), dtype=np.uint8), y=np.arange(7))
    fed = with_tests(fed, {"usps": accord.data.DATASETS["arrays"].load(tmp_path / "usps.npz", None)})
    assert fed.others["usps"].tolist() == list(range(60, 67)) and len(fed.x) == 67
    run = accord.fit(accord.models.logistic(size=6), fed, rounds=1)
    evaluation = run.history[-1][1]
    assert evaluation["parts"]["test, usps"]["samples"] == 7 and evaluation["splits"]["test"]["samples"] == 10
    assert "test, usps" in str(run)
    with pytest.raises(
        AccordError, match=r"test set small holds torch.uint8 samples of shape \(1, 5, 5\), but data torch.uint8"
    ):
        with_tests(
            fed, {"small": Samples(torch.zeros(2, 1, 5, 5, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))}
        )


def test_further_test_sets_leave_the_labels_what_they_are() -> None:
    """Float labels, joined to classes, would turn everybody's classes into numbers, and the run into a regression."""
    fed, x = pictures(), torch.zeros(2, 1, 6, 6, dtype=torch.uint8)
    with pytest.raises(
        AccordError,
        match="test set usps has targets that are floats, but data has classes: save its y as whole numbers",
    ):
        with_tests(fed, {"usps": Samples(x, torch.tensor([0.0, 1.0]))})
    both = with_tests(fed, {"usps": Samples(x, torch.tensor([3, 4])), "svhn": Samples(x[:1] + 9, torch.tensor([5]))})
    assert both.y.dtype == torch.int64 and torch.equal(both.y[:60], fed.y)
    assert both.y[both.others["usps"]].tolist() == [3, 4] and both.x[both.others["svhn"]].unique().tolist() == [9]
    numbers = with_tests(replace(fed, y=fed.y.float()), {"usps": Samples(x, torch.tensor([3, 4]))})
    assert numbers.y.dtype == torch.float32


def test_further_test_sets_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        np.savez(tmp_path / place / "usps.npz", x=np.zeros((7, 4)), y=np.arange(7))
    mine = {"source": tmp_path / "here" / "usps.npz", "split": "iid", "clients": 2}
    fed = accord.data.arrays(tests=["~/there/usps.npz"], **mine)
    assert len(fed.others["usps"]) == 7
    with pytest.raises(
        AccordError, match=r"tests must differ in their names, got .*here/usps.npz and .*there/usps.npz"
    ):
        accord.data.arrays(tests=[tmp_path / "here" / "usps.npz", tmp_path / "there" / "usps.npz"], **mine)


def test_preparation_is_fitted_to_training_rows_alone() -> None:
    x = torch.tensor([[1.0, 7.0], [3.0, 7.0], [100.0, -5.0], [2.0, 7.0]])
    fed = Federation(
        x,
        torch.zeros(4).long(),
        {"a": torch.tensor([0]), "b": torch.tensor([1])},
        {"a": torch.tensor([3])},
        {"c": torch.tensor([2])},
    )
    assert fitted(fed) == Standardise((2.0, 7.0), (1.0, 0.0))
    # a column that is constant becomes 0, for clients of other values too
    assert fitted(fed)(torch.tensor([[3.0, 7.0], [3.0, 250.0]])).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert fitted(fed)(x).tolist() == [[-1, 0], [1, 0], [98, 0], [0, 0]]
    grey = torch.tensor([0, 255, 7], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    pictures = Federation(grey, torch.zeros(3).long(), {"a": torch.tensor([0, 1])}, unseen={"b": torch.tensor([2])})
    assert fitted(pictures) == Scale((0.5,), (0.5,))


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=2), min_size=2, max_size=30))
@settings(max_examples=50, deadline=None)
def test_fitted_columns_have_mean_0_and_spread_1_or_are_constant(values: list[list[float]]) -> None:
    x = torch.tensor(values)
    fit = fitted(Federation(x, torch.zeros(len(x)), {"all": torch.arange(len(x))}))
    assert isinstance(fit, Standardise)
    spread = torch.tensor([std or torch.inf for std in fit.std], dtype=torch.float64)
    exact = (x.double() - torch.tensor(fit.mean, dtype=torch.float64)) / spread
    assert exact.mean(0).abs().max() < 1e-6
    for column, own in zip(exact.T, x.T, strict=True):
        assert column.std(correction=0).item() == pytest.approx(0 if len(own.unique()) == 1 else 1, abs=1e-6)


def test_scrambling_unseen_and_held_out_data_leaves_the_fit_alone() -> None:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    fed = accord.data.from_samples(x, torch.arange(40) % 2, torch.arange(40) % 4, unseen=["3"], heldout=0.3)
    other = x.clone()
    other[torch.cat([*fed.heldout.values(), *fed.unseen.values()])] = 1e6
    assert fitted(fed) == fitted(replace(fed, x=other))


# -------------------------------------------------------------------------------------------- parts of splits


def test_participants_of_the_round_are_told_from_the_others() -> None:
    fed = pictures()
    evaluation = accord.fit(accord.models.logistic(size=6), fed, rounds=1, sample=1).history[-1][1]
    inside, outside = evaluation["parts"]["held-out, in this round"], evaluation["parts"]["held-out, not in it"]
    assert (inside["clients"], outside["clients"]) == (1, 3)
    assert inside["samples"] + outside["samples"] == evaluation["splits"]["heldout"]["samples"]
    whole = accord.fit(accord.models.logistic(size=6), fed, rounds=1).history[-1][1]
    assert "parts" not in whole  # everybody took part


def test_populations_are_told_apart() -> None:
    populations = {f"p{i}": "young" if i < 2 else "old" for i in range(6)}
    fed = natural(people(populations=populations, apart=frozenset({"p0", "p5"})), heldout=0.2)
    parts = accord.fit(accord.models.logistic(features=1, classes=2), fed, rounds=1).history[-1][1]["parts"]
    assert {name: part["clients"] for name, part in parts.items()} == {
        "held-out, old": 3,
        "held-out, young": 1,
        "unseen, old": 1,
        "unseen, young": 1,
    }


def test_samples_with_a_client_each_are_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    fed = accord.data.from_samples(x, [0, 1, 0, 1, 0, 1], [3, 1, 3, 1, 2, 9], heldout=0, test=[5])
    assert fed.x.data_ptr() == x.ctypes.data
    assert {client: rows.tolist() for client, rows in fed.train.items()} == {"1": [1, 3], "2": [4], "3": [0, 2]}
    assert fed.test is not None and fed.test.tolist() == [5]
    for bad, sentence in (
        ({"client": [1, 2]}, "client must have one entry for each of the 6 samples"),
        ({"test": [6]}, "test must be row numbers from 0 to 5, or true or false for each of 6 samples"),
        ({"test": [True] * 6}, "no client has a sample"),
    ):
        with pytest.raises(AccordError, match=sentence):
            accord.data.from_samples(**{"x": x, "y": [0] * 6, "client": [0] * 6, **bad})


@pytest.mark.parametrize("name", ["train", "heldout", "unseen", "test"])
def test_a_test_set_called_like_a_split_is_refused(name: str) -> None:
    """Tables and comparisons have figures by name: they would show the split's for the test set's."""
    fed = accord.data.from_samples([[0.0], [1.0], [2.0]], [0, 1, 1], ["a", "b", "b"], test=[2])
    with pytest.raises(AccordError, match=f"test set {name} is called like the data's own"):
        with_tests(fed, {name: Samples(torch.zeros(1, 1), torch.tensor([0]))})
    if name == "test":
        assert with_tests(replace(fed, test=None), {name: Samples(torch.zeros(1, 1), torch.tensor([0]))}).others
