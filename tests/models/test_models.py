"""Models: the printed sizes, one seed one start, and nothing that stops many copies from running at once."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from accord import AccordError, models
from accord.core.layout import Layout

BUILD = {
    "leaf-cnn": lambda **more: models.leaf_cnn(**more),
    "corrective-cnn": lambda **more: models.corrective_cnn(**more),
    "cnn, batch": lambda **more: models.cnn(norm="batch", **more),
    "resnet18": lambda **more: models.resnet18(**more),
    "resnet18, batch": lambda **more: models.resnet18(norm="batch", **more),
}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        ("lenet", {}, 44_426),
        ("lenet", {"channels": 3, "size": 32}, 62_006),
        ("logistic", {}, 7_850),
        ("cnn", {}, 105_866),
        ("cnn", {"norm": "batch"}, 105_866 + 2 * (16 + 32)),
        ("leaf-cnn", {}, 6_603_710),
        ("corrective-cnn", {}, 2_278_334),
        ("resnet18", {}, 11_173_962),
        ("resnet18", {"norm": "batch"}, 11_173_962),
        ("resnet18", {"groups": 32, "size": 64}, 11_173_962),
        ("resnet18", {"classes": 100}, 11_220_132),
        ("resnet18", {"classes": 200, "norm": "batch"}, 11_271_432),
    ],
)
def test_parameter_counts(name: str, options: dict, parameters: int) -> None:
    assert count(models.MODELS[name](**options)) == parameters


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("size", [16, 32, 64])
def test_resnet_reads_small_and_larger_pictures(norm: str, size: int) -> None:
    model = models.resnet18(size=size, classes=7, norm=norm)
    assert model(torch.rand(2, 3, size, size)).shape == (2, 7)


def test_resnet_costs_the_same_at_twice_the_size() -> None:
    """The first block sees 32x32 pixels either way; without a stride it would see 64x64."""
    for size in (32, 64):
        stem = models.resnet18(size=size)[:3]
        assert stem(torch.rand(1, 3, size, size)).shape == (1, 64, 32, 32)


def test_resnets_last_block_sees_4x4_pixels() -> None:
    """Three halvings: 32, 16, 8, 4."""
    assert models.resnet18()[:-3](torch.rand(1, 3, 32, 32)).shape == (1, 512, 4, 4)


@pytest.mark.parametrize(
    ("norm", "kind", "other"), [("group", nn.GroupNorm, nn.BatchNorm2d), ("batch", nn.BatchNorm2d, nn.GroupNorm)]
)
def test_norms(norm: str, kind: type, other: type) -> None:
    layers = list(models.resnet18(norm=norm).modules())
    assert sum(isinstance(layer, kind) for layer in layers) == 20 and not any(
        isinstance(layer, other) for layer in layers
    )
    assert all(layer.num_groups == 2 for layer in layers if isinstance(layer, nn.GroupNorm))
    assert all(layer.bias is None for layer in layers if isinstance(layer, nn.Conv2d))


def test_a_norm_follows_each_convolution_of_the_small_cnn() -> None:
    plain, normed = models.cnn(seed=3), models.cnn(norm="batch", seed=3)
    layers = list(normed)
    for place, layer in enumerate(layers):
        assert isinstance(layer, nn.BatchNorm2d) == (place > 0 and isinstance(layers[place - 1], nn.Conv2d))
    assert torch.equal(plain[-1].weight, normed[-1].weight)  # a norm draws nothing


def test_a_block_adds_its_input() -> None:
    """With its last norm at zero a block is ReLU of what comes in."""
    block = models.resnet18()[3]
    nn.init.zeros_(block.body[-1].weight)
    x = torch.randn(2, 64, 8, 8)
    assert torch.equal(block(x), x.relu())


@pytest.mark.parametrize("name", ["leaf-cnn", "corrective-cnn"])
def test_femnist_networks_read_other_pictures(name: str) -> None:
    make = models.MODELS[name]
    assert make()(torch.rand(2, 1, 28, 28)).shape == (2, 62)
    for size in (16, 19, 32):
        assert make(channels=3, size=size, classes=5)(torch.rand(2, 3, size, size)).shape == (2, 5)


def test_a_models_seed_is_a_whole_number() -> None:
    first, same = (models.logistic(seed=seed) for seed in (3, np.int64(3)))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters(), strict=True))
    models.logistic(seed=2**200)
    for odd in (True, None, 1.5, "0"):
        with pytest.raises(AccordError, match="seed must be a whole number"):
            models.logistic(seed=odd)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", BUILD)
def test_the_seed_alone_decides_the_first_weights(name: str) -> None:
    state = torch.get_rng_state()
    first, same, other = (BUILD[name](seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    vectors = [Layout.of(model).pack(model) for model in (first, same, other)]
    assert torch.equal(vectors[0], vectors[1]) and not torch.equal(vectors[0], vectors[2])


@pytest.mark.parametrize("name", BUILD)
def test_gradients_reach_every_parameter(name: str) -> None:
    model = BUILD[name](channels=1, size=16, classes=3)
    output = model(torch.rand(4, 1, 16, 16))
    nn.functional.cross_entropy(output, torch.tensor([0, 1, 2, 0])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, parameter_name


def test_many_resnets_run_as_one() -> None:
    """Stacked weights under vmap, forward and backward, give what each model gives alone. In float64, where only a
    mistake shows."""
    alone = [models.resnet18(channels=1, size=16, classes=3, seed=seed).double() for seed in (0, 1)]
    parameters, buffers = stack_module_state(alone)
    x, y = torch.arange(2 * 16 * 16, dtype=torch.float64).sin().view(2, 1, 1, 16, 16), torch.tensor([[0], [2]])

    def loss(weights: dict, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(alone[0], (weights, {}), (x,)), y)

    assert not buffers
    together = vmap(torch.func.grad(loss))({name: value.detach() for name, value in parameters.items()}, x, y)
    for i, model in enumerate(alone):
        nn.functional.cross_entropy(model(x[i]), y[i]).backward()
        for name, parameter in model.named_parameters():
            assert torch.allclose(together[name][i], parameter.grad, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("resnet18", {"size": 15}, "ResNet-18 needs images of at least 16x16 pixels, got size 15"),
        ("resnet18", {"norm": "layer"}, "norm must be 'group' (GroupNorm) or 'batch' (BatchNorm), got 'layer'"),
        ("cnn", {"norm": "group"}, "norm must be 'none' or 'batch' (BatchNorm), got 'group'"),
        ("resnet18", {"groups": 3}, "groups must divide the 64 channels of the first layer, got 3"),
        ("resnet18", {"groups": 0}, "groups must be a whole number of at least 1, got 0"),
        ("leaf-cnn", {"size": 3}, "LEAF's CNN needs images of at least 4x4 pixels, got size 3"),
        ("corrective-cnn", {"size": 15}, "CNN needs images of at least 16x16 pixels, got size 15"),
    ],
)
def test_models_refuse_what_they_cannot_build(name: str, options: dict, sentence: str) -> None:
    with pytest.raises(AccordError) as raised:
        models.MODELS[name](**options)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("make", [models.lenet, models.cnn, models.logistic])
def test_models_are_seeded_and_leave_torchs_generator_alone(make) -> None:
    state = torch.get_rng_state()
    first, same, other = make(seed=1), make(seed=1), make(seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    vectors = [Layout.of(m).pack(m) for m in (first, same, other)]
    assert torch.equal(vectors[0], vectors[1]) and not torch.equal(vectors[0], vectors[2])
    assert make(channels=3, size=32)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_models_refuse_what_they_cannot_read() -> None:
    with pytest.raises(AccordError, match="at least 16x16 pixels, got size 8"):
        models.lenet(size=8)
    with pytest.raises(AccordError, match="at least 4x4 pixels, got size 3"):
        models.cnn(size=3)
    with pytest.raises(AccordError, match="dropout must be at least 0 and below 1, got 1.0"):
        models.cnn(dropout=1.0)
