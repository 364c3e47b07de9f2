"""Colours worked by hand, palettes that clients share or do not, and a test set whose colours nobody trained on."""

import colorsys
import math

import pytest
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.colours import binary, coloured, hsv, paint, two_by_two
from accord.data.shift import Shift
from accord.experiments.experiment import parse


def names(count: int) -> list[str]:
    return [f"c{i}" for i in range(count)]


def white(samples: int) -> Tensor:
    """One white pixel each, so that the result is the colour itself."""
    return torch.full((samples, 1, 1, 1), 255, dtype=torch.uint8)


def test_hues_by_hand() -> None:
    red, yellow, green, blue, magenta = hsv(torch.tensor([0, 1 / 6, 1 / 3, 2 / 3, 5 / 6]).double().numpy(), 1.0)
    assert red.tolist() == [1, 0, 0]
    for colour, expected in ((yellow, [1, 1, 0]), (green, [0, 1, 0]), (blue, [0, 0, 1]), (magenta, [1, 0, 1])):
        assert colour.tolist() == pytest.approx(expected, abs=1e-6)
    grid = torch.arange(1000).double().numpy() / 1000
    expected = torch.tensor([colorsys.hsv_to_rgb(hue, 1.0, 0.3) for hue in grid], dtype=torch.float32)
    assert torch.allclose(hsv(grid, 0.3), expected, atol=1e-6)


def test_pixels_by_hand() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    orange, navy = torch.tensor([[1.0, 0.5, 0.0]]), torch.tensor([[0.0, 0.0, 0.4]])
    assert paint(x, orange)[0, :, 0].T.tolist() == [[0, 0, 0], [51, 25.5, 0], [255, 127.5, 0]]
    assert paint(x, orange, navy)[0, :, 0].T.tolist() == [
        [0, 0, pytest.approx(102)],
        [51, 25.5, pytest.approx(81.6)],
        [255, 127.5, 0],
    ]


@pytest.mark.parametrize("owners", [2, 10, 100, 3550])
@pytest.mark.parametrize(
    "shift", [coloured(), coloured("shared"), coloured(colours=2, background=True), two_by_two()], ids=str
)
def test_no_client_has_a_test_colour(shift: Shift, owners: int) -> None:
    """Hues are three quarters of a cell apart at least; of that the channel that moves most has at least half."""
    tables = shift.tables(names(owners), 10, seed=0)
    colours = getattr(shift, "colours", 2)
    for part in ("foreground", "background") if len(tables) == 3 else ("foreground",):
        brightness = tables[part].max().item()
        assert brightness == pytest.approx({"foreground": 1.0, "background": 0.3}[part])
        train, test = tables[part][:-1].reshape(-1, 3).unique(dim=0), tables[part][-1].reshape(-1, 3).unique(dim=0)
        apart = torch.stack([(train - colour).abs().amax(-1).min() for colour in test]).min().item()
        assert apart >= 0.999 * brightness * 6 * (3 / 4) / (2 * 10 * colours) / 2


def test_training_colours_lie_in_even_cells_and_test_colours_in_the_middle_of_odd_ones() -> None:
    table = coloured(colours=2).tables(names(50), 10, seed=0)["foreground"]
    cells = torch.tensor([40 * colorsys.rgb_to_hsv(*colour)[0] for colour in table.reshape(-1, 3).tolist()]).view(
        51, 20
    )
    train, test = cells[:-1], cells[-1]
    assert ((train.floor() % 2 == 0) & ((train - train.floor() - 0.5).abs() <= 0.251)).all()
    assert torch.allclose(test.sort().values, torch.arange(20) * 2 + 1.5, atol=1e-3)
    assert all(row.floor().unique().numel() == 20 for row in train)  # every cell once: no two classes share a colour
    assert (train - train.floor() - 0.5).abs().max() > 0.24  # and the jitter is used


