"""Every engine computes what the sequential one does: the same clients, batches and dropout bits; sums that differ by
rounding alone."""

import inspect
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import nn

import accord
from accord import AccordError, Algorithm, corrective, gma
from accord.data import CropFlip, Federation, Scale, coloured, deal, shifted
from accord.engines.vectorised import Vectorised
from accord.rules.named import ALGORITHMS
from accord.rules.registry import PARTS
from accord.rules.servers import adagrad, adam, momentum, step, yogi
from accord.runs.run import Run
from accord.training.cohort import Conditions
from accord.training.engine_choice import ENGINES
from conftest import blobs, mlp
from engine_jobs import make_job, make_work

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# But for the reference itself, who chooses among the others, and Ray, which has a cluster to start
# (tests/integration).
OTHERS = [name for name in ENGINES if name not in ("sequential", "auto", "ray")]


@pytest.fixture(autouse=True)
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions in TF32 differ from exact ones by more than the order of sums does."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def fitted(engine: str, model: nn.Module, fed: Federation, algorithm: Algorithm, **settings: Any) -> Run:
    defaults = {"rounds": 3, "sample": 5, "batch": 8, "device": DEVICE, "evaluate_every": 1}
    return accord.fit(model, fed, algorithm, engine=engine, **{**defaults, **settings})


def compare(
    engine: str, model: nn.Module, fed: Federation, algorithm: Algorithm, atol: float = 2e-5, **settings: Any
) -> None:
    ours, reference = (fitted(name, model, fed, algorithm, **settings) for name in (engine, "sequential"))
    assert_close(ours, reference, atol)


def assert_close(ours: Run, reference: Run, atol: float) -> None:
    assert torch.allclose(ours.last.vector, reference.last.vector, atol=atol)
    assert torch.allclose(ours.last.buffers, reference.last.buffers, atol=atol)
    for mine, theirs in zip(ours.rows, reference.rows, strict=True):
        for key in ("round", "invited", "accepted", "left_out", "steps", "samples"):
            assert mine[key] == theirs[key]
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)
        assert mine["client_norm"] == pytest.approx(theirs["client_norm"], rel=1e-3)
        if "agreement" in theirs:
            assert mine["agreement"] == pytest.approx(theirs["agreement"], abs=0.02)
    assert ours.clients[0]["loss"] == pytest.approx(reference.clients[0]["loss"], rel=1e-3)


# --------------------------------------------------------------------------------- every rule on every engine


def makers(what: str) -> list[Callable[..., Any]]:
    """All rules of one kind: those that are registered, and those that only a named algorithm has."""
    named = [type(getattr(make(), what)) for make in ALGORITHMS.values()]
    return [*dict.fromkeys([*PARTS[what].values(), *(kind for kind in named if kind is not type(None))])]


def variants(make: Callable[..., Any]) -> Iterator[Any]:
    """A rule as it comes, then with every other choice that one of its settings names; a number that is 0 unless set is
    set."""
    yield make()
    hints = get_type_hints(make)
    for name, setting in inspect.signature(make).parameters.items():
        choices: tuple[Any, ...] = ()
        if get_origin(hints[name]) is Literal:
            choices = get_args(hints[name])
        elif isinstance(setting.default, bool):
            choices = (False, True)
        elif setting.default == 0.0 and isinstance(setting.default, float):
            choices = (0.5,)
        yield from (make(**{name: value}) for value in choices if value != setting.default)


def rules(what: str, every_variant: bool = True) -> list[Any]:
    return [rule for make in makers(what) for rule in (variants(make) if every_variant else [make()])]


def covering() -> list[Algorithm]:
    """As few algorithms as can be that have every rule in every variant, and those with their data in one place."""
    parts = [rules("local"), rules("average"), [None, *rules("mask")], rules("server")]
    rows = [[of_kind[row % len(of_kind)] for of_kind in parts] for row in range(max(map(len, parts)))]
    return [*(Algorithm(*row) for row in rows), *(make() for make in ALGORITHMS.values() if make().pools)]


