"""Masks beside gma and and_mask: sand, magnitude agreement, the control; whole layers, schedules of tau and remembered
votes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import accord
from accord import Algorithm, and_mask, gma, magnitude, mean, sand, scaled
from accord.core.layout import Layout
from accord.core.protocols import Server
from accord.core.record import State, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.core.schedule import cosine, exponential, ramp
from accord.experiments.cost import as_text
from accord.experiments.experiment import parse
from accord.rules.combine import combine
from accord.rules.label import label_of
from accord.rules.masks import Mask
from accord.rules.servers import adagrad, adam, momentum, step, yogi
from accord.runs.fingerprint import describe
from conftest import blobs, mlp, sentence

# Three clients by four coordinates: unanimous, two against one, cancelling, and untouched.
THREE = torch.tensor([[1.0, 4.0, 3.0, 0.0], [2.0, 2.0, -1.0, 0.0], [3.0, -2.0, -2.0, 0.0]])


def reports_of(deltas: Tensor, weights: Tensor | None = None) -> Reports:
    """`[..., K, P]`, with equal weights if none are given."""
    ones = torch.ones(*deltas.shape[:-1], 1, dtype=deltas.dtype)
    return Reports(deltas, ones if weights is None else weights, ones, ones[..., :0])


def lowered(
    rule: Mask, deltas: Tensor, state: State | None = None, layout: Layout | None = None, number: int = 1
) -> tuple[Tensor, State]:
    layout = layout or Layout.flat(deltas.shape[-1])
    state = rule.init(layout, 10) if state is None else state
    return rule.lower(rule.lift(reports_of(deltas), state), state, Round(number, layout, 10))


def stepped(
    algorithm: Algorithm, reports: Reports, memory: dict[str, State], round: Round
) -> tuple[Tensor, dict[str, State]]:
    """The server's step after these reports, and what the parts remember then."""
    lowered, _, memory = algorithm.lower(algorithm.lift(reports, memory), memory, round)
    return algorithm.step(lowered, memory)


# ------------------------------------------------------------------------------------------------------- sand


def test_sand_by_hand() -> None:
    # Variances with K - 1: of (1, 2, 3) 1, of (4, 2, -2) 28/3, of (3, -1, -2) 7. A: 1, 1/3, 1/3, 0. tau 0.2, k 0.5.
    expected = [
        math.tanh(0.5 * 0.8),
        math.tanh(0.5 * (1 / 3 - 0.2) / (28 / 3)),
        math.tanh(0.5 * (1 / 3 - 0.2) / 7),
        0.0,
    ]
    assert combine(sand(0.2, k=0.5), THREE).mask.tolist() == pytest.approx(expected)


def test_sand_holds_back_whatever_does_not_exceed_tau() -> None:
    assert combine(sand(1.0), THREE).mask.tolist() == [0.0] * 4  # the authors' default drops everything
    assert combine(sand(1 / 3, k=1e9), THREE).mask.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_sand_has_the_limit_of_its_formula_where_clients_do_not_differ() -> None:
    same = torch.tensor([[0.3, -2.0, 0.0]]).repeat(7, 1)
    assert combine(sand(0.4), same).mask.tolist() == [1.0, 1.0, 0.0]
    assert combine(sand(0.4), same[:1]).mask.tolist() == [1.0, 1.0, 0.0]  # one client has no variance
    assert combine(sand(1.0), same).mask.tolist() == [0.0, 0.0, 0.0]  # 0 for every variance, so 0 in the limit
    nearly = same + 1e-6 * torch.arange(7)[:, None]
    assert combine(sand(0.4), nearly).mask[:2].tolist() == [1.0, 1.0]


def test_sand_finds_a_small_variance_beside_a_large_mean() -> None:
    """In float32 the variance of 1000 and 1000.0625 would be lost in the squares."""
    deltas = torch.tensor([[1000.0], [1000.0625]])
    variance = 0.0625**2 / 2
    assert combine(sand(0.4, k=variance), deltas).mask.item() == pytest.approx(math.tanh(0.6), rel=1e-5)


def test_sand_rescaled_has_a_mean_of_one_in_every_tensor() -> None:
    layout = Layout.of(nn.Linear(2, 2))
    torch.manual_seed(0)
    deltas = torch.randn(5, layout.size) + 0.5
    mask, _ = lowered(sand(0.2, rescale=True), deltas, layout=layout)
    assert [part.mean().item() for _, part in layout.layers(mask)] == pytest.approx([1.0, 1.0])