def test_palettes_of_clients_differ_unless_shared() -> None:
    own = coloured().tables(names(300), 10, seed=0)["foreground"]
    assert own.flatten(1).unique(dim=0).shape[0] == 301
    gaps = (own[:, None] - own[None]).abs().amax((-1, -2)) + torch.eye(301)[..., None]
    assert gaps.min() > 0  # not even one class has the same colour at two clients
    shared = coloured("shared").tables(names(300), 10, seed=0)["foreground"]
    assert shared.flatten(1).unique(dim=0).shape[0] == 2 and not torch.equal(shared[0], shared[-1])


@pytest.mark.parametrize("palettes", [2, 5, 10])
def test_so_many_palettes_are_shared_evenly(palettes: int) -> None:
    """Whatever order the owners come in, a name has its palette; the test set's colours are in none of them."""
    table = coloured(palettes=palettes).tables(names(20), 10, seed=0)["foreground"].flatten(1)
    kinds, counts = table[:-1].unique(dim=0, return_counts=True)
    assert len(kinds) == palettes and counts.tolist() == [20 // palettes] * palettes
    assert not (table[:-1] == table[-1]).all(1).any()
    order = list(reversed(names(20)))
    assert torch.equal(
        coloured(palettes=palettes).tables(order, 10, seed=0)["foreground"].flatten(1)[:-1].flip(0), table[:-1]
    )


def test_one_palette_is_the_shared_one() -> None:
    assert coloured(palettes=1) == coloured("shared") != coloured(palettes=2)
    where = ("data.name=fedcmnist",)
    assert parse("", (*where, "data.palettes=1")).folder(0) == parse("", (*where, "data.palette=shared")).folder(0)
    assert (
        len({parse("", (*where, f"data.palettes={n}")).folder(0) for n in (1, 2, 5)} | {parse("", where).folder(0)})
        == 4
    )


@pytest.mark.parametrize("colours", [1, 2, 4])
def test_a_class_has_its_colours_in_equal_shares(colours: int) -> None:
    count = 4000
    shift, sample = coloured(colours=colours), torch.arange(count)
    tables = shift.tables(names(2), 10, seed=0)
    for owner in (0, 2):
        result = shift.apply(white(count), torch.full((count,), 7), torch.full((count,), owner), sample, tables)
        met, times = result.flatten(1).unique(dim=0, return_counts=True)
        assert torch.allclose(met, (255 * tables["foreground"][owner, 7]).unique(dim=0))
        assert len(met) == colours and (times / count - 1 / colours).abs().max() < 0.03


def colours_of(shift: two_by_two, owner: int, y: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of the foreground and the background that each sample got."""
    tables = shift.tables(names(3), 10, seed=0)
    place = torch.full((len(y),), owner), torch.arange(len(y)), tables
    foreground, background = shift.apply(white(len(y)), y, *place), shift.apply(0 * white(len(y)), y, *place)
    return (
        foreground.flatten(1).unique(dim=0, return_inverse=True)[1],
        background.flatten(1).unique(dim=0, return_inverse=True)[1],
    )


def test_two_by_two_in_training() -> None:
    """Two foregrounds and two backgrounds per class that no other class has, each pair in a quarter of the samples."""
    y = torch.arange(40_000) % 10
    foreground, background = colours_of(two_by_two(), 1, y)
    assert foreground.max() == background.max() == 19
    for kind in range(10):
        pairs = torch.stack([foreground[y == kind], background[y == kind]], dim=1)
        met, times = pairs.unique(dim=0, return_counts=True)
        assert len(met) == 4 and (times / 4000 - 0.25).abs().max() < 0.03
    assert len(torch.stack([y, foreground]).unique(dim=1).T) == len(torch.stack([y, background]).unique(dim=1).T) == 20


def test_two_by_two_in_the_test_set() -> None:
    """Ten of each, and a sample's class, foreground and background say nothing about each other: a chi-square for each
    pair of them."""
    y = torch.arange(40_000) // 7 % 10
    foreground, background = colours_of(two_by_two(), 3, y)
    assert foreground.max() == background.max() == 9
    for one, other in ((foreground, background), (y, foreground), (y, background)):
        times = torch.bincount(10 * one + other, minlength=100).view(10, 10).double()
        expected = times.sum(0) * times.sum(1, keepdim=True) / times.sum()
        # 81 degrees of freedom: exceeded by one seed in a thousand
        assert ((times - expected).square() / expected).sum() < 125.0


def test_two_by_two_with_few_classes() -> None:
    tables = two_by_two().tables(names(1), 2, seed=0)
    assert tables["foreground"].shape == (2, 2, 10, 3) and tables["foreground"][1, 0].unique(dim=0).shape[0] == 10


def test_binary_flips_at_the_stated_rates() -> None:
    """Red or green on black; the share in the other label's colour goes from 0.1 to 0.2 over the clients and is 0.9 in
    the test set."""
    shift, count = binary(), 20_000
    tables = shift.tables(names(5), 2, seed=0)
    y = torch.arange(count) % 2
    for owner, rate in enumerate([0.1, 0.125, 0.15, 0.175, 0.2, 0.9]):
        red, green, blue = (
            shift.apply(white(count), y, torch.full((count,), owner), torch.arange(count), tables).flatten(1).T
        )
        assert (
            torch.equal(red + green, torch.full((count,), 255.0))
            and not blue.any()
            and set(red.tolist()) == {0.0, 255.0}
        )
        wrong = torch.where(y == 1, red, green) == 255
        for label in (0, 1):
            assert wrong[y == label].float().mean().item() == pytest.approx(rate, abs=0.01)


def test_binary_labels_and_corner_cases() -> None:
    y = torch.arange(10)
    assert binary().relabel(y).tolist() == [0] * 5 + [1] * 5 and binary().relabel(y).dtype == y.dtype
    assert binary().tables(["alone"], 2, seed=0)["flip"].tolist() == [round(0.1 * 2**53), round(0.9 * 2**53)]
    never = binary(0, 0, 1)
    tables = never.tables(names(1), 2, seed=0)
    result = never.apply(white(4), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1]), torch.arange(4), tables)
    assert result.flatten(1).tolist() == [[255, 0, 0], [0, 255, 0], [0, 255, 0], [255, 0, 0]]


def test_binary_gives_unseen_clients_rates_from_the_whole_range() -> None:
    """Owners come with the unseen ones last. Rates go by name, so who is unseen changes nobody's, and unseen ones are
    not the worst."""
    rates = {}
    for owners in (names(5), ["c1", "c4", "c2", "c0", "c3"]):
        *flips, test = binary().tables(owners, 2, seed=0)["flip"].tolist()
        rates[tuple(owners)] = dict(zip(owners, flips, strict=True))
        assert test == round(0.9 * 2**53)
    first, second = rates.values()
    assert first == second and sorted(first.values()) == list(first.values())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: coloured(palettes=0), "palettes must be a whole number of at least 1, got 0"),
        (lambda: coloured("shared", palettes=3), "palettes must be 1 with palette = 'shared', got 3"),
        (
            lambda: coloured("own"),
            "palette must be 'client' (each client has its own colours) or 'shared' (all the same), got 'own'",
        ),
        (lambda: coloured(colours=5), "colours must be a whole number from 1 to 4, got 5"),
        (lambda: coloured(colours=True), "colours must be a whole number from 1 to 4, got True"),
        (lambda: coloured(background="blue"), "background must be true or false, got 'blue'"),
        (lambda: binary(flip_low=-0.1), "flip_low must be between 0 and 1, got -0.1"),
        (lambda: binary(flip_high=1.2), "flip_high must be between 0 and 1, got 1.2"),
        (lambda: binary(flip_test=math.nan), "flip_test must be between 0 and 1, got nan"),
        (
            lambda: paint(torch.zeros(2, 3, 4, 4), torch.ones(2, 3)),
            "only grey pictures can be coloured, and these have 3 channels",
        ),
    ],
)
def test_what_cannot_be(make, sentence: str) -> None:
    with pytest.raises(AccordError) as raised:
        make()
    assert sentence in str(raised.value)
