"""Every engine computes what the sequential one does: the same clients, batches and dropout bits; sums that differ by
rounding alone."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import accord
import accord.training.engine_choice
from accord import Algorithm, and_mask, corrective, gma
from accord.data import CropFlip, Federation, Scale, coloured, deal, shifted
from accord.engines.vectorised import Vectorised
from accord.training.cohort import Conditions
from conftest import blobs, mlp

ENGINES = ["vectorised"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALGORITHMS = {
    "fedavg": accord.fedavg(),
    "fedavg + gma": accord.fedavg(mask=gma()),
    "fedsgd": accord.fedsgd(),
    "fedprox": accord.fedprox(0.1, mask=gma()),
    "fedavgm": accord.fedavgm(),
    "fedadam": accord.fedadam(mask=gma()),
    "fedyogi": accord.fedyogi(mask=and_mask()),
    "fedadagrad": accord.fedadagrad(),
    "scaffold": accord.scaffold(mask=gma()),
    "scaffold I": accord.scaffold("I"),
    "scaffold II": accord.scaffold("II"),
    "fedgma": accord.fedgma(0.6),
    "fedgma, start": accord.fedgma(0.6, gradient="start"),
    "corrective": Algorithm(average=corrective(0.3), mask=gma()),
    "corrective, asked twice": Algorithm(average=corrective(0.3, passes=2)),
    "corrective, eq. 15": Algorithm(average=corrective(0.3, "15"), server=accord.server.adam()),
    "scaffold, corrective": replace(accord.scaffold(), average=corrective(0.3, passes=2)),
    "local_only": accord.local_only(),
    "pooled": accord.pooled(),
}


@pytest.fixture(autouse=True)
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions in TF32 differ from exact ones by more than the order of sums does."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def compare(
    engine: str, model: nn.Module, fed: Federation, algorithm: accord.Algorithm, atol: float = 2e-5, **settings
) -> None:
    settings = {"rounds": 3, "sample": 5, "batch": 8, "device": DEVICE, "evaluate_every": 1, **settings}
    ours, reference = (accord.fit(model, fed, algorithm, engine=name, **settings) for name in (engine, "sequential"))
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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm(engine: str, algorithm: str) -> None:
    momentum = 0.0 if algorithm == "scaffold II" else 0.9
    compare(engine, mlp(), blobs(), ALGORITHMS[algorithm], momentum=momentum)


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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "algorithm", ["fedavg + gma", "scaffold", "scaffold I", "fedgma", "corrective", "corrective, asked twice"]
)
def test_every_kind_of_layer(engine: str, model: str, algorithm: str) -> None:
    compare(engine, MODELS[model](), blobs(), ALGORITHMS[algorithm], atol=1e-4, epochs=2)


SETTINGS = {
    "ragged, whole batches": {"batch": None},
    "clipped and decayed": {"clip": 0.5, "weight_decay": 0.01},
    "few steps": {"steps": 2},
    "schedule": {"lr": accord.schedule.exponential(0.1, decay=0.5)},
    "stragglers and lost reports": {"conditions": Conditions(available=0.9, lost=0.2, stragglers=0.5)},
    "everybody": {"sample": None},
    "batches of one": {"batch": 1, "rounds": 1},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("algorithm", ["fedavg + gma", "fedgma", "corrective, asked twice"])
def test_every_setting(engine: str, settings: str, algorithm: str) -> None:
    compare(engine, mlp(), blobs(clients=20), ALGORITHMS[algorithm], **SETTINGS[settings])


def pictures() -> Federation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (160, 1, 16, 16), dtype=torch.uint8, generator=generator)
    return deal(x, torch.arange(160) % 10, clients=6, unseen=1, split="quantity", prepare=Scale((0.5,), (0.3,)))


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_shifted_and_augmented(engine: str) -> None:
    fed = replace(shifted(pictures(), coloured(), 0), augment=CropFlip(2))
    compare(engine, accord.models.lenet(channels=3, size=16), fed, accord.fedavg(mask=gma()), epochs=2)
    compare(engine, accord.models.cnn(channels=3, size=16), fed, accord.fedavg(mask=gma()), epochs=2, sample=None)


@pytest.mark.parametrize("engine", ENGINES)
def test_clients_that_are_left_out(engine: str) -> None:
    """Nobody's NaN is anybody else's, and a client without samples stands in nobody's way."""
    fed = blobs()
    x = fed.x.clone()
    x[fed.train["c03"][0]] = torch.nan
    train = {**fed.train, "none": fed.train["c00"][:0]}
    broken = Federation(x, fed.y, train, fed.heldout, fed.unseen, name="blobs")
    compare(engine, mlp(), broken, accord.scaffold(mask=gma()), sample=None)


@pytest.mark.parametrize("lanes", [1, 2, 3, 7])
@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_bits_do_not_depend_on_how_lanes_are_packed(lanes: int, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(accord.training.engine_choice.ENGINES, "few", lambda job: Vectorised(job, lanes=lanes))
    module, fed = (mlp(), blobs()) if model == "mlp" else (accord.models.lenet(size=16), pictures())
    settings = {"rounds": 2, "sample": 5, "batch": 8, "device": DEVICE}
    whole, few = (
        accord.fit(module, fed, accord.fedavg(mask=gma()), engine=name, **settings) for name in ("vectorised", "few")
    )
    assert torch.equal(few.last.vector, whole.last.vector)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * torch.randn_like(x)


def test_a_model_that_cannot_be_batched_is_trained_one_by_one_and_its_layer_named() -> None:
    odd = net(Noisy(), nn.ReLU())
    with pytest.warns(UserWarning, match=r"cannot be run for many clients at once at layer 1 \(Noisy\)"):
        ours = accord.fit(odd, blobs(), rounds=1, engine="vectorised", device=DEVICE)
    reference = accord.fit(odd, blobs(), rounds=1, engine="sequential", device=DEVICE)
    assert torch.equal(ours.last.vector, reference.last.vector)


def test_auto_says_what_it_chose_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    accord.fit(mlp(), blobs(), rounds=1, device="cpu", verbose=True)
    assert "engine sequential: clients are done too soon to be handed out (92 parameters)" in capsys.readouterr().err