# -------------------------------------------------------------------------------------------------- magnitude


def test_magnitude_by_hand() -> None:
    # |1 + 2 + 3| / 6, |4 + 2 - 2| / 8, |3 - 1 - 2| / 6, and 0 of 0.
    assert combine(magnitude(0.6), THREE).mask.tolist() == [1.0, 0.5, 0.0, 0.0]
    assert combine(magnitude(0.5), THREE).mask.tolist() == [1.0, 1.0, 0.0, 0.0]
    # Weights 1, 1, 4: |4 + 2 - 8| / 14 and |3 - 1 - 8| / 12.
    assert combine(magnitude(0.6), THREE, torch.tensor([1.0, 1.0, 4.0])).mask.tolist() == pytest.approx(
        [1.0, 1 / 7, 0.5, 0.0]
    )


def test_magnitude_weighs_clients_as_the_average_does() -> None:
    weights = torch.tensor([[1.0], [1.0], [4.0]])
    reports = reports_of(THREE, weights)
    for weighting, expected in (("samples", [1.0, 1 / 7, 0.5, 0.0]), ("uniform", [1.0, 0.5, 0.0, 0.0])):
        algorithm = accord.fedavg(mask=magnitude(0.6), weighting=weighting)
        memory = algorithm.init(Layout.flat(4), 3, torch.zeros(4))
        made, _, _ = algorithm.lower(algorithm.lift(reports, memory), memory, Round(1, Layout.flat(4), 3))
        assert made.mask.tolist() == pytest.approx(expected)


def test_clients_of_equal_reach_make_magnitude_the_net_vote() -> None:
    torch.manual_seed(3)
    signs = torch.randn(9, 200).sign()
    assert torch.allclose(combine(magnitude(0.4), 0.7 * signs).mask, combine(gma(0.4), 0.7 * signs).mask)


# ---------------------------------------------------------------------------------------------------- control


CHOOSING = [
    gma(0.4),
    gma(0.4, scope="layer"),
    gma(0.4, memory=0.5),
    and_mask(0.4),
    and_mask(0.4, rescale=True),
    sand(0.2),
    magnitude(0.4),
]
SERVERS = [
    server(lr=0.7, placement=placement, **more)
    for placement in ("after", "before")
    for server, more in (
        (step, {}),
        (momentum, {}),
        (adagrad, {}),
        (adam, {}),
        (adam, {"eps_inside": True}),
        (yogi, {}),
    )
]


@pytest.mark.parametrize("inner", CHOOSING, ids=repr)
def test_control_by_mean_scales_the_step_by_the_mean_of_the_mask(inner: Mask) -> None:
    torch.manual_seed(0)
    made, control = combine(inner, torch.randn(7, 500)), scaled(inner, by="mean")
    assert torch.allclose(control.apply(made.mask, made.update), made.mask.mean() * made.update, rtol=1e-6)


