"""Clients that harm: what each attack does to a report, who attacks, and that every engine sees the same."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import accord
from accord import Conditions, gma
from accord.attacks import ATTACKS, Attack, Attackers, attackers, flipped, label_flip, noise, scaled, sign_flip
from accord.core import draws
from accord.core.layout import Layout
from accord.core.losses import accuracy, cross_entropy
from accord.core.protocols import Average
from accord.core.reports import Reports
from accord.data import Federation, coloured, deal, shifted
from accord.engines.contract import Job
from accord.engines.vectorised import Vectorised
from accord.experiments.cost import as_text
from accord.experiments.experiment import parse
from accord.experiments.lockstep import Shared, alike, together
from accord.rules.local import Training
from accord.runs.fingerprint import describe
from accord.training.fit import make_job
from accord.training.loop import Loop
from accord.training.plan import Plan, identity
from conftest import Point, blobs, cost, mlp, quadratics, sentence

SETTINGS = {"rounds": 3, "sample": 6, "batch": 8, "device": "cpu", "lr": 0.05}
DELTAS = torch.tensor([[1.0, -2.0], [3.0, 4.0], [0.0, 0.5]])


def reported(attack: Attack, round: int = 1, seed: int = 0) -> torch.Tensor:
    """What becomes of DELTAS when the second of three clients attacks."""
    ones = torch.ones(3, 1)
    reports = Reports(DELTAS, ones, ones, ones[:, :0], extra={"last_gradient": DELTAS * 10, "end_loss": ones})
    made = Attackers(attack, frozenset({"b"}), seed, 4).reported(reports, ["a", "b", "c"], round)
    assert torch.equal(made.delta[[0, 2]], DELTAS[[0, 2]])  # honest clients' reports stay as they are
    assert torch.equal(made.extra["end_loss"], ones)
    return torch.stack([made.delta[1], made.extra["last_gradient"][1]])


def test_attacks_by_hand() -> None:
    assert reported(sign_flip(1.0)).tolist() == [[-3.0, -4.0], [-30.0, -40.0]]
    assert reported(sign_flip(1.0, factor=2.0)).tolist()[0] == [-6.0, -8.0]
    assert reported(scaled(1.0)).tolist()[0] == [30.0, 40.0]
    assert reported(label_flip(1.0)).tolist()[0] == [3.0, 4.0]  # it reports what it learnt
    assert flipped(torch.tensor([0, 1, 9]), 9).tolist() == [9, 8, 0]
    assert flipped(torch.tensor([[0, 1], [0, 1]]), torch.tensor([[3], [-1]])).tolist() == [[3, 2], [0, 1]]


def test_noise_is_as_long_as_the_update_and_fresh_every_round() -> None:
    made = reported(noise(1.0, factor=2.0))
    assert made.norm(dim=1).tolist() == pytest.approx([10.0, 100.0])
    again, next_round, other_seed = (
        reported(noise(1.0, factor=2.0)),
        reported(noise(1.0, factor=2.0), 2),
        reported(noise(1.0, factor=2.0), seed=1),
    )
    assert torch.equal(made, again) and not torch.allclose(made, next_round) and not torch.allclose(made, other_seed)
    direction = made / made.norm(dim=1, keepdim=True)
    assert not torch.allclose(direction[0], direction[1])
    ones = torch.ones(2, 1)
    alike = Reports(DELTAS[[0, 0]], ones, ones, ones[:, :0])
    two = Attackers(noise(1.0), frozenset({"a", "b"}), 0, 4).reported(alike, ["a", "b"], 1).delta
    assert not torch.allclose(two[0], two[1]), "attackers draw apart from each other"


def test_normal_draws_are_normal() -> None:
    drawn = draws.normal(100_001, 7, torch.device("cpu"))
    assert len(drawn) == 100_001 and drawn.isfinite().all()
    assert drawn.mean().item() == pytest.approx(0.0, abs=0.01) and drawn.var().item() == pytest.approx(1.0, abs=0.02)
    assert (drawn.abs() < 1.0).double().mean().item() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.005)
    halves = drawn[:50_000] @ drawn[50_001:] / 50_000  # of one pair of draws: cosine and sine
    assert abs(halves.item()) < 0.02


# ------------------------------------------------------------------------------------------------ who attacks


def test_who_attacks_is_a_keyed_draw_of_a_share_of_all_clients() -> None:
    fed = blobs()  # twelve participating clients
    drawn = {
        share: attackers(sign_flip(share), fed, accord.fedavg(), 0).clients for share in (0.0, 0.2, 0.25, 0.3, 0.5, 1.0)
    }
    assert [len(clients) for clients in drawn.values()] == [0, 2, 3, 4, 6, 12]
    assert drawn[0.2] < drawn[0.25] < drawn[0.5]  # the same ones, and others
    assert drawn[1.0] == set(fed.clients)
    assert (
        attackers(noise(0.5), fed, accord.fedavg(), 0).clients
        == drawn[0.5]
        != attackers(noise(0.5), fed, accord.fedavg(), 1).clients
    )


def test_a_run_tells_how_many_attackers_took_part() -> None:
    run = accord.fit(mlp(), blobs(), attack=sign_flip(0.5), **SETTINGS)
    guilty = attackers(sign_flip(0.5), blobs(), accord.fedavg(), 0).clients
    for row in run.rows:
        invited = [blobs().clients[i] for i in draws.choose(12, 6, 0, "sample", row["round"])]
        assert row["attackers"] == len(guilty & set(invited))
    assert "attackers" not in accord.fit(mlp(), blobs(), **SETTINGS).rows[0]


# ------------------------------------------------------------------------------------------- what comes of it


def test_nobody_attacks_with_a_share_of_nothing() -> None:
    honest = accord.fit(mlp(), blobs(), **SETTINGS).last.vector
    for make in ATTACKS.values():
        assert torch.equal(accord.fit(mlp(), blobs(), attack=make(0.0), **SETTINGS).last.vector, honest)


def test_if_all_flip_their_signs_the_server_climbs() -> None:
    settings = {**SETTINGS, "rounds": 1}
    start = Layout.of(mlp()).pack(mlp())
    honest = accord.fit(mlp(), blobs(), **settings).last.vector - start
    against = accord.fit(mlp(), blobs(), attack=sign_flip(1.0, factor=3.0), **settings).last.vector - start
    assert torch.allclose(against, -3.0 * honest, atol=1e-5)


def test_label_flip_is_training_on_flipped_labels() -> None:
    """All attack, so the same as honest clients of a federation whose training labels are mirrored; evaluation keeps
    the true ones."""
    fed = blobs()
    y = fed.y.clone()
    for rows in fed.train.values():
        y[rows] = 3 - y[rows]
    attacked = accord.fit(mlp(), fed, attack=label_flip(1.0), **SETTINGS)
    mirrored = accord.fit(mlp(), replace(fed, y=y), **SETTINGS)
    assert torch.equal(attacked.last.vector, mirrored.last.vector)
    honest = {(row["split"], row["client"]): row["loss"] for row in attacked.clients}
    on_lies = {(row["split"], row["client"]): row["loss"] for row in mirrored.clients}
    assert honest["train", "c00"] != on_lies["train", "c00"] and honest["heldout", "c00"] == on_lies["heldout", "c00"]


def pictures() -> Federation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (160, 1, 16, 16), dtype=torch.uint8, generator=generator)
    return shifted(deal(x, torch.arange(160) % 10, clients=6, unseen=1), coloured(), 0)


@pytest.mark.parametrize("engine", ["vectorised", "processes"])
@pytest.mark.parametrize("attack", [sign_flip(0.4), scaled(0.4), noise(0.4), label_flip(0.4)], ids=repr)
@pytest.mark.parametrize(
    "algorithm", [accord.fedavg(mask=gma()), accord.scaffold("I"), accord.fedavg(average=accord.median())]
)
def test_engines_agree(attack: Attack, engine: str, algorithm: accord.Algorithm) -> None:
    runs = [
        accord.fit(mlp(), blobs(), algorithm, attack=attack, engine=name, **SETTINGS) for name in (engine, "sequential")
    ]
    assert torch.allclose(
        runs[0].last.vector, runs[1].last.vector, atol=5e-4 if attack.share and isinstance(attack, scaled) else 2e-5
    )
    for mine, theirs in zip(runs[0].rows, runs[1].rows, strict=True):
        assert mine["attackers"] == theirs["attackers"] > 0
        assert mine["client_norm"] == pytest.approx(theirs["client_norm"], rel=1e-3)
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)


def test_label_flips_see_pictures_in_their_true_colours() -> None:
    """A picture's colour goes by its true label, on every engine; only the label that is learnt is another."""
    model = accord.models.lenet(channels=3, size=16)
    settings = {"rounds": 2, "batch": 8, "device": "cpu", "attack": label_flip(0.5)}
    runs = [accord.fit(model, pictures(), engine=name, **settings) for name in ("vectorised", "sequential")]
    assert torch.allclose(runs[0].last.vector, runs[1].last.vector, atol=2e-5)


