"""The same mathematics on a CUDA device as on the CPU. Skipped where there is none."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import accord
from accord import and_mask, gma, mean
from accord.attacks import ATTACKS
from accord.data import SHIFTS, AsIs, CropFlip, Scale, deal, shifted
from accord.engines.vectorised import Vectorised
from accord.rules.combine import combine
from accord.training.hooks import Event
from conftest import blobs, mlp

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rule", [mean(), gma(0.4), and_mask(0.4, rescale=True)])
def test_combine_agrees_with_the_cpu(rule: object, dtype: torch.dtype) -> None:
    deltas, weights = torch.randn(10, 5000).to(dtype), torch.arange(1, 11)
    here, there = combine(rule, deltas, weights), combine(rule, deltas.cuda(), weights)
    assert there.update.is_cuda
    assert torch.allclose(there.update.cpu(), here.update, atol=1e-6)
    if here.mask is not None:
        assert torch.equal(there.mask.cpu(), here.mask)  # votes are whole numbers: the same everywhere


RULES = [
    accord.sand(0.2),
    accord.magnitude(0.4),
    accord.scaled(gma(0.4)),
    gma(0.4, scope="layer"),
    gma(0.4, memory=0.5),
    accord.median(),
    accord.trimmed_mean(0.2),
    accord.krum(2, keep=3),
    accord.geometric_mean(agree=0.2),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_other_rules_agree_with_the_cpu(rule: object) -> None:
    deltas, weights = torch.randn(10, 5000), torch.arange(1, 11)
    here, there = combine(rule, deltas, weights), combine(rule, deltas.cuda(), weights)
    assert torch.allclose(there.update.cpu(), here.update, atol=1e-5)
    assert here.mask is None or torch.allclose(there.mask.cpu(), here.mask, atol=1e-5)


@pytest.mark.parametrize("make", ATTACKS.values())
def test_attacks_agree_with_the_cpu(make: type) -> None:
    algorithm, settings = (
        accord.fedavg(mask=gma(memory=0.5)),
        {
            "rounds": 3,
            "sample": 6,
            "batch": 8,
            "attack": make(0.4),
        },
    )
    runs = [accord.fit(mlp(), blobs(), algorithm, device=device, **settings) for device in ("cpu", "cuda")]
    assert torch.allclose(runs[1].last.vector.cpu(), runs[0].last.vector, atol=2e-3)
    assert [row["attackers"] for row in runs[0].rows] == [row["attackers"] for row in runs[1].rows]


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))


@pytest.mark.parametrize(
    "algorithm",
    [
        accord.fedavg(),
        accord.fedprox(0.1, mask=gma()),
        accord.fedadam(mask=gma()),
        accord.fedyogi(mask=and_mask()),
        accord.scaffold(mask=gma()),
        accord.scaffold("I"),
        accord.fedgma(0.6),
        accord.fedavg(average=accord.corrective(0.3, passes=2)),
        accord.local_only(),
        accord.pooled(),
    ],
    ids=lambda a: a.name,
)
def test_training_agrees_with_the_cpu_for_three_rounds(algorithm: accord.Algorithm) -> None:
    """The same clients, batches and dropout; sums differ by rounding alone."""
    runs = [
        accord.fit(small_net(), blobs(), algorithm, rounds=3, sample=5, batch=8, device=device)
        for device in ("cpu", "cuda")
    ]
    assert runs[1].last.vector.is_cuda
    assert torch.allclose(runs[1].last.vector.cpu(), runs[0].last.vector, atol=2e-3)
    assert torch.allclose(runs[1].last.buffers.cpu(), runs[0].last.buffers, atol=1e-3)
    assert [r["samples"] for r in runs[0].rows] == [r["samples"] for r in runs[1].rows]
    assert runs[0].rows[0]["train_loss"] == pytest.approx(runs[1].rows[0]["train_loss"], rel=1e-4)


def test_a_resumed_run_is_bit_identical(tmp_path) -> None:
    def train(folder, rounds: int) -> accord.Run:
        algorithm = accord.scaffold(mask=gma())
        return accord.fit(
            mlp(),
            blobs(),
            algorithm,
            rounds=rounds,
            sample=5,
            device="cuda",
            checkpoint_every=2,
            folder=tmp_path / folder,
        )

    train("parts", 3)
    train("parts", 6)
    parts, straight = train("parts", 10), train("straight", 10)
    assert torch.equal(parts.last.vector, straight.last.vector)


@pytest.mark.parametrize("shift", [None, *SHIFTS])
def test_shifted_and_augmented_pictures_are_the_same_bits(shift: str | None) -> None:
    x = torch.arange(60 * 64, dtype=torch.int64).remainder(251).to(torch.uint8).view(60, 1, 8, 8)
    fed = deal(x, torch.arange(60) % 10, clients=5, unseen=1, prepare=Scale((0.1,), (0.3,)))
    fed = replace(fed if shift is None else shifted(fed, SHIFTS[shift](), 0), augment=CropFlip(2))
    rows = torch.arange(60)
    here, there = fed.read(rows, 7)[0], fed.to("cuda").read(rows.cuda(), 7)[0]
    assert torch.allclose(there.cpu(), here, atol=1e-6)  # bits are equal before scaling, which divides
    assert torch.equal(
        replace(fed, prepare=AsIs()).to("cuda").read(rows.cuda(), 7)[0].cpu(),
        replace(fed, prepare=AsIs()).read(rows, 7)[0],
    )
    model = accord.models.logistic(features=here[0].numel(), classes=fed.outputs)
    runs = [accord.fit(model, fed, rounds=2, batch=4, device=device) for device in ("cpu", "cuda")]
    assert torch.allclose(runs[1].last.vector.cpu(), runs[0].last.vector, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("algorithm", [accord.fedavg(), accord.fedadam(mask=gma())], ids=lambda a: a.name)
def test_nothing_in_a_round_waits_for_the_device_but_for_its_reports(algorithm: accord.Algorithm) -> None:
    """The host waits for an event, once a round. A number that is read from the device, or a copy that is waited for,
    is an error here."""

    def hook(event: Event) -> None:
        torch.cuda.set_sync_debug_mode("error" if 3 <= event.round < 10 else "default")

    try:
        run = accord.fit(mlp(), blobs(), algorithm, rounds=14, batch=8, evaluate_every=100, device="cuda", hooks=[hook])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.rounds == 14


def test_rounds_that_begin_ahead_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client fails in the rounds that it takes part in: what was begun from a model with its report is dropped."""
    fed = blobs()
    x = fed.x.clone()
    x[fed.train[fed.clients[2]]] = float("nan")
    settings = {"rounds": 12, "sample": 5, "batch": 8, "evaluate_every": 3, "device": "cuda"}
    ahead = accord.fit(mlp(), replace(fed, x=x), accord.fedavg(mask=gma()), **settings)
    monkeypatch.setattr(Vectorised, "ahead", None)
    straight = accord.fit(mlp(), replace(fed, x=x), accord.fedavg(mask=gma()), **settings)
    assert ahead.rows == straight.rows and any(row["left_out"] for row in straight.rows)
    assert torch.equal(ahead.last.vector, straight.last.vector)