def test_controls_by_hand() -> None:
    # Two clients at odds on the second coordinate: gma leaves (3, 0) of their mean (3, 4).
    mask, update = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])
    assert gma(0.4).apply(mask, update).tolist() == [3.0, 0.0]
    assert scaled(gma(0.4)).apply(mask, update).tolist() == pytest.approx([3.0 * 0.6, 4.0 * 0.6])
    assert scaled(gma(0.4), by="mean").apply(mask, update).tolist() == [1.5, 2.0]
    assert scaled(gma(0.4)).apply(mask, torch.zeros(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("server", SERVERS, ids=repr)
@pytest.mark.parametrize("inner", CHOOSING, ids=repr)
def test_control_takes_a_step_as_long_as_the_masked_one(inner: Mask, server: Server) -> None:
    """The same round, from the same memory, with and without the choice of coordinates; over several rounds, in which
    the server's moments and remembered votes fill up."""
    torch.manual_seed(0)
    layout = Layout.of(nn.Sequential(nn.Linear(24, 20), nn.Linear(20, 8)))
    common = torch.where(torch.arange(layout.size) < 400, 0.2, 0.6) * torch.randn(layout.size)  # layers differ
    plain, masked, control = (Algorithm(mask=mask, server=server) for mask in (None, inner, scaled(inner)))
    memory = control.init(layout, 7, torch.zeros(layout.size))
    for number in range(1, 5):
        reports, round = reports_of(1e-3 * (torch.randn(7, layout.size) + common)), Round(number, layout, 7)
        wanted, _ = stepped(masked, reports, memory, round)
        unmasked, _ = stepped(plain, reports, memory, round)
        change, memory = stepped(control, reports, memory, round)
        assert change.norm().item() == pytest.approx(wanted.norm().item(), rel=1e-6)
        assert torch.cosine_similarity(change.double(), unmasked.double(), dim=0).item() == pytest.approx(1.0, abs=1e-9)
        assert not torch.allclose(change, wanted)  # the mask chooses, its control does not


def test_only_a_mask_that_chooses_has_a_control() -> None:
    with sentence("mask must be the mask that scaled is the control of", "got 0.4"):
        scaled(0.4)
    with sentence("by must be", "got 'size'"):
        scaled(gma(), by="size")


# --------------------------------------------------------------------------------------- whole layers at once


def test_a_layer_passes_by_its_mean_agreement() -> None:
    layout = Layout.of(nn.Linear(2, 1))  # a weight of two and a bias of one
    deltas = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0]])  # A: 1 and 0 in the weight, 0 in the bias
    assert lowered(gma(0.5, scope="layer"), deltas, layout=layout)[0].tolist() == [1.0, 1.0, 0.0]
    assert lowered(gma(0.6, scope="layer"), deltas, layout=layout)[0].tolist() == [0.5, 0.5, 0.0]
    assert lowered(and_mask(0.6, scope="layer"), deltas, layout=layout)[0].tolist() == [0.0, 0.0, 0.0]
    assert lowered(gma(0.4, scope="model"), deltas, layout=layout)[0].tolist() == pytest.approx([1 / 3] * 3)
    assert lowered(gma(0.3, scope="model"), deltas, layout=layout)[0].tolist() == [1.0] * 3


def test_a_tie_of_a_layer_at_exactly_tau_passes() -> None:
    """Ten clients, ten coordinates with a net vote of 4 each, up and down in turn: a float mean of 0.4s need not be
    0.4."""
    column = torch.tensor([1.0] * 7 + [-1.0] * 3)
    deltas = column[:, None] * torch.tensor([1.0, -1.0] * 5)
    assert lowered(and_mask(0.4, scope="layer"), deltas)[0].tolist() == [1.0] * 10
    assert lowered(and_mask(0.4001, scope="layer"), deltas)[0].tolist() == [0.0] * 10


# -------------------------------------------------------------------------------------------- tau over rounds


def test_tau_follows_its_schedule() -> None:
    rule = gma(ramp(0.0, over=4, end=0.4))
    ten = torch.tensor([1.0] * 6 + [-1.0] * 4)[:, None]  # a net vote of 0.2
    seen = [lowered(rule, ten, number=n)[0].item() for n in (1, 2, 3, 4, 5, 100)]
    assert seen == pytest.approx([1.0, 1.0, 1.0, 0.2, 0.2, 0.2])  # tau 0, 0.1, 0.2, 0.3, 0.4, 0.4
    assert [lowered(and_mask(exponential(0.4, 0.5)), ten, number=n)[0].item() for n in (1, 2)] == [0.0, 1.0]


def test_a_schedule_gives_round_numbers_where_a_person_would() -> None:
    thirteen = torch.tensor([1.0] * 13 + [-1.0] * 7)[:, None]  # of 20: exactly 0.3
    # 0.75 * 0.4 is 0.30000000000000004
    assert lowered(and_mask(ramp(0.0, over=4, end=0.4)), thirteen, number=4)[0].item() == 1.0


def test_ramp_by_hand_and_its_limits() -> None:
    assert [ramp(1.0, over=2, end=0.5).at(n) for n in (1, 2, 3, 50)] == [1.0, 0.75, 0.5, 0.5]
    for wrong, says in (
        ((-0.1, 5), "lr must be 0 or more, got -0.1"),
        ((0.1, 5, -1.0), "end must be 0 or more"),
        ((0.1, 0), "over must be"),
    ):
        with sentence(says):
            ramp(*wrong)


# ------------------------------------------------------------------------------------------- remembered votes


