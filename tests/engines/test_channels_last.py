"""Large models of pictures with their channels innermost compute what they did before."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import accord
from accord.core.layout import Layout
from accord.core.losses import cross_entropy
from accord.data import deal
from accord.engines.vectorised import descent
from accord.engines.vectorised.channels_last import Arrangement, LastBlock, LastNorm, with_channels_last
from accord.engines.vectorised.lanes import Model, gradients, leaves_apart
from accord.kernels import group_norm
from accord.models.resnet import Block
from emulation import emulate

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where there is no CUDA device, kernels in CUDA C++ are emulated."""
    if CUDA:
        return
    emulate(group_norm, monkeypatch, tmp_path_factory)
    monkeypatch.setattr(group_norm, "takes", lambda x: True)


def pictures() -> accord.data.Federation:
    torch.manual_seed(0)
    return deal(torch.randn(12, 3, 8, 8), torch.arange(12) % 3, clients=2, unseen=0, seed=0).to(DEVICE)


def small_resnet() -> nn.Module:
    torch.manual_seed(1)

    def norm(width: int) -> nn.Module:
        made = nn.GroupNorm(2, width)
        nn.init.normal_(made.weight, 1.0, 0.5)
        return made

    blocks = Block(8, 8, 1, norm), Block(8, 16, 2, norm)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU(), *blocks, *head).to(DEVICE)


@pytest.mark.parametrize("innermost", [True, False])
def test_vectors_are_put_into_another_order_and_back(innermost: bool) -> None:
    layout = Layout.of(small_resnet())
    there = Arrangement(layout, apart=True, innermost=innermost)
    vectors = torch.randn(3, layout.size)
    arranged = there.arranged(vectors)
    assert arranged.shape == (3, there.size) and torch.equal(there.restored(arranged), vectors)
    assert arranged.abs().sum().item() == pytest.approx(vectors.abs().sum().item()), "the rest is 0"
    for piece, wanted in zip(there.pieces(arranged), layout.pieces(vectors), strict=True):
        assert torch.equal(piece, wanted) and piece.data_ptr() % 256 == arranged.data_ptr() % 256
        assert not innermost or piece.ndim < 5 or piece[0].is_contiguous(memory_format=torch.channels_last)
    into = torch.zeros(there.size)
    there.gather([piece.contiguous() for piece in layout.pieces(vectors[1])], into)
    assert torch.equal(into, arranged[1])
    there.gather([piece.to(torch.bfloat16) for piece in layout.pieces(vectors[2])], into)
    assert torch.equal(into, arranged[2].to(torch.bfloat16).float())


def test_small_models_stay_as_their_layout_has_them() -> None:
    layout = Layout.of(small_resnet())
    vectors = torch.randn(3, layout.size)
    assert Arrangement(layout).arranged(vectors) is vectors and Arrangement(layout).restored(vectors) is vectors


def plainly(layout: Layout, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """Gradient and loss by plain torch, in double precision."""
    module = layout.load(small_resnet().double(), w.double(), torch.zeros(0))
    loss = cross_entropy(module(x.double()), y).mean()
    loss.backward()
    return layout.flatten([p.grad for p in module.parameters() if p.grad is not None]), loss.item()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("innermost", [True, False])
def test_gradients_of_lanes_one_after_another_are_those_of_plain_layers(innermost: bool) -> None:
    fed, module = pictures(), small_resnet()
    layout = Layout.of(module)
    twin = with_channels_last(module, fed)[0] if innermost else module
    assert twin is not None
    model = Model(twin, layout, fed, cross_entropy, streams=(), innermost=innermost)
    start = layout.pack(module)
    w = torch.stack([start, start + 0.05 * torch.randn_like(start)])
    rows = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]], device=DEVICE)
    share = torch.full((2, 4), 0.25, device=DEVICE)
    with torch.backends.cudnn.flags(allow_tf32=False):
        found, loss = gradients(model, model.arrangement.arranged(w), {}, rows, share)
    found = model.arrangement.restored(found)
    for lane in range(2):
        x, y = fed.read(rows[lane])
        wanted, value = plainly(layout, w[lane], x, y)
        assert (found[lane] - wanted).norm() <= 1e-5 * wanted.norm()
        assert loss[lane].item() == pytest.approx(value, rel=1e-3)


@pytest.mark.usefixtures("kernels")
def test_the_residual_nets_norms_take_over_sums_and_relus() -> None:
    twin, _ = with_channels_last(accord.models.resnet18().to(DEVICE), pictures_of_cifars_size())
    assert twin is not None
    assert sum(isinstance(part, LastNorm) for part in twin.modules()) == 20
    assert sum(isinstance(part, LastBlock) for part in twin.modules()) == 8
    assert not any(isinstance(part, nn.ReLU) for part in twin.modules())


def pictures_of_cifars_size() -> accord.data.Federation:
    return deal(torch.randn(4, 3, 32, 32), torch.arange(4) % 2, clients=2, unseen=0, seed=0).to(DEVICE)


def test_a_norm_with_two_uses_leaves_its_relu_alone() -> None:
    norm = nn.GroupNorm(2, 8)
    nn.init.zeros_(norm.weight)  # where it stands now, a ReLU changes nothing
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 8, 3), norm, nn.Flatten(), nn.Linear(128, 3)
    )
    twin, _ = with_channels_last(module.to(DEVICE), pictures())
    assert twin is not None and sum(isinstance(part, nn.ReLU) for part in twin.modules()) == 1


