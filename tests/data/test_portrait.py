"""A federation in numbers and in pictures: measures worked by hand, what is counted as whose, and what a preview
shows."""

import doctest
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from accord import AccordError
from accord.data import Federation, Scale, coloured, deal, from_arrays, portrait, preview, shifted, with_tests
from accord.data.portrait import between, effective_classes, label_skew, portray, sizes
from accord.data.samples import Samples

# --------------------------------------------------------------------------------------------- worked by hand


def test_the_examples_hold() -> None:
    assert doctest.testmod(portrait) == (0, 8)


def test_label_skew_is_the_mean_distance_from_all_labels_together() -> None:
    # together 3 and 5 of 8; distances 5/8, 1/8 and 3/8
    assert label_skew(np.array([[2, 0], [1, 1], [0, 4]])) == pytest.approx(3 / 8)
    assert label_skew(np.array([[7, 3, 2]])) == 0.0


@given(arrays(np.int64, (5, 4), elements=st.integers(0, 50)), st.permutations(range(5)))
@settings(max_examples=50, deadline=None)
def test_label_skew_is_a_share_whatever_the_order_of_clients(counts: np.ndarray, order: list[int]) -> None:
    counts[:, 0] += 1  # nobody has nothing
    skew = label_skew(counts)
    assert 0 <= skew < 1
    assert label_skew(counts[order]) == pytest.approx(skew)
    assert 1 <= effective_classes(counts) <= 4 + 1e-9


def test_effective_classes_are_the_exponential_of_the_entropy() -> None:
    # entropy of (3/4, 1/4): ln 4 - 3/4 ln 3
    assert effective_classes(np.array([[3, 1]])) == pytest.approx(4 / 3**0.75)
    assert effective_classes(np.array([[2, 2, 2, 2], [8, 0, 0, 0]])) == pytest.approx(2.5)


def test_the_share_of_variance_between_clients() -> None:
    # means 1 and 4 of 2 and 1 targets, mean of all 2: between 2 * 1 + 1 * 4 = 6, whole 4 + 0 + 4 = 8
    assert between([np.array([0.0, 2.0]), np.array([4.0])]) == pytest.approx(6 / 8)
    assert between([np.array([1.0, 3.0]), np.array([3.0, 1.0])]) == 0.0
    assert between([np.array([1.0, 1.0]), np.array([2.0])]) == 1.0
    assert between([np.array([5.0, 5.0]), np.array([5.0])]) == 0.0  # no variance to share


def test_sizes() -> None:
    # mean 25, deviations 15, 5, 5, 15: standard deviation sqrt(125)
    assert asdict(sizes([10, 20, 30, 40])) == pytest.approx(
        {"clients": 4, "least": 10, "median": 25, "most": 40, "total": 100, "variation": 125**0.5 / 25}
    )


# ----------------------------------------------------------------------------------------------- who has what


def numbered(y: list[int], **options: object) -> Federation:
    """Samples that are their own row numbers."""
    return deal(torch.arange(len(y), dtype=torch.float32).view(-1, 1), torch.tensor(y), **options)


def test_every_sample_is_counted_once_and_held_out_ones_with_their_client() -> None:
    fed = numbered([0, 1, 2] * 40, clients=4, unseen=2, heldout=0.25, test=torch.arange(12))
    fed = with_tests(fed, {"abroad": Samples(torch.zeros(5, 1), torch.tensor([0, 0, 0, 0, 4]))})
    told = portray(fed)
    assert [owner.kind for owner in told.owners] == ["participating"] * 4 + ["unseen"] * 2 + ["test"] * 2
    assert told.classes == ("0", "1", "2", "4"), "a class that nobody has needs no column"
    for owner in told.owners[:6]:
        own = torch.cat([rows[owner.name] for rows in (fed.train, fed.heldout, fed.unseen) if owner.name in rows])
        assert owner.counts == tuple(int((fed.y[own] == kind).sum()) for kind in (0, 1, 2, 4)) and owner.samples == 18
    test, abroad = told.owners[6:]
    assert (test.name, test.counts) == ("test", (4, 4, 4, 0)) and (abroad.name, abroad.counts) == (
        "test, abroad",
        (4, 0, 0, 1),
    )
    assert np.array([owner.counts for owner in told.owners]).sum(0).tolist() == [44, 40, 40, 1]
    assert told.sizes["participating"].total == 72 and told.sizes["unseen"].total == 36
    assert told.memory == {"data": 125 * (4 + 8), "rows": 8 * 125}


