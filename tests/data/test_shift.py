"""Shifts: samples that look the same in any batch, and rotation worked by hand. Colours are in test_colours.py."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.data.colours import binary, coloured, two_by_two
from accord.data.shift import SHIFTS, Shift, rotate, rotated

EVERY = [
    coloured(),
    coloured("shared", 2),
    coloured(colours=4, background=True),
    two_by_two(),
    binary(),
    rotated(),
    rotated(angles=[15, 75], by="client"),
]


def names(count: int) -> list[str]:
    return [f"c{i}" for i in range(count)]


def batch(samples: int, owners: int, classes: int = 10, size: int = 8) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Grey pictures with labels, owners (the test set among them) and row numbers far into a data set."""
    generator = torch.Generator().manual_seed(samples)
    x = torch.randint(0, 256, (samples, 1, size, size), generator=generator, dtype=torch.uint8)
    y, owner = (torch.randint(0, most, (samples,), generator=generator) for most in (classes, owners + 1))
    return x, y, owner, torch.arange(samples) + 50_000


# ------------------------------------------------------------------------------------------------ every shift


@pytest.mark.parametrize("shift", EVERY, ids=str)
def test_a_sample_looks_the_same_in_any_batch(shift: Shift) -> None:
    x, y, owner, sample = batch(24, owners=5)
    y = shift.relabel(y)
    tables = shift.tables(names(5), int(y.max()) + 1, seed=3)
    together = shift.apply(x, y, owner, sample, tables)
    assert together.dtype == torch.float32 and together.min() >= 0 and together.max() <= 255
    assert together.shape == (24, shift.channels or 1, 8, 8)
    for i in range(24):
        assert torch.equal(shift.apply(*(part[i : i + 1] for part in (x, y, owner, sample)), tables)[0], together[i])
    lanes = [part.unflatten(0, (4, 6)) for part in (x, y, owner, sample)]
    in_lanes = torch.func.vmap(shift.apply, in_dims=(0, 0, 0, 0, None))(*lanes, tables)
    assert torch.equal(in_lanes.flatten(0, 1), together)
    assert torch.equal(shift.apply(x.float(), y, owner, sample, tables), together)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("shift", EVERY, ids=str)