def test_runs_in_lockstep_have_attackers_of_their_own() -> None:
    attacks: list[Attack | None] = [label_flip(0.5), sign_flip(0.3), None, noise(0.5)]
    shared = Shared()

    def job(attack: Attack | None, seed: int) -> tuple[Job, Plan]:
        plan = Plan(rounds=3, sample=5, seed=seed)
        return (
            make_job(
                mlp(),
                shared.federation(blobs()),
                accord.fedavg(mask=gma()),
                Training(batch=8),
                plan,
                "cpu",
                attack=attack,
            ),
            plan,
        )

    alone = [
        accord.fit(
            mlp(),
            blobs(),
            accord.fedavg(mask=gma()),
            attack=a,
            seed=i,
            rounds=3,
            sample=5,
            batch=8,
            engine="vectorised",
            device="cpu",
        )
        for i, a in enumerate(attacks)
    ]
    jobs = [job(attack, seed) for seed, attack in enumerate(attacks)]
    assert len({alike(one) for one, _ in jobs}) == 1
    engine = Vectorised(jobs[0][0])
    loops = [Loop(one, plan, engine, None, []) for one, plan in jobs]
    assert len(list(together(loops, engine, at_once=4))) == 4
    for loop, run in zip(loops, alone, strict=True):
        assert torch.allclose(loop.result().last.vector, run.last.vector, atol=1e-6)