def test_classes_go_by_their_names() -> None:
    fed = replace(numbered([0, 1] * 10, clients=2), classes=("cat", "dog", "yak"))
    assert portray(fed).classes == ("cat", "dog", "yak"), "even one that nobody has"


def test_an_even_deal_stands_beside_the_measure() -> None:
    y = [0, 1, 2, 3] * 500
    even, skewed = (portray(numbered(y, split=split, clients=10, heldout=0)) for split in ("iid", "exact"))
    assert even.heterogeneity.found < 2 * even.heterogeneity.by_chance < 0.2
    assert skewed.heterogeneity.found > 0.4 and skewed.heterogeneity.by_chance < 0.1
    assert skewed.effective_classes is not None and even.effective_classes is not None
    assert 1.9 < skewed.effective_classes.found < 2.1 and 3.8 < skewed.effective_classes.by_chance <= 4
    assert even.effective_classes.found == pytest.approx(even.effective_classes.by_chance, abs=0.1)


def test_the_even_deal_is_keyed_by_the_seed_alone() -> None:
    fed = numbered([0, 1, 2, 3] * 30, split="labels", clients=6)
    assert portray(fed, seed=1) == portray(fed, seed=1)
    assert portray(fed, seed=1).heterogeneity.by_chance != portray(fed, seed=2).heterogeneity.by_chance


def test_numbers_as_targets_have_no_classes() -> None:
    clients = {"a": (np.zeros((2, 1)), np.array([0.0, 2.0])), "b": (np.zeros((1, 1)), np.array([4.0]))}
    told = portray(from_arrays(clients, heldout=0))
    assert told.classes == () and told.effective_classes is None and told.heterogeneity.found == pytest.approx(6 / 8)
    assert [(o.samples, o.mean, o.spread, o.counts) for o in told.owners] == [(2, 1.0, 1.0, ()), (1, 4.0, 0.0, ())]


def test_chance_alone_leaves_numbers_a_share_of_k_less_one_in_n_less_one() -> None:
    values = np.random.RandomState(0).randn(10, 12)
    fed = from_arrays({str(client): (np.zeros((12, 1)), own) for client, own in enumerate(values)})
    shares = [portray(fed, seed).heterogeneity.by_chance for seed in range(200)]
    assert np.mean(shares) == pytest.approx(9 / 119, rel=0.1)


def test_populations_shift_and_augmentation_are_told() -> None:
    fed = deal(torch.zeros(60, 1, 4, 4, dtype=torch.uint8), torch.arange(60) % 3, clients=3, unseen=1, seed=0)
    fed = shifted(
        replace(fed, populations=dict(zip(fed.train, ["north", "north", "south"], strict=True))),
        coloured(colours=2),
        seed=0,
    )
    told = portray(fed)
    assert {
        name: {kind: (s.clients, s.total) for kind, s in kinds.items()} for name, kinds in told.populations.items()
    } == {
        "north": {"participating": (2, 30)},
        "south": {"participating": (1, 15)},
    }
    assert (
        told.shift == {"kind": "coloured", "palette": "client", "colours": 2, "background": False}
        and told.augment is None
    )


def test_odd_federations() -> None:
    idle = from_arrays({"a": (np.zeros((4, 1)), [0, 0, 1, 1]), "b": (np.zeros((0, 1)), np.zeros(0, dtype=int))})
    assert portray(idle).sizes["participating"].least == 0 and portray(idle).heterogeneity.found == 0.0, (
        "who has nothing differs from nobody"
    )
    several = from_arrays({"a": (np.zeros((2, 1)), [[0, 1], [1, 0]])})
    with pytest.raises(AccordError, match="one label per sample, got labels of shape"):
        portray(several)


# --------------------------------------------------------------------------------------------------- pictures


def pictures(classes: int = 3, clients: int = 4, unseen: int = 0, **options: object) -> Federation:
    """Grey pictures of 5 x 7 pixels, all of one grey: their row number."""
    x = torch.arange(120, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 5, 7).contiguous()
    return deal(
        x,
        torch.arange(120) % classes,
        clients=clients,
        unseen=unseen,
        test=torch.arange(100, 120),
        name="greys",
        **options,
    )