def everything() -> list[Algorithm]:
    """Every local rule with every average and every mask. What a server does with the sum no engine sees: its rules
    take turns."""
    parts = product(rules("local", False), rules("average", False), [None, *rules("mask", False)])
    servers = rules("server", False)
    return [Algorithm(*row, servers[number % len(servers)]) for number, row in enumerate(parts)]


def run_of(engine: str, algorithm: Algorithm) -> Run:
    """In double precision, where no vote or distance is so close that the order of a sum decides it."""
    fed, momentum = blobs(), 0.9
    try:
        algorithm.local.check(momentum)
    except AccordError:
        momentum = 0.0
    exact = replace(fed, x=fed.x.double())
    return fitted(engine, mlp().double(), exact, algorithm, rounds=2, sample=6, momentum=momentum)


@pytest.fixture(scope="module")
def reference(request: pytest.FixtureRequest) -> tuple[Algorithm, Run]:
    """An algorithm and what the sequential engine makes of it, once for all engines."""
    return request.param, run_of("sequential", request.param)


def parts_of(algorithm: Algorithm) -> str:
    return "-".join(str(part) for part in (algorithm.local, algorithm.average, algorithm.mask, algorithm.server))


@pytest.mark.parametrize("reference", covering(), ids=parts_of, indirect=True)
@pytest.mark.parametrize("engine", OTHERS)
def test_every_rule(engine: str, reference: tuple[Algorithm, Run]) -> None:
    if engine == "processes" and DEVICE == "cuda":
        pytest.skip("the processes engine trains on the CPU")
    algorithm, run = reference
    assert_close(run_of(engine, algorithm), run, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("reference", everything(), ids=parts_of, indirect=True)
@pytest.mark.parametrize("engine", OTHERS)
def test_every_combination_of_rules(engine: str, reference: tuple[Algorithm, Run]) -> None:
    test_every_rule(engine, reference)


# ------------------------------------------------------------------------- every kind of model, data and setting

SOME = {
    "fedavg + gma": accord.fedavg(mask=gma()),
    "scaffold": accord.scaffold(mask=gma()),
    "scaffold I": accord.scaffold("I"),
    "fedgma": accord.fedgma(0.6),
    "corrective": Algorithm(average=corrective(0.3), mask=gma()),
    "corrective, asked twice": Algorithm(average=corrective(0.3, passes=2)),
}


def pairs(first: dict[str, Any], second: list[Any], every: int) -> list[Any]:
    """All pairs of names; but for each `every`-th, they are slow tests."""
    return [
        pytest.param(one, other, marks=[] if (i + j) % every == 0 else pytest.mark.slow)
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]


def net(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), *layers, nn.Linear(16, 4))


MODELS = {
    "dropout": lambda: net(nn.ReLU(), nn.Dropout(0.3)),
    "batch norm": lambda: net(nn.BatchNorm1d(16), nn.ReLU()),
    "batch norm and dropout": lambda: net(nn.BatchNorm1d(16), nn.Dropout(0.5), nn.ReLU()),
    "group norm": lambda: net(nn.GroupNorm(4, 16), nn.ReLU()),
    "layer norm": lambda: net(nn.LayerNorm(16), nn.GELU()),
}


@pytest.mark.parametrize(("model", "algorithm"), pairs(MODELS, list(SOME), every=3))
def test_every_kind_of_layer(model: str, algorithm: str) -> None:
    compare("vectorised", MODELS[model](), blobs(), SOME[algorithm], atol=1e-4, epochs=2)


SETTINGS = {
    "ragged, whole batches": {"batch": None},
    "clipped and decayed": {"clip": 0.5, "weight_decay": 0.01},
    "few steps": {"steps": 2},
    "schedule": {"lr": accord.schedule.exponential(0.1, decay=0.5)},
    "stragglers and lost reports": {"conditions": Conditions(available=0.9, lost=0.2, stragglers=0.5)},
    "everybody": {"sample": None},
    "batches of one": {"batch": 1, "rounds": 1},
}


@pytest.mark.parametrize(
    ("settings", "algorithm"), pairs(SETTINGS, ["fedavg + gma", "fedgma", "corrective, asked twice"], every=3)
)
def test_every_setting(settings: str, algorithm: str) -> None:
    compare("vectorised", mlp(), blobs(clients=20), SOME[algorithm], **SETTINGS[settings])


