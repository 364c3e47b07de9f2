"""The compiled library trains chains of layers as torch does; `auto` uses it, says so, and does without it."""

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import accord
from accord import kernels, models
from accord.core.layout import Layout
from accord.core.losses import cross_entropy
from accord.engines.compiled import chain_of, has_blocks
from accord.kernels import library
from accord.kernels.chain import Chain
from accord.kernels.chain import sgd_ as compiled_sgd_
from accord.rules.local import Training
from accord.rules.local.step import Piece, sgd_, step_
from accord.runs.environment import OtherEnvironment
from accord.training.fit import make_job
from accord.training.plan import Plan
from conftest import blobs, mlp, skip_without_kernel


@pytest.fixture
def undecided(unloaded_kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user has it: nobody has said anything for or against the library."""
    monkeypatch.delenv("ACCORD_NATIVE")


@pytest.fixture
def there(undecided: None) -> None:
    skip_without_kernel()


def pictures(clients: int = 4, samples: int = 45, size: int = 16) -> accord.data.Federation:
    generator = torch.Generator().manual_seed(0)
    arrays = {}
    for number in range(clients):
        count = samples + 7 * number  # ragged, with a short last batch
        y = torch.randint(0, 5, (count,), generator=generator)
        x = torch.rand(count, 1, size, size, generator=generator) + 0.2 * y[:, None, None, None]
        arrays[f"c{number}"] = (x, y)
    return accord.data.from_arrays(arrays, heldout=0.2, seed=0, name="pictures")


def lenet() -> nn.Module:
    return models.lenet(size=16, classes=5)


def linear() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(256, 70, bias=False), nn.ReLU(), nn.Linear(70, 33), nn.ReLU(), nn.Linear(33, 5)
    return nn.Sequential(nn.Flatten(), *layers)


def job_of(module: nn.Module, fed: accord.data.Federation, **changed: object) -> accord.engines.contract.Job:
    return make_job(module, fed, accord.fedavg(), Training(), Plan(rounds=1), "cpu", **changed)


# ------------------------------------------------------------------------------------------------ the gradient


def gradients(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """By torch, in float64: the flat gradient and the loss."""
    double = module.double()
    loss = F.cross_entropy(double(x.double()), y)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(double.parameters()))]), loss.detach()


@pytest.mark.parametrize("make", [lenet, linear, lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 5))])
@pytest.mark.parametrize("batch", [1, 3, 20, 33])
def test_gradients_are_those_of_torch(there: None, monkeypatch: pytest.MonkeyPatch, make, batch: int) -> None:
    monkeypatch.setenv("ACCORD_NATIVE", "1")
    fed = pictures()
    job = job_of(make(), fed)
    chain, (x, y) = chain_of(job), fed.read(torch.arange(batch))
    assert chain is not None
    made = chain.gradient(x, y, job.layout.pack(job.module))
    assert made is not None
    for mine, theirs in zip(made, gradients(job.module, x, y), strict=True):
        assert (mine - theirs).norm() <= 2e-6 * theirs.norm()


@pytest.mark.parametrize("make", [lenet, linear])
@pytest.mark.parametrize("drifts", [False, True])
def test_a_step_is_the_gradient_and_then_sgd(there: None, monkeypatch: pytest.MonkeyPatch, make, drifts: bool) -> None:
    monkeypatch.setenv("ACCORD_NATIVE", "1")
    fed = pictures()
    job = job_of(make(), fed)
    chain, start, (x, y) = chain_of(job), job.layout.pack(job.module), fed.read(torch.arange(20))
    assert chain is not None
    numbers = {"weight_decay": 0.1, "mu": 0.3, "lr": 0.05, "momentum": 0.9}
    generator = torch.Generator().manual_seed(1)

    def piece() -> Piece:
        generator.manual_seed(1)
        drift, met, velocity, w = torch.randn(4, job.layout.size, generator=generator)
        return Piece(start + 0.01 * w, start, drift if drifts else None, met if drifts else None, [velocity])

    together, apart, by_torch = piece(), piece(), piece()
    loss = chain.step(x, y, together, **numbers)
    made = chain.gradient(x, y, apart.w)
    assert made is not None and loss is not None and torch.equal(loss, made[1])
    tensors = {name: torch.tensor(value) for name, value in numbers.items()}
    step_([made[0]], [by_torch], sgd_, **tensors)
    compiled_sgd_([made[0]], [apart], **numbers)
    for one, two, three in zip(flat(together), flat(apart), flat(by_torch), strict=True):
        assert torch.allclose(one, two, rtol=1e-6, atol=1e-7) and torch.allclose(one, three, rtol=1e-5, atol=1e-6)
    before = piece()
    broken = torch.full_like(x, float("inf"))
    assert chain.step(broken, y, before, **numbers) is None
    assert all(torch.equal(one, two) for one, two in zip(flat(before), flat(piece()), strict=True)), "nothing moved"


def flat(piece: Piece) -> list[Tensor]:
    return [t for t in (piece.w, piece.gradients, *piece.kept) if t is not None]


def test_what_torch_must_do_is_left_to_it(there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_NATIVE", "1")
    fed = pictures()
    job = job_of(lenet(), fed)
    chain, w, (x, y) = chain_of(job), job.layout.pack(job.module), fed.read(torch.arange(4))
    assert chain is not None and chain.gradient(x, y, w) is not None
    for odd in (torch.tensor([0, 1, 5, 2]), torch.tensor([0, -100, 1, 2]), y.int(), y[:3]):
        assert chain.gradient(x, odd, w) is None
    for value in (float("nan"), float("inf")):
        broken = w.clone()
        broken[-1] = value  # a bias of the last layer
        assert chain.gradient(x, y, broken) is None and chain.gradient(x * value, y, w) is None
    assert chain.gradient(x.double(), y, w) is None and chain.gradient(x[..., :8], y, w) is None
    monkeypatch.setenv("ACCORD_NATIVE", "0")
    assert chain.gradient(x, y, w) is None


def tied() -> nn.Module:
    layer = nn.Linear(256, 256)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def frozen() -> nn.Module:
    module = linear()
    module[1].weight.requires_grad_(False)
    return module


def watched() -> nn.Module:
    module = linear()
    module[2].register_forward_hook(lambda *_: None)
    return module


def beside(dtype: torch.dtype = torch.float32) -> nn.Module:
    module = linear()
    module.register_parameter("extra", nn.Parameter(torch.ones(3, dtype=dtype)))
    return module


class Own(nn.Sequential):
    """A sequence that may do otherwise."""


OTHERS = {
    "another activation": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.Tanh(), nn.Linear(8, 5)),
    "no activation": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.Linear(8, 5)),
    "no linear layer at the end": lambda: nn.Sequential(nn.Flatten(), nn.Linear(256, 5), nn.ReLU()),
    "rows of pictures": lambda: nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Flatten(), nn.Linear(80, 5)),
    "dropout": lambda: models.cnn(size=16, classes=5),
    "a stride": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
    ),
    "a class of the user's": lambda: Own(nn.Flatten(), nn.Linear(256, 5)),
    "double precision": lambda: linear().double(),
    "tied": tied,
    "frozen": frozen,
    "watched": watched,
    "a parameter of the sequence's own": beside,
    "a parameter of its own in double precision": lambda: beside(torch.float64),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_models_are_no_chains(what: str) -> None:
    fed = pictures()
    module = OTHERS[what]()
    fed = accord.data.Federation(fed.x.to(next(module.parameters()).dtype), fed.y, fed.train)
    assert chain_of(job_of(module, fed)) is None


def test_other_losses_and_precisions_are_no_chains() -> None:
    fed = pictures()
    assert isinstance(chain_of(job_of(linear(), fed)), Chain) and isinstance(
        chain_of(job_of(nn.Sequential(nn.Sequential(*linear()[:3]), linear()[3:]), fed)), Chain
    )
    for changed in ({"loss": lambda output, y: 2 * cross_entropy(output, y)}, {"speed": ["bf16"]}):
        assert chain_of(job_of(linear(), fed, **changed)) is None
    assert has_blocks(models.cnn()) and has_blocks(lenet()) and not has_blocks(linear())


# --------------------------------------------------------------------------------------------------- three rounds

RULES = {
    "fedavg": (accord.fedavg, {}),
    "clip and decay": (accord.fedavg, {"clip": 0.5, "weight_decay": 0.01}),
    "adam": (accord.fedavg, {"optimiser": "adam", "lr": 0.001}),
    "fedprox": (lambda: accord.fedprox(mu=0.1), {}),
    "scaffold": (accord.scaffold, {}),
    "scaffold I": (lambda: accord.scaffold(option="I"), {}),
    "masked": (lambda: accord.fedavg(mask=accord.gma(0.4)), {}),
    "corrective": (lambda: accord.fedavg(average=accord.corrective(0.2)), {}),
    "personal": (lambda: accord.fedavg().with_personal("9.*", "3.*"), {}),
    "ditto": (lambda: accord.ditto(lam=0.1), {}),
}


@pytest.mark.parametrize("name", RULES)
def test_three_rounds_agree_with_the_reference(there: None, name: str) -> None:
    rule, settings = RULES[name]
    fed, common = pictures(), {"rounds": 3, "batch": 16, "lr": 0.02, "device": "cpu"}
    reference, compiled = (
        accord.fit(lenet(), fed, rule(), engine="sequential", speed=speed, **{**common, **settings}).last.vector
        for speed in ((), ("native",))
    )
    assert not torch.equal(reference, compiled), "the library trained"
    assert (reference - compiled).norm() <= 1e-5 * reference.norm()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("settings", [{"optimiser": "sgd"}, {"clip": 0.5}, {"optimiser": "adam", "lr": 0.001}])
def test_whatever_torch_s_default_precision_is(there: None, dtype: torch.dtype, settings: dict) -> None:
    """The library writes float32, so it needs room for that."""
    module, fed, common = lenet(), pictures(), {"rounds": 2, "batch": 16, "lr": 0.02, "device": "cpu", **settings}
    torch.set_default_dtype(dtype)
    try:
        reference, compiled = (
            accord.fit(module, fed, engine="sequential", speed=speed, **common) for speed in ((), ("native",))
        )
    finally:
        torch.set_default_dtype(torch.float32)
    assert (reference.last.vector - compiled.last.vector).norm() <= 1e-5 * reference.last.vector.norm()
    assert compiled.recorded[-1].train_loss == pytest.approx(reference.recorded[-1].train_loss, rel=1e-4)


@dataclass(frozen=True)
class Drifts(accord.Local):
    """A rule that drifts by a tensor of any kind, and starts at one that does not lie in one piece."""

    kind: str = "expanded"

    def start(self, vector: Tensor, buffers: Tensor, own: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.stack([vector, vector], 1)[:, 0], buffers

    def drift(self, sent: dict[str, Tensor], own: dict[str, Tensor]) -> Tensor:
        size = sent["size"].numel()
        made = {"expanded": torch.full((1,), 0.01).expand(size), "double": torch.full((size,), 0.01).double()}
        return made[self.kind]

    def init(self, layout: Layout, clients: int) -> dict[str, Tensor]:
        return {"size": torch.zeros(layout.size)}


@pytest.mark.parametrize("kind", ["expanded", "double"])
def test_a_rule_may_drift_by_any_tensor(there: None, kind: str) -> None:
    algorithm = replace(accord.fedavg(), local=Drifts(kind))
    fed, common = pictures(), {"rounds": 2, "batch": 16, "lr": 0.02, "device": "cpu", "engine": "sequential"}
    reference, compiled = (
        accord.fit(lenet(), fed, algorithm, speed=speed, **common).last.vector for speed in ((), ("native",))
    )
    assert (reference - compiled).norm() <= 1e-5 * reference.norm()


# ----------------------------------------------------------------------------------------------------------- auto


def environments(folder: Path) -> list[dict]:
    (file,) = folder.glob("*/environment.json")
    return json.loads(file.read_text())


def train(folder: Path | None = None, rounds: int = 2, engine: str = "auto", **more: object) -> accord.Run:
    common = {"batch": 16, "lr": 0.02, "device": "cpu", "verbose": True}
    return accord.fit(lenet(), pictures(samples=100), rounds=rounds, engine=engine, folder=folder, **common, **more)


def test_auto_uses_it_says_so_and_records_it(
    there: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, reference = train(tmp_path / "auto"), train(tmp_path / "sequential", engine="sequential")
    assert "the compiled kernel" in capsys.readouterr().err
    recorded = [environments(tmp_path / name)[0]["native"] for name in ("auto", "sequential")]
    assert recorded[0] == library.loaded().path.name.split(".")[0] and recorded[1] == "off"
    distance = (fast.last.vector - reference.last.vector).norm() / reference.last.vector.norm()
    assert 0 < distance < 1e-5
    assert not kernels.enabled(), "nobody else has it after the run"
    monkeypatch.setenv("ACCORD_NATIVE", "0")
    assert torch.equal(train().last.vector, reference.last.vector)


def test_a_resumed_run_has_the_bits_of_a_straight_one(there: None, tmp_path: Path) -> None:
    straight = train(tmp_path / "straight", rounds=4)
    train(tmp_path / "resumed", rounds=2)
    assert torch.equal(train(tmp_path / "resumed", rounds=4).last.vector, straight.last.vector)
    assert len(environments(tmp_path / "resumed")) == 1


def test_a_run_that_began_without_it_goes_on_without(
    there: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setenv("ACCORD_NATIVE", "0")
        straight = train(rounds=4)
        train(tmp_path, rounds=2)
    assert torch.equal(train(tmp_path, rounds=4).last.vector, straight.last.vector)
    assert [entry["native"] for entry in environments(tmp_path)] == ["off"]


def test_a_run_that_goes_on_where_it_is_missing_says_so(
    there: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path, rounds=2)
    monkeypatch.setattr(library, "_loaded", library.Loaded(reason="there is no C++ compiler on the PATH"))
    with pytest.warns(OtherEnvironment, match=r"native off \(before: native-"):
        train(tmp_path, rounds=3)
    assert [entry["native"].partition("-")[0] for entry in environments(tmp_path)] == ["native", "off"]


BROKEN = '#!/bin/sh\nif [ "$1" = --version ]; then echo cc 1; else echo no room left >&2; exit 1; fi\n'


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [("", "there is no C++ compiler on the PATH"), (BROKEN, "no room left")],
    ids=["no compiler", "one that fails"],
)
def test_without_it_there_is_one_sentence_and_plain_torch(
    undecided: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiler: str,
    reason: str,
) -> None:
    (tmp_path / "bin").mkdir()
    if compiler:
        (tmp_path / "bin" / "c++").write_text(compiler)
        (tmp_path / "bin" / "c++").chmod(0o755)
    git = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "bin" / "git").symlink_to(git)
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    run, told = train(tmp_path / "run"), capsys.readouterr().err
    assert told.count("torch trains without the compiled kernel, which is slower") == 1 and reason in told
    assert environments(tmp_path / "run")[0]["native"] == "off"
    assert torch.equal(run.last.vector, train(engine="sequential").last.vector)


def test_it_is_not_built_where_it_gains_nothing(undecided: None) -> None:
    accord.fit(mlp(), blobs(), rounds=1, verbose=False)  # tanh
    accord.fit(nn.Linear(6, 4), blobs(), rounds=1, verbose=False)  # done too soon
    assert library._loaded is None


def test_it_is_built_once_and_says_so(
    there: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path))
    for _ in range(2):  # processes one after another
        monkeypatch.setattr(library, "_loaded", None)
        train()
    assert capsys.readouterr().err.count("building the compiled kernel") == 1