def test_look_is_what_read_prepares() -> None:
    rows = torch.tensor([3, 50, 119])
    plain = pictures(prepare=Scale((0.5,), (0.25,)))
    assert torch.equal(plain.look(rows), plain.x[rows])
    assert torch.equal(plain.prepare(plain.look(rows)), plain.read(rows)[0])
    painted = shifted(plain, coloured(), seed=0)
    assert painted.look(rows).shape == (3, 3, 5, 7) and torch.equal(
        painted.prepare(painted.look(rows)), painted.read(rows, key=1)[0]
    )


def test_a_sheet_has_rows_by_owner_and_columns_by_class() -> None:
    fed = pictures(clients=5, unseen=4)
    sheet = preview.lay_out(fed, clients=2, samples=8)
    assert sheet.captions == ("0", "0", "1", "1", "2", "2"), "as many columns a class as there is room for"
    first, *_ = fed.train
    assert [strip.title for strip in sheet.strips] == [
        *list(fed.train)[:2],
        *(f"{name} (unseen)" for name in list(fed.unseen)[:3]),
        "test",
    ]
    own = sorted([*fed.train[first].tolist(), *fed.heldout[first].tolist()])
    assert sheet.strips[0].samples == tuple(
        row for kind in range(3) for row in [r for r in own if fed.y[r] == kind][:2]
    )
    assert sheet.strips[-1].samples == (102, 105, 100, 103, 101, 104), "the test set is the last"


def test_a_class_that_an_owner_lacks_leaves_a_gap() -> None:
    x, y = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), np.array([0, 0, 2])
    fed = from_arrays({"a": (x[:3], y), "b": (x[3:], y + 1)}, heldout=0)
    strips = preview.lay_out(fed).strips
    assert [strip.samples for strip in strips] == [
        (0, 1, None, None, 2, None, None, None),
        (None, None, 3, 4, None, None, 5, None),
    ]


def test_with_more_classes_than_columns_an_owner_shows_its_largest() -> None:
    y = np.array([7, 5, 5, 3, 3, 9, 9, 9])
    fed = from_arrays({"a": (torch.zeros(8, 1, 8, 8, dtype=torch.uint8), y)}, heldout=0)
    sheet = preview.lay_out(fed, samples=3)
    assert sheet.captions == () and sheet.strips[0].samples == (3, 1, 5), "classes 3, 5 and 9, in order"


def test_pictures_keep_their_shape_and_are_enlarged_a_whole_number_of_times() -> None:
    fed = pictures()
    assert preview.lay_out(fed).tile == (49, 35)
    large = from_arrays({"a": (torch.zeros(1, 3, 100, 400, dtype=torch.uint8), [0])})
    assert preview.lay_out(large).tile == (128, 32)


def test_a_drawing_shows_each_sample_in_its_place() -> None:
    fed = pictures(clients=2, unseen=1)
    sheet, drawn = preview.lay_out(fed, samples=3), np.asarray(preview.draw(fed, samples=3))
    left = drawn.shape[1] - sheet.size[0]  # the titles' room
    assert drawn.shape == (sheet.size[1], sheet.size[0] + left, 3) and left > 0
    for row, strip in enumerate(sheet.strips):
        for column, sample in enumerate(strip.samples):
            x, y = sheet.corner(row, column)
            tile = drawn[y : y + 35, left + x : left + x + 49]
            assert (tile == sample).all(), "every pixel has the sample's own grey"


def test_floats_are_stretched_from_black_to_white() -> None:
    x = torch.linspace(-2, 2, 4).view(4, 1, 1, 1).expand(4, 1, 6, 6)
    fed = from_arrays({"a": (x, [0, 1, 2, 3])}, heldout=0)
    sheet, drawn = preview.lay_out(fed), np.asarray(preview.draw(fed))
    left = drawn.shape[1] - sheet.size[0]
    shades = [int(drawn[y, left + x, 0]) for x, y in (sheet.corner(0, 2 * kind) for kind in range(4))]
    assert shades == [0, 85, 170, 255]


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(AccordError, match="pictures of 1 or 3 channels, and data holds samples of 1 numbers"):
        preview.lay_out(numbered([0, 1] * 5, clients=2))
    with pytest.raises(AccordError, match="clients must be a whole number of at least 1, got 0"):
        preview.lay_out(pictures(), clients=0)


def test_a_sheet_without_end_is_refused() -> None:
    with pytest.raises(AccordError, match="a sheet has room for 10,000 pictures, not for 1,000,000,000 in each of"):
        preview.lay_out(pictures(), samples=10**9)