def test_a_report_blown_out_of_all_bounds_is_left_out_and_named() -> None:
    for engine in ("sequential", "vectorised"):
        run = accord.fit(mlp(), blobs(), attack=scaled(0.5, factor=1e39), engine=engine, **SETTINGS)
        guilty = attackers(scaled(0.5), blobs(), accord.fedavg(), 0).clients
        assert all(set(row["left_out"]) <= guilty and row["attackers"] == 0 for row in run.rows)
        assert "infinity in the update" in {why for row in run.rows for why in row["left_out"].values()}


def test_attackers_of_scaffold_keep_honest_control_variates() -> None:
    """c stays the mean of all c_n, whatever is reported of the model."""
    problem = quadratics((1.0, -1.0), (10.0, 2.0), (3.0, 1.0), (2.0, 0.0))
    settings = {"epochs": 10, "batch": 1, "lr": 0.05, "momentum": 0.0, "loss": cost, "metrics": {}, "rounds": 3}
    run = accord.fit(Point(), problem, accord.scaffold(), attack=sign_flip(0.25), **settings)
    assert run.last.vector.isfinite().all()
    assert math.isfinite(run.rows[-1]["train_loss"])


# -------------------------------------------------------------------------------------------------- breakdown

# Nine clients pull to b between 0.9 and 1.1; each takes one step that ends near its own optimum.
NINE = quadratics(*((1.0, 0.9 + 0.025 * i) for i in range(9)))


def settled(algorithm: accord.Algorithm, attack: Attack | None) -> float:
    settings = {
        "rounds": 30,
        "epochs": 1,
        "batch": 1,
        "lr": 0.5,
        "momentum": 0.0,
        "loss": cost,
        "metrics": {},
        "evaluate_every": 30,
    }
    return accord.fit(Point(), NINE, algorithm, attack=attack, seed=3, **settings).model().x.item()


@pytest.mark.parametrize("share", [0.22, 0.33, 0.44])
def test_fewer_than_half_who_flip_signs_cannot_carry_off_the_median_but_the_mean(share: float) -> None:
    """Two to four of nine report five times the opposite: one is enough to turn the mean around."""
    attack = sign_flip(share, factor=5.0)
    assert settled(accord.fedavg(), None) == pytest.approx(1.0, abs=1e-9)
    assert settled(accord.fedavg(average=accord.median()), attack) == pytest.approx(1.0, abs=0.15)
    assert abs(settled(accord.fedavg(), attack) - 1.0) > 1.0


@pytest.mark.parametrize(("average", "share"), [(accord.trimmed_mean(0.35), 0.33), (accord.krum(3, keep=3), 0.33)])
def test_other_robust_averages_stay_near_the_optimum_too(average: Average, share: float) -> None:
    assert settled(accord.fedavg(average=average), sign_flip(share, factor=5.0)) == pytest.approx(1.0, abs=0.15)


def test_more_than_half_carry_off_the_median_too() -> None:
    assert abs(settled(accord.fedavg(average=accord.median()), sign_flip(0.6, factor=5.0)) - 1.0) > 1.0


# -------------------------------------------------------------------------------------------- names, settings