def test_remembered_votes_by_hand() -> None:
    rule = gma(0.9, memory=0.5)
    up, down = torch.ones(4, 1), torch.tensor([[1.0], [-1.0], [-1.0], [-1.0]])
    mask, state = lowered(rule, up)
    assert mask.item() == 1.0 and state["votes"].item() == 4.0 and state["count"].item() == 4.0
    mask, state = lowered(rule, down, state)  # votes 0.5 * 4 - 2 = 0 of 0.5 * 4 + 4 = 6
    assert mask.item() == 0.0 and state["count"].item() == 6.0
    mask, state = lowered(rule, up[:2], state)  # votes 0 + 2 of 3 + 2
    assert mask.item() == pytest.approx(2 / 5)
    assert (
        lowered(and_mask(0.4, memory=0.5), up[:2], {"votes": torch.zeros(1), "count": torch.tensor([6.0])})[0].item()
        == 1.0
    )


@pytest.mark.parametrize("memory", [0.1, 0.5, 0.9, 0.99])
def test_a_vote_that_never_changes_is_a_tie_for_ever(memory: float) -> None:
    rule, cohort = and_mask(0.4, memory=memory), torch.tensor([1.0] * 7 + [-1.0] * 3)[:, None]
    state = None
    for _ in range(300):
        mask, state = lowered(rule, cohort, state)
        assert mask.item() == 1.0


def test_memory_tells_a_steady_vote_from_chance_in_small_cohorts() -> None:
    """Two clients a round agree by chance half of the time. Remembered, a fair coin's net vote shrinks; a steady one's
    does not."""
    torch.manual_seed(0)
    rule, state = gma(0.6, memory=0.95), None
    for _ in range(200):
        chance = torch.randn(2, 400).sign()
        steady = torch.ones(2, 1).expand(2, 100)
        mask, state = lowered(rule, torch.cat([chance, steady], 1), state)
    assert mask[400:].eq(1.0).all() and mask[:400].mean() < 0.2
    assert combine(gma(0.6), chance).mask.mean() > 0.4  # one round alone cannot tell


def test_layers_remember_too() -> None:
    rule, layout = gma(0.9, scope="layer", memory=0.5), Layout.of(nn.Linear(1, 1))
    _, state = lowered(rule, torch.tensor([[1.0, 1.0], [1.0, 1.0]]), layout=layout)
    mask, _ = lowered(rule, torch.tensor([[1.0, 1.0], [-1.0, 1.0]]), state, layout)  # 1 of 3, and 3 of 3
    assert mask.tolist() == pytest.approx([1 / 3, 1.0])


@pytest.mark.parametrize(
    "mask", [gma(0.4, memory=0.9), and_mask(0.4, memory=0.5, scope="layer"), scaled(gma(0.4, memory=0.9))]
)
def test_a_run_that_remembers_is_resumed_to_the_same_bits(mask: Mask, tmp_path) -> None:
    settings = {"sample": 4, "seed": 1, "checkpoint_every": 2}
    straight = accord.fit(mlp(), blobs(), accord.fedavg(mask=mask), rounds=6, folder=tmp_path / "a", **settings)
    accord.fit(mlp(), blobs(), accord.fedavg(mask=mask), rounds=4, folder=tmp_path / "b", **settings)
    resumed = accord.fit(mlp(), blobs(), accord.fedavg(mask=mask), rounds=6, folder=tmp_path / "b", **settings)
    assert torch.equal(straight.last.vector, resumed.last.vector)
    assert straight.rows == resumed.rows


# ----------------------------------------------------------------------------------------- all masks together

ALL = [
    gma(0.3),
    gma(0.3, scope="layer"),
    gma(0.3, memory=0.5),
    and_mask(0.3),
    and_mask(0.3, scope="model"),
    sand(0.3),
    magnitude(0.3),
    scaled(gma(0.3)),
    scaled(magnitude(0.3)),
    scaled(gma(0.3, memory=0.5), by="mean"),
]
cohorts = st.integers(1, 8).flatmap(
    lambda k: st.lists(st.lists(st.integers(-3, 3).map(float), min_size=4, max_size=4), min_size=k, max_size=k)
)


@pytest.mark.parametrize("rule", ALL, ids=repr)
@settings(deadline=None, max_examples=30)
@given(rows=cohorts, data=st.data())
def test_bounds_order_of_clients_and_a_flip_of_all_signs(
    rule: Mask, rows: list[list[float]], data: st.DataObject
) -> None:
    deltas = torch.tensor(rows)
    mask = combine(rule, deltas).mask
    assert ((mask >= 0) & (mask <= 1)).all()
    order = torch.tensor(data.draw(st.permutations(range(len(rows)))))
    assert torch.allclose(combine(rule, deltas[order]).mask, mask)
    assert torch.equal(combine(rule, -deltas).mask, mask)
    if not isinstance(rule, sand):  # whose k has a unit
        assert torch.equal(combine(rule, 4.0 * deltas).mask, mask)