def pictures() -> Federation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (160, 1, 16, 16), dtype=torch.uint8, generator=generator)
    return deal(x, torch.arange(160) % 10, clients=6, unseen=1, split="quantity", prepare=Scale((0.5,), (0.3,)))


@pytest.mark.parametrize("model", ["lenet", pytest.param("cnn", marks=pytest.mark.slow)])
def test_pictures_shifted_and_augmented(model: str) -> None:
    fed = replace(shifted(pictures(), coloured(), 0), augment=CropFlip(2))
    module = getattr(accord.models, model)(channels=3, size=16)
    compare("vectorised", module, fed, accord.fedavg(mask=gma()), epochs=2, sample=None if model == "cnn" else 5)


@pytest.mark.parametrize("placement", ["after", "before"])
@pytest.mark.parametrize("engine", ["sequential", *OTHERS])
def test_control_takes_a_step_as_long_as_the_masked_one(engine: str, placement: Literal["after", "before"]) -> None:
    """In the first round, where both start from the same model."""
    for make in (step, momentum, adagrad, adam, yogi):
        algorithms = [
            Algorithm(mask=mask, server=make(placement=placement)) for mask in (gma(0.6), accord.scaled(gma(0.6)), None)
        ]
        runs = [fitted(engine, mlp(), blobs(), algorithm, rounds=1) for algorithm in algorithms]
        masked, control, plain = (run.rows[0]["step_norm"] for run in runs)
        assert control == pytest.approx(masked, rel=1e-6)
        assert masked < (1 - 1e-4) * plain


@pytest.mark.parametrize("engine", OTHERS)
def test_clients_that_are_left_out(engine: str) -> None:
    """Nobody's NaN is anybody else's, and a client without samples stands in nobody's way."""
    fed = blobs()
    x = fed.x.clone()
    x[fed.train["c03"][0]] = torch.nan
    train = {**fed.train, "none": fed.train["c00"][:0]}
    broken = Federation(x, fed.y, train, fed.heldout, fed.unseen, name="blobs")
    device = "cpu" if engine == "processes" else DEVICE
    compare(engine, mlp(), broken, accord.scaffold(mask=gma()), sample=None, device=device)


@pytest.mark.parametrize(("model", "lanes"), pairs({"mlp": 0, "lenet": 0}, [1, 2, 3, 7], every=2))
def test_bits_do_not_depend_on_how_lanes_are_packed(model: str, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "few", lambda job: Vectorised(job, lanes=lanes))
    module, fed = (mlp(), blobs()) if model == "mlp" else (accord.models.lenet(size=16), pictures())
    settings = {"rounds": 2, "sample": 5, "batch": 8, "device": DEVICE}
    whole, few = (
        accord.fit(module, fed, accord.fedavg(mask=gma()), engine=name, **settings) for name in ("vectorised", "few")
    )
    assert torch.equal(few.last.vector, whole.last.vector)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * torch.randn_like(x)


def test_a_shard_leaves_nothing_behind() -> None:
    """Workers of a cluster train shards round after round, and members hold what clients remember."""
    job = make_job(accord.scaffold())
    engine, (work, members) = Vectorised(job), make_work(job)
    for round in (1, 2):
        engine.train_shard(replace(work, round=round), members)
    kept = [weakref.ref(member) for member in members]
    del members
    assert not any(member() for member in kept)


def test_a_model_that_cannot_be_batched_is_trained_one_by_one_and_its_layer_named() -> None:
    odd = net(Noisy(), nn.ReLU())
    with pytest.warns(UserWarning, match=r"cannot be run for many clients at once at layer 1 \(Noisy\)"):
        ours = accord.fit(odd, blobs(), rounds=1, engine="vectorised", device=DEVICE)
    reference = accord.fit(odd, blobs(), rounds=1, engine="sequential", device=DEVICE)
    assert torch.equal(ours.last.vector, reference.last.vector)


def test_auto_says_what_it_chose_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    accord.fit(mlp(), blobs(), rounds=1, device="cpu", verbose=True)
    assert "engine sequential: clients are done too soon to be handed out (92 parameters)" in capsys.readouterr().err