def test_runs_without_attackers_keep_their_names() -> None:
    job = make_job(mlp(), blobs(), accord.fedavg(), Training(), Plan(), "cpu")
    assert "attack" not in identity(job, Plan())
    attacked = make_job(mlp(), blobs(), accord.fedavg(), Training(), Plan(), "cpu", attack=noise())
    assert identity(attacked, Plan()) == {**identity(job, Plan()), "attack": {"kind": "noise"}}
    plain, none, some = (
        parse(""),
        parse("", ["attack.name=none"]),
        parse("", ["attack.name=sign_flip", "attack.share=0.3"]),
    )
    assert "attack" not in plain.identity and plain.identity == none.identity and "attack" not in plain.resolved()
    assert some.identity == {**plain.identity, "attack": describe(sign_flip(0.3))}
    assert some.folder(0) != plain.folder(0) == none.folder(0)


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_of_a_file(name: str) -> None:
    chosen = parse(f'[attack]\nname = "{name}"\nshare = 0.3\n')
    assert chosen.attack == ATTACKS[name](0.3)
    again = parse(as_text({"settings": chosen.resolved(), "cost": {}, "folders": []}))
    assert again.attack == chosen.attack and again.folder(0) == chosen.folder(0)
    assert parse(again.text, ["attack.name=none"]).attack is None
    assert parse(again.text, ["attack.name=sign_flip"]).attack.share == 0.3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["attack.name=sign_flip", "attack.share=1.5"],
            ["attack.share must be between 0 and 1, got 1.5: it is the share of all participating"],
        ),
        (["attack.name=sign_flip", "attack.share=-0.1"], ["attack.share must be between 0 and 1, got -0.1"]),
        (["attack.name=noise", "attack.factor=-1.0"], ["attack.factor must be a number of 0 or more, got -1.0"]),
        (
            ["attack.name=label_flip", "attack.factor=2.0"],
            ["attack.factor has no meaning with attack.name = 'label_flip', got 2.0"],
        ),
        (["attack.share=0.2"], ["attack.share has no meaning with attack.name = 'none'"]),
        (["attack.name=flip"], ["attack.name must be one of none, sign_flip, scaled, noise, label_flip, got 'flip'"]),
        (["attack.name=noise", "algorithm.name=pooled"], ["an attack needs clients that report updates", "pooled"]),
        (["attack.nme=noise"], ["attack.nme is not a known key", "did you mean 'name'?"]),
    ],
)
def test_a_file_that_does_not_fit_is_told_by_its_key(settings: list[str], says: list[str]) -> None:
    with sentence(*says):
        parse("", settings)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, "half", True, None])
@pytest.mark.parametrize("make", ATTACKS.values())
def test_a_share_outside_nothing_to_all_is_refused(make: type, share: object) -> None:
    with sentence("share must be between 0 and 1, got"):
        make(share)


def test_what_has_no_meaning_is_refused() -> None:
    with sentence("an attack needs clients that report updates", "local_only"):
        accord.fit(mlp(), blobs(), accord.local_only(), attack=noise(), **SETTINGS)
    with sentence("attack must be an attack such as sign_flip(share=0.2), got 'noise'"):
        accord.fit(mlp(), blobs(), attack="noise", **SETTINGS)
    floats = accord.data.from_arrays(
        {"a": (torch.randn(20, 3), torch.randn(20)), "b": (torch.randn(20, 3), torch.randn(20))}
    )
    with sentence("attack label_flip needs one class per sample"):
        accord.fit(nn.Linear(3, 1), floats, attack=label_flip(), rounds=1)


def test_regression_can_be_attacked_too() -> None:
    floats = accord.data.from_arrays({name: (torch.randn(20, 3), torch.randn(20)) for name in "abcd"})
    assert (
        accord.fit(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), floats, attack=noise(0.5), rounds=2).rows[-1][
            "attackers"
        ]
        == 2
    )


def test_a_resumed_run_meets_the_same_attackers(tmp_path) -> None:
    settings = {**SETTINGS, "attack": noise(0.5), "conditions": Conditions(lost=0.2), "checkpoint_every": 1}
    straight = accord.fit(mlp(), blobs(), folder=tmp_path / "a", **settings)
    accord.fit(mlp(), blobs(), folder=tmp_path / "b", **{**settings, "rounds": 1})
    assert torch.equal(accord.fit(mlp(), blobs(), folder=tmp_path / "b", **settings).last.vector, straight.last.vector)


def test_a_job_names_its_attackers_once() -> None:
    made = attackers(sign_flip(0.5), blobs(), accord.fedavg(), 5)
    job = Job(
        mlp(),
        Layout.of(mlp()),
        blobs(),
        accord.fedavg(),
        Training(),
        cross_entropy,
        {"accuracy": accuracy},
        5,
        torch.device("cpu"),
        attack=made,
    )
    assert job.attack == attackers(sign_flip(0.5), blobs(), accord.fedavg(), 5)