class Rows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)


class Skips(nn.Module):
    """Has a sequence, and calls its first layer alone."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[0](x)


class InPlace(nn.Module):
    """A residual block that changes what its norms give, as torchvision's do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(2, 8), nn.GroupNorm(2, 8)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](self.first(x)).relu_()
        around, x = x, self.norms[1](self.second(x))
        x += around
        return x.relu_()


@pytest.mark.usefixtures("kernels")
def test_what_a_norm_gives_may_be_changed_in_place() -> None:
    torch.manual_seed(0)
    fed, module = pictures(), nn.Sequential(InPlace(), nn.Flatten(), nn.Linear(512, 3)).to(DEVICE)
    turned, _ = with_channels_last(module, fed)
    assert turned is not None
    x, y = fed.read(torch.arange(4, device=DEVICE))
    with torch.backends.cudnn.flags(allow_tf32=False):
        for one in (module, turned):
            cross_entropy(one(x), y).mean().backward()
    for p, q in zip(module.parameters(), turned.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        assert (p.grad - q.grad).norm() <= 1e-4 * p.grad.norm() + 1e-6


@pytest.mark.parametrize(
    ("why", "layers"),
    [
        ("no kernel for its layer 1, GroupNorm", [nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.Flatten()]),
        ("does not take pictures", [nn.Conv2d(3, 8, 3), Rows()]),
        ("would not compute the same", [nn.Conv2d(3, 8, 3), Skips(nn.GroupNorm(2, 8), nn.ReLU()), nn.Flatten()]),
    ],
    ids=["two channels a group", "a view of a picture as a row", "a ReLU that is left out"],
)
def test_models_that_do_not_take_such_pictures_stay_as_they_are(why: str, layers: list[nn.Module]) -> None:
    head = nn.Linear(288, 3)
    nn.init.zeros_(head.weight)  # whatever comes before it, a model that begins so gives the same
    turned, reason = with_channels_last(nn.Sequential(*layers, head).to(DEVICE), pictures())
    assert turned is None and why in reason


def test_a_layer_that_somebody_listens_to_is_left_alone() -> None:
    module = small_resnet()
    module[1].register_forward_hook(lambda *_: None)
    assert "no kernel for its layer 1" in with_channels_last(module, pictures())[1]


ALGORITHMS = {
    "fedavg": accord.fedavg(mask=accord.gma(0.4)),
    "drift": accord.scaffold(),
    "last gradients": accord.fedgma(),
    "gradients of all data": accord.Algorithm(average=accord.corrective(0.2)),
    "pull": accord.fedprox(mu=0.1),
    "personal head": accord.fedavg().with_personal("7.*"),
}


@pytest.mark.parametrize("speed", [[], ["channels-last"]])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_rounds_of_lanes_one_after_another_are_the_reference_engines(
    algorithm: accord.Algorithm, speed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descent, "_streams", lambda job: ())
    train = partial(accord.fit, rounds=2, lr=0.05, momentum=0.0, batch=4, clip=1.0, device="cpu", verbose=False)
    fed = pictures().to("cpu")
    found = train(small_resnet().cpu(), fed, algorithm, engine="vectorised", speed=speed)
    wanted = train(small_resnet().cpu(), fed, algorithm, engine="sequential")
    assert (found.last.vector - wanted.last.vector).norm() <= 1e-5 * wanted.last.vector.norm()


@pytest.mark.skipif(not CUDA, reason="no CUDA device here")
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_rounds_of_lanes_side_by_side_are_the_reference_engines(
    algorithm: accord.Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descent, "_LARGE", 0)
    train = partial(accord.fit, rounds=3, lr=0.05, momentum=0.5, batch=4, clip=1.0, verbose=False)
    with torch.backends.cudnn.flags(allow_tf32=False):
        found = train(small_resnet(), pictures(), algorithm, engine="vectorised", device="cuda")
        near = train(small_resnet(), pictures(), algorithm, engine="vectorised", device="cuda", speed=["bf16"])
    wanted = train(small_resnet().cpu(), pictures().to("cpu"), algorithm, engine="sequential", device="cpu")
    whole = wanted.last.vector.norm()
    assert (found.last.vector.cpu() - wanted.last.vector).norm() <= 1e-4 * whole
    assert 1e-6 * whole < (near.last.vector.cpu() - wanted.last.vector).norm() <= 3e-2 * whole


def test_in_bfloat16_only_the_weights_of_convolutions_are_cast_beforehand() -> None:
    module = small_resnet()
    module.register_parameter("scale", nn.Parameter(torch.full((8, 1, 1), 1.003, device=DEVICE)))
    layout = Layout.of(module)
    model = Model(module, layout, pictures(), cross_entropy, speed=frozenset({"bf16"}), streams=())
    leaves = leaves_apart(model, model.arrangement.arranged(layout.pack(module)[None]))[0]
    narrow = {e.name for e, leaf in zip(layout.parameters, leaves, strict=True) if leaf.dtype == torch.bfloat16}
    assert narrow == {f"{name}.weight" for name, part in module.named_modules() if isinstance(part, nn.Conv2d)}