def test_sand_sees_scale_as_its_k_does() -> None:
    torch.manual_seed(0)
    deltas = torch.randn(6, 50)
    assert torch.allclose(combine(sand(0.2, k=10.0), deltas).mask, combine(sand(0.2, k=160.0), 4.0 * deltas).mask)


@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_lanes_are_masked_as_they_are_alone(rule: Mask) -> None:
    torch.manual_seed(0)
    deltas = torch.randn(3, 5, 40)  # three runs of five clients
    together, state = lowered(rule, deltas)
    apart = [lowered(rule, one)[0] for one in deltas]
    assert together.shape == (3, 40) and torch.allclose(together, torch.stack(apart), atol=1e-6)
    assert all(value.shape[0] == 3 for value in state.values())


@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_records_of_parts_of_a_cohort_add_up(rule: Mask) -> None:
    torch.manual_seed(0)
    deltas, layout = torch.randn(7, 30), Layout.flat(30)
    whole = rule.lift(reports_of(deltas), {})
    added = (
        rule.lift(reports_of(deltas[:2]), {})
        + rule.lift(reports_of(deltas[2:3]), {})
        + rule.lift(reports_of(deltas[3:]), {})
    )
    masks = [rule.lower(record, rule.init(layout, 7), Round(1, layout, 7))[0] for record in (whole, added)]
    assert torch.allclose(*masks, atol=1e-6)


@pytest.mark.parametrize(
    "rule",
    [
        magnitude(0.0),
        magnitude(1.0),
        scaled(gma(0.0)),
        scaled(gma(0.0), by="mean"),
        scaled(magnitude(1.0)),
        sand(0.0, k=1e18),
    ],
)
def test_bit_equal_to_averaging_where_the_mask_has_nothing_to_say(rule: Mask) -> None:
    torch.manual_seed(1)
    unanimous, weights = torch.randn(7, 300).abs(), torch.arange(1.0, 8.0)
    made = combine(rule, unanimous, weights)
    assert torch.equal(made.mask * made.update, combine(mean(), unanimous, weights).update)


@pytest.mark.parametrize("rule", ALL, ids=repr)
@pytest.mark.parametrize("engine", ["vectorised", "processes"])
def test_engines_agree(rule: Mask, engine: str) -> None:
    settings = {"rounds": 3, "sample": 5, "batch": 8, "device": "cpu"}
    ours, reference = (
        accord.fit(mlp(), blobs(), accord.fedavg(mask=rule), engine=name, **settings) for name in (engine, "sequential")
    )
    assert torch.allclose(ours.last.vector, reference.last.vector, atol=2e-5)
    assert 0.0 <= reference.rows[-1]["agreement"] <= 1.0 and set(reference.rows[-1]["agreement_by_layer"]) == set(
        dict(mlp().named_parameters())
    )


def test_what_a_round_tells_is_what_the_mask_sees() -> None:
    run = accord.fit(mlp(), blobs(), accord.fedavg(mask=magnitude(ramp(0.0, over=2, end=1.0))), rounds=3, sample=5)
    below = [row["below_tau"] for row in run.rows]
    assert below[0] == 0.0 < below[1] < below[2]  # tau 0, 0.5, 1


# -------------------------------------------------------------------------------------------- names, settings


def test_labels() -> None:
    assert label_of(accord.fedavg(mask=scaled(and_mask(0.8)))) == "fedavg + scaled(and_mask(0.8), length)"
    assert label_of(accord.fedavg(mask=scaled(gma(0.4), by="mean"))) == "fedavg + scaled(gma(0.4), mean)"
    assert label_of(accord.fedadam(mask=sand())) == "fedadam + sand(0.4)"
    assert label_of(accord.fedavg(mask=gma(ramp(0.8, over=9)))) == "fedavg + gma(0.8 ramp)"


def test_masks_as_they_were_keep_their_recorded_names() -> None:
    assert describe(gma()) == {"kind": "gma"}
    assert describe(and_mask(0.8, rescale=True)) == {"kind": "and_mask", "tau": 0.8, "rescale": True}
    assert describe(scaled(gma(0.2))) == {"kind": "scaled", "mask": {"kind": "gma", "tau": 0.2}}


def mask_of(*settings: str) -> Mask | None:
    return parse("", [f"algorithm.{setting}" for setting in settings]).algorithm.mask