def test_cuda_and_a_replayed_graph_give_the_same_bits(shift: Shift) -> None:
    x, y, owner, sample = batch(64, owners=5)
    tables = shift.tables(names(5), 10, seed=3)
    expected = shift.apply(x, y, owner, sample, tables)
    there = [part.cuda() for part in (x, y, owner, sample)]
    tables = {name: table.cuda() for name, table in tables.items()}
    assert torch.equal(shift.apply(*there, tables).cpu(), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = shift.apply(*there, tables)
    for part, other in zip(there, batch(64, owners=5), strict=True):
        part.copy_(other.flip(0))
    graph.replay()
    assert torch.equal(result.cpu(), expected.flip(0))


@pytest.mark.parametrize("shift", EVERY, ids=str)
def test_the_seed_decides_and_torchs_generator_does_not(shift: Shift) -> None:
    state = torch.get_rng_state()
    x, y, owner, sample = batch(200, owners=5)
    y = shift.relabel(y)
    first, same, other = (shift.apply(x, y, owner, sample, shift.tables(names(5), 10, seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, same)
    assert torch.equal(first, other) == (shift == rotated())  # angles by class are given, not drawn


@pytest.mark.parametrize("shift", [shift for shift in EVERY if shift != binary()], ids=str)
def test_a_client_looks_the_same_whoever_else_is_there(shift: Shift) -> None:
    many, few = shift.tables(["a", "b", "c", "d"], 10, seed=0), shift.tables(["d", "test", "b"], 10, seed=0)
    for table in many:
        assert len(many[table]) == 5 and len(few[table]) == 4
        assert torch.equal(many[table][[1, 3, 4]], few[table][[2, 0, 3]])  # b, d and the test set
    if "key" in few:
        assert few["key"].unique().numel() == 4  # nor is a client called test the test set


def test_looks_are_frozen() -> None:
    """Numbers that may never change: a change would orphan every recorded run."""
    shift = coloured(colours=2)
    tables = shift.tables(["c0"], 3, seed=0)
    assert tables["key"].tolist() == [-8793451646122509310, -4989339348326880884]
    blue, green = [36.302, 0.0, 255.0], [0.0, 255.0, 31.937]
    result = shift.apply(
        torch.full((6, 1, 1, 1), 255), torch.zeros(6).long(), torch.zeros(6).long(), torch.arange(6), tables
    )
    assert result.flatten(1).tolist() == [
        pytest.approx(colour, abs=1e-3) for colour in (blue, green, green, green, green, blue)
    ]
    turn = rotated(by="client").tables(["c0", "c1", "c2"], 1, seed=0)["turn"]
    assert torch.rad2deg(torch.atan2(turn[..., 1], turn[..., 0])).flatten().tolist() == pytest.approx(
        [20, 50, -20, 0], abs=1e-3
    )


def test_names_of_experiment_files() -> None:
    assert {name: make() for name, make in SHIFTS.items()} == {
        "coloured": coloured(),
        "two-by-two": two_by_two(),
        "binary": binary(),
        "rotated": rotated(),
    }
    assert all(hash(shift) is not None for shift in EVERY)


# --------------------------------------------------------------------------------------------------- rotation


@pytest.mark.parametrize("shape", [(3, 1, 28, 28), (2, 3, 7, 7)])
def test_quarter_turns_and_no_turn_are_exact(shape: tuple[int, ...]) -> None:
    x = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    shift = rotated(angles=(90, 180, -90, 360))
    tables = shift.tables(["a"], 4, seed=0)
    for kind, turns in enumerate((1, 2, 3, 0)):
        y, owner, sample = torch.full((len(x),), kind), torch.zeros(len(x)).long(), torch.arange(len(x))
        # counter-clockwise
        assert torch.equal(shift.apply(x, y, owner, sample, tables), torch.rot90(x, turns, (2, 3)).float())
        assert torch.equal(shift.apply(x, y, owner + 1, sample, tables), x.float())  # the test set


def test_rotation_is_padding_rotating_and_cropping() -> None:
    """Both ways by torch's own sampler as well, which rounds a little differently."""
    # bright up to the edge, where it matters
    x = 255 * torch.rand(10, 2, 12, 12, generator=torch.Generator().manual_seed(0))
    tables = rotated().tables(["a"], 10, seed=0)
    turn = tables["turn"][0]
    result = rotated().apply(x, torch.arange(10), torch.zeros(10).long(), torch.arange(10), tables)
    padded = F.pad(x, (6, 6, 6, 6))
    assert torch.allclose(rotate(padded, turn)[..., 6:-6, 6:-6], result, atol=1e-3)
    cosine, sine = turn.T
    theta = torch.stack([torch.stack([cosine, -sine, 0 * sine], -1), torch.stack([sine, cosine, 0 * sine], -1)], 1)
    grid = F.affine_grid(theta, list(padded.shape), align_corners=True)
    assert torch.allclose(F.grid_sample(padded, grid, align_corners=True)[..., 6:-6, 6:-6], result, atol=1e-2)


def test_a_dot_turns_counter_clockwise() -> None:
    """Three pixels right of the centre, turned by 53.13 degrees: 1.8 right and 2.4 up, shared out among its four
    neighbours."""
    x = torch.zeros(1, 1, 9, 9)
    x[0, 0, 4, 7] = 100.0
    tables = rotated(angles=[math.degrees(math.atan2(4, 3))]).tables(["a"], 1, seed=0)
    result = rotate(x, tables["turn"][0])[0, 0]
    mass = result / result.sum()
    centre = (mass.sum(1) @ torch.arange(9.0)).item(), (mass.sum(0) @ torch.arange(9.0)).item()
    assert centre[0] == pytest.approx(4 - 2.4, abs=0.2) and centre[1] == pytest.approx(4 + 1.8, abs=0.2)
    # row 2, column 6: the neighbour nearest to (1.6, 5.8)
    assert result.flatten().topk(2).indices.tolist()[0] == 2 * 9 + 6


@pytest.mark.parametrize("owners", [2, 10, 100, 3550])
@pytest.mark.parametrize("by", ["class", "client"])
def test_nobody_trains_on_upright_pictures(by: str, owners: int) -> None:
    turn = rotated(by=by).tables(names(owners), 10, seed=0)["turn"]
    degrees = torch.rad2deg(torch.atan2(turn[..., 1], turn[..., 0]))
    assert (turn[-1] == torch.tensor([1.0, 0.0])).all()
    assert degrees[:-1].abs().min() >= 9.99
    if by == "class":
        assert torch.allclose(degrees[:-1], torch.tensor([10.0, -10, 20, -20, 30, -30, 40, -40, 50, -50]), atol=1e-3)
    else:
        assert (degrees == degrees[:, :1]).all()  # one angle for all classes
        if owners == 3550:
            times = degrees[:-1, 0].round().long().unique(return_counts=True)[1]
            assert len(times) == 10 and times.min() > 290 and times.max() < 420


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: rotated(angles=[]), "angles must be a list of numbers, in degrees, got []"),
        (lambda: rotated(angles=[10, "20"]), "angles must be a list of numbers, in degrees, got [10, '20']"),
        (lambda: rotated(angles=10), "angles must be a list of numbers, in degrees, got 10"),
        (
            lambda: rotated(by="digit"),
            "by must be 'class' (an angle for each class) or 'client' (an angle for each client), got 'digit'",
        ),
        (lambda: rotated().tables(["a"], 62, 0), "angles must have one angle for each of the 62 classes, got 10"),
    ],
)
def test_what_cannot_be(make, sentence: str) -> None:
    with pytest.raises(AccordError) as raised:
        make()
    assert sentence in str(raised.value)
