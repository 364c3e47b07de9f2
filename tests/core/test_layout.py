"""A module as one vector: tied, frozen and mixed-precision parameters, and buffers."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from accord import AccordError
from accord.core.layout import Layout


class Odd(nn.Module):
    """Tied, frozen and mixed-precision parameters; counters, flags and constants as buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.coarse = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        self.register_buffer("count", torch.tensor(2**40 + 1))
        self.register_buffer("flag", torch.tensor([True, False]))
        self.register_buffer("far", torch.tensor([float("-inf"), 0.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x))) * self.frozen * self.coarse.float()


def test_tied_once_frozen_never_precision_kept() -> None:
    module = Odd()
    layout = Layout.of(module)
    assert [entry.name for entry in layout.parameters] == ["coarse", "a.weight", "a.bias"]
    assert layout.size == 4 + 16 + 4 and layout.dtype == torch.float32
    unpacked = layout.unpack(layout.pack(module))
    assert unpacked["coarse"].dtype == torch.bfloat16
    x = torch.randn(3, 4)
    assert torch.equal(functional_call(module, unpacked, (x,)), module(x))


def test_gradient_reaches_every_use_of_a_tied_parameter() -> None:
    module = Odd()
    layout = Layout.of(module)
    x = torch.randn(3, 4)
    vector = layout.pack(module).requires_grad_()
    (flat,) = torch.autograd.grad(functional_call(module, layout.unpack(vector), (x,)).sum(), vector)
    module(x).sum().backward()
    expected = torch.cat(
        [module.coarse.grad.float().flatten(), module.a.weight.grad.flatten(), module.a.bias.grad.flatten()]
    )
    assert torch.allclose(flat, expected, rtol=1e-2)  # bfloat16 has eight bits


def test_round_trip_of_parameters_and_buffers() -> None:
    module, other = Odd(), Odd()
    layout = Layout.of(module)
    layout.load(other, layout.pack(module), layout.pack_buffers(dict(module.named_buffers())))
    for name, value in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    assert [entry.name for entry in layout.buffers] == ["count", "far"]  # a truth value has no average


def test_float64_models_keep_float64() -> None:
    assert Layout.of(nn.Linear(2, 2).double()).dtype == torch.float64


def test_whole_number_buffers_are_rounded() -> None:
    layout = Layout.of(nn.BatchNorm1d(1))
    averaged = (
        layout.pack_buffers(
            {"running_mean": torch.zeros(1), "running_var": torch.ones(1), "num_batches_tracked": torch.tensor(3)}
        )
        + 0.6
    )
    assert layout.unpack_buffers(averaged)["num_batches_tracked"].item() == 4


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(AccordError, match="no trainable parameters"):
        Layout.of(nn.Flatten())
    with pytest.raises(AccordError, match="weight has type torch.complex64"):
        Layout.of(nn.Linear(1, 1, dtype=torch.complex64))