def test_masks_of_a_file() -> None:
    assert mask_of("mask=sand", "mask.tau=0.3", "mask.k=5.0", "mask.rescale=true") == sand(0.3, 5.0, rescale=True)
    assert mask_of("mask=magnitude") == magnitude()
    assert mask_of("mask=scaled", "mask.mask.tau=0.6") == scaled(gma(0.6))
    assert mask_of("mask=scaled", "mask.by=mean") == scaled(gma(), by="mean")
    assert mask_of("mask=scaled", "mask.mask=and", "mask.mask.rescale=true") == scaled(and_mask(0.4, rescale=True))
    assert mask_of("mask=gma", "mask.scope=layer", "mask.memory=0.9") == gma(scope="layer", memory=0.9)
    assert mask_of("mask=gma", "mask.tau={ from = 0.0, to = 0.4, over = 50 }") == gma(ramp(0.0, over=50, end=0.4))
    assert mask_of("mask=scaled", "mask.mask.tau.to=0.1", "mask.mask.tau.over=5") == scaled(
        gma(ramp(0.4, over=5, end=0.1))
    )


@pytest.mark.parametrize("mask", ["gma", "and", "sand", "magnitude", "scaled"])
def test_a_dry_run_prints_a_file_that_means_the_same(mask: str) -> None:
    inner = "mask.mask" if mask == "scaled" else "mask"
    chosen = parse("", [f"algorithm.mask={mask}", f"algorithm.{inner}.tau.to=0.1", f"algorithm.{inner}.tau.over=9"])
    again = parse(as_text({"settings": chosen.resolved(), "cost": {}, "folders": []}))
    assert (
        again.resolved() == chosen.resolved()
        and again.algorithm == chosen.algorithm
        and again.folder(0) == chosen.folder(0)
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["mask=gma", "mask.memory=1.0"], ["algorithm.mask.memory must be at least 0 and below 1, got 1.0"]),
        (
            ["mask=gma", "mask.scope=tensor"],
            ["algorithm.mask.scope must be 'coordinate', 'layer' or 'model', got 'tensor'"],
        ),
        (["mask=sand", "mask.k=0.0"], ["algorithm.mask.k must be a number above 0, got 0.0"]),
        (["mask=sand", "mask.tau=1.5"], ["algorithm.mask.tau must be between 0 and 1, got 1.5"]),
        (["mask=gma", "mask.k=1.0"], ["algorithm.mask.k is not a field of gma, got 1.0: it belongs to sand"]),
        (
            ["mask=scaled", "mask.mask.k=1.0"],
            ["algorithm.mask.mask.k is not a field of gma, got 1.0: it belongs to sand"],
        ),
        (
            ["mask=scaled", "mask.mask=median"],
            ["algorithm.mask.mask must be one of none, gma, and, sand, magnitude, scaled", "got 'median'"],
        ),
        (["mask=gma", "mask.tau.to=0.5"], ["algorithm.mask.tau.over is missing"]),
        (["mask=gma", "mask.tau.over=5"], ["algorithm.mask.tau.to is missing"]),
        (["mask=gma", "mask.tau.to=1.5", "mask.tau.over=5"], ["algorithm.mask.tau must be between 0 and 1, got 1.5"]),
        (["mask.tau=0.5"], ["algorithm.mask.name is missing: it says which mask is meant"]),
        (["mask=none", "mask.tau=0.5"], ["algorithm.mask.tau has no meaning with algorithm.mask = 'none', got 0.5"]),
    ],
)
def test_a_file_that_does_not_fit_is_told_by_its_key(settings: list[str], says: list[str]) -> None:
    with sentence(*says):
        mask_of(*settings)


@pytest.mark.parametrize("tau", [cosine(1.5, over=10), ramp(0.5, over=10, end=1.2), "0.4", True, None])
@pytest.mark.parametrize("make", [gma, and_mask, sand, magnitude])
def test_tau_that_leaves_its_range_is_refused(make: type, tau: object) -> None:
    with sentence("tau must be between 0 and 1, got"):
        make(tau)


def test_the_weighted_and_the_gross_sum_have_the_same_bits_where_signs_agree() -> None:
    """What makes a magnitude agreement exactly 1, in any precision and any number of blocks."""
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        deltas, weights = -torch.rand(9, 1000).to(dtype), torch.rand(9, 1).to(dtype)
        assert torch.equal(-total(deltas, weights).value, total(deltas.abs(), weights).value)
