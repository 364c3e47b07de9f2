"""The compiled kernel computes what torch computes, is never needed, and is never half there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import accord
from accord import kernels as native
from accord import models
from accord.core.record import Field, Record, tally, total, votes
from accord.kernels import block, conv_relu_pool, library
from accord.kernels.sums import _rounds_as_torch
from accord.rules.combine import combine
from accord.runs.fingerprint import describe
from conftest import skip_without_kernel

CODE = "from accord import kernels as native; print(native.enable(), native.state(), native.why_not(), sep='|')"


@pytest.fixture
def chosen(unloaded_kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is on within a test, and whatever was there before is back after it."""
    monkeypatch.setenv("ACCORD_NATIVE", "1")
    skip_without_kernel()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes the kernel was called with."""
    seen: list[tuple[int, ...]] = []
    real = block._forward

    def spy(x: Tensor, *rest: object, **more: object) -> object:
        seen.append(tuple(x.shape))
        return real(x, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(block, "_forward", spy)
    return seen


def plain(x: Tensor, weight: Tensor, bias: Tensor | None, padding: block.Padding = 0, pool: int = 2) -> Tensor:
    return F.max_pool2d(F.relu(F.conv2d(x, weight, bias, padding=padding)), pool)


def both(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: block.Padding, g: Tensor | None = None
) -> list[list[Tensor]]:
    """Output and gradients of the kernel in float32, and of torch in float64."""
    results = []
    for function, dtype in ((conv_relu_pool, torch.float32), (plain, torch.float64)):
        inputs = [t.detach().to(dtype).requires_grad_() for t in (x, weight, bias) if t is not None]
        out = function(inputs[0], inputs[1], inputs[2] if bias is not None else None, padding)
        seed = torch.ones_like(out) if g is None else g.to(dtype)
        results.append([out.detach(), *torch.autograd.grad(out, inputs, seed)])
    return results


SHAPES = st.tuples(
    st.integers(0, 3),  # samples
    st.integers(1, 19),  # channels in
    st.integers(1, 40),  # channels out
    st.tuples(st.integers(1, 13), st.integers(1, 13)),  # height and width
    st.tuples(st.integers(1, 7), st.integers(1, 7)),  # kernel
    st.one_of(st.integers(0, 4), st.tuples(st.integers(0, 3), st.integers(0, 3)), st.sampled_from(["same", "valid"])),
    st.booleans(),  # bias
    st.integers(0, 10_000),
)


def fits(sizes: tuple[int, int], kernel: tuple[int, int], padding: block.Padding) -> bool:
    sides = (0, 0) if padding == "valid" else (padding, padding) if isinstance(padding, int) else padding
    room = (
        sizes if padding == "same" else tuple(s + 2 * p - k + 1 for s, k, p in zip(sizes, kernel, sides, strict=True))
    )  # type: ignore[arg-type]
    return min(room) >= 2


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SHAPES)
def test_whole_numbers_come_out_exactly(chosen: None, shape: tuple) -> None:
    """Sums of small whole numbers are exact in any order, and full of ties: outputs and all gradients must be torch's
    to the bit."""
    n, c, k, size, kernel, padding, with_bias, seed = shape
    if not fits(size, kernel, padding):
        return
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randint(-2, 3, shape, generator=generator).float()

    x, weight, bias = draw(n, c, *size), draw(k, c, *kernel), draw(k) if with_bias else None
    g = draw(*plain(x, weight, bias, padding).shape)
    ours, theirs = both(x, weight, bias, padding, g)
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.shape == yours.shape and torch.equal(mine.double(), yours)


@pytest.mark.parametrize(
    ("n", "c", "size", "k", "kernel", "padding"),
    [
        (32, 1, 28, 6, 5, 0),
        (32, 6, 12, 16, 5, 0),
        (20, 1, 28, 32, 5, "same"),
        (20, 32, 14, 64, 5, "same"),
        (7, 16, 14, 32, 3, 1),
        (4, 3, 17, 9, 4, 2),
        (2, 24, 9, 50, 7, 3),
        (3, 5, 8, 17, 1, 0),
        (2, 70, 9, 3, 3, 1),
        (1, 2, 40, 130, 2, "same"),
    ],
)
def test_the_models_shapes_within_rounding(
    chosen: None, calls: list, n: int, c: int, size: int, k: int, kernel: int, padding
) -> None:
    generator = torch.Generator().manual_seed(1)
    x, weight, bias = (torch.randn(s, generator=generator) for s in ((n, c, size, size), (k, c, kernel, kernel), (k,)))
    reference = F.conv2d(x.double(), weight.double(), bias.double(), padding=padding)
    windows = F.unfold(reference.view(n * k, 1, *reference.shape[2:]), 2, stride=2).sort(1).values
    # rounding must not decide a maximum
    clear = ((windows[:, 3] - windows[:, 2]) > 1e-3).view(n, k, reference.shape[2] // 2, -1)
    g = torch.randn(clear.shape, generator=generator) * clear
    for mine, yours in zip(*both(x, weight, bias, padding, g), strict=True):
        assert (mine - yours).abs().max() <= 1e-5 * yours.abs().max()
    assert calls == [(n, c, size, size)]


def test_ties_zeros_and_negative_zeros(chosen: None) -> None:
    """The first maximum of a window gets the gradient; a maximum of zero, of either sign, gets none."""
    one, none = torch.ones(1, 1, 1, 1), torch.zeros(1)
    x = torch.tensor(
        [[[[1.0, 1.0, -1.0, -2.0], [1.0, 1.0, -3.0, -1.0], [0.0, -0.0, 2.0, 3.0], [-0.0, 0.0, 3.0, 3.0]]]],
        requires_grad=True,
    )
    out = conv_relu_pool(x, one, none)
    (found,) = torch.autograd.grad(out.sum(), x)
    assert out.tolist() == [[[[1, 0], [0, 3]]]]
    assert found.tolist() == [[[[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]]]


@pytest.mark.parametrize("where", ["x", "weight", "bias", "gradient"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_goes_where_torch_lets_it_go(chosen: None, where: str, value: float) -> None:
    generator = torch.Generator().manual_seed(2)
    tensors = {
        name: torch.randn(s, generator=generator)
        for name, s in (("x", (2, 3, 8, 8)), ("weight", (4, 3, 3, 3)), ("bias", (4,)))
    }
    tensors["gradient"] = torch.randn(2, 4, 3, 3, generator=generator)
    tensors[where].view(-1)[5 % tensors[where].numel()] = value
    results = []
    for function in (conv_relu_pool, plain):
        inputs = [tensors[name].clone().requires_grad_() for name in ("x", "weight", "bias")]
        out = function(*inputs, 0)
        results.append([out.detach(), *torch.autograd.grad(out, inputs, tensors["gradient"])])
    for mine, yours in zip(*results, strict=True):
        assert torch.allclose(mine, yours, rtol=1e-4, atol=1e-5, equal_nan=True)
    # which ReLU ends
    assert any(not yours.isfinite().all() for yours in results[1]) or (where, value) == ("bias", float("-inf"))


def test_an_overflow_within_is_not_hidden(chosen: None, calls: list) -> None:
    x, weight = torch.full((1, 1, 4, 4), 1e30), torch.tensor([1e30, -1e30]).view(2, 1, 1, 1)
    out = conv_relu_pool(x, weight, None)
    assert calls and out[0, 0].isinf().all() and torch.equal(out, plain(x, weight, None))
    doubled = torch.cat([x, x], 1), torch.tensor([[1e30, -1e30]]).view(1, 2, 1, 1)
    assert not conv_relu_pool(*doubled, None).isfinite().any()


def test_layouts_and_empty_batches(chosen: None, calls: list) -> None:
    generator = torch.Generator().manual_seed(3)
    x, weight, bias = (torch.randn(s, generator=generator) for s in ((4, 3, 10, 12), (5, 3, 3, 3), (5,)))
    odd = [
        x.to(memory_format=torch.channels_last),
        x.transpose(2, 3),
        x[:, :, ::2, 1:],
        x[1:1],
        x[:1].expand(3, -1, -1, -1),
    ]
    for view in odd:
        turned = weight.transpose(2, 3)
        inputs = [
            [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (view, turned, bias)]
            for _ in range(2)
        ]
        outs = [conv_relu_pool(*inputs[0], 1), plain(*inputs[1], 1)]
        g = torch.randn(outs[1].transpose(2, 3).shape, generator=generator).transpose(2, 3)
        found = [torch.autograd.grad(out, part, g) for out, part in zip(outs, inputs, strict=True)]
        assert torch.allclose(*outs, atol=1e-5)
        assert all(torch.allclose(a, b, atol=1e-4) and a.shape == b.shape for a, b in zip(*found, strict=True))
    assert len(calls) == len(odd)


def test_only_what_is_asked_for_gets_a_gradient(chosen: None) -> None:
    x, weight, bias = torch.randn(2, 2, 6, 6), torch.randn(3, 2, 3, 3), torch.randn(3)
    for needs in ((True, False, False), (False, True, False), (False, False, True)):
        inputs = [t.clone().requires_grad_(need) for t, need in zip((x, weight, bias), needs, strict=True)]
        conv_relu_pool(*inputs, 0).sum().backward()
        assert [t.grad is not None for t in inputs] == list(needs)
    assert not conv_relu_pool(x, weight, bias).requires_grad
    with torch.no_grad():
        assert torch.allclose(conv_relu_pool(x, weight.requires_grad_(), bias), plain(x, weight, bias), atol=1e-5)


def test_gradients_of_gradients(chosen: None, calls: list) -> None:
    x, weight, bias = (t.requires_grad_() for t in (torch.randn(2, 2, 6, 6), torch.randn(3, 2, 3, 3), torch.randn(3)))
    found = []
    for function in (conv_relu_pool, plain):
        (slope,) = torch.autograd.grad(function(x, weight, bias).square().sum(), weight, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), (x, weight, bias)))
    assert calls and all(torch.allclose(a, b, rtol=1e-4, atol=1e-3) for a, b in zip(*found, strict=True))


def test_the_plain_way_is_taken_where_the_kernel_does_not_fit(
    chosen: None, calls: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias = torch.randn(2, 2, 9, 9), torch.randn(3, 2, 3, 3), torch.randn(3)
    assert conv_relu_pool(x.double(), weight.double(), bias.double()).dtype == torch.float64
    assert torch.equal(conv_relu_pool(x, weight, bias, 1, pool=3), plain(x, weight, bias, 1, 3))
    # Under vmap torch takes another convolution, which may add in another order.
    assert torch.allclose(
        vmap(lambda w: conv_relu_pool(x, w, bias))(weight[None])[0], plain(x, weight, bias), atol=1e-5
    )
    assert torch.equal(
        grad(lambda w: conv_relu_pool(x, w, bias).sum())(weight), grad(lambda w: plain(x, w, bias).sum())(weight)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert conv_relu_pool(x, weight, bias).dtype == torch.bfloat16
    compiled = torch.compile(lambda x: conv_relu_pool(x, weight, bias), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), plain(x, weight, bias))
    for wrong in (
        (x[0, 0, 0], weight, bias),
        (x[:, :1], weight, bias),
        (x[..., :2], weight, bias),
        (x, weight, bias[:2]),
    ):
        with pytest.raises(RuntimeError):
            conv_relu_pool(*wrong)
    monkeypatch.setenv("ACCORD_NATIVE", "0")
    assert torch.equal(conv_relu_pool(x, weight, bias), plain(x, weight, bias)) and native.state() == "off"
    monkeypatch.delenv("ACCORD_NATIVE")
    assert torch.equal(conv_relu_pool(x, weight, bias), plain(x, weight, bias)) and not native.enabled()
    assert not calls


# ----------------------------------------------------------------------------------------------------- models

MODELS = [models.lenet, models.cnn, models.leaf_cnn, models.corrective_cnn]


@pytest.mark.parametrize("make", MODELS)
def test_models_compute_the_same_with_it(chosen: None, calls: list, make) -> None:
    model, x = make(size=16, channels=2, classes=5).eval(), torch.randn(3, 2, 16, 16)
    found = []
    for on in ("1", "0"):
        os.environ["ACCORD_NATIVE"] = on
        found.append([model(x), *torch.autograd.grad(model(x).square().sum(), list(model.parameters()))])
        assert len(calls) == 4
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*found, strict=True))


def test_recorded_models_keep_their_names() -> None:
    """Run folders and saved models know a model by its printed form, its settings and its weights."""
    model = models.lenet()
    old = nn.Sequential(*model)
    assert (
        describe(model) == describe(old)
        and list(model.state_dict()) == list(old.state_dict())
        and repr(model) == repr(old)
    )
    assert list(model.state_dict())[:3] == ["0.weight", "0.bias", "3.weight"]


def test_layers_that_are_watched_or_changed_are_called_one_by_one(chosen: None, calls: list) -> None:
    x, seen = torch.randn(2, 1, 28, 28), []
    model = models.lenet()
    expected = nn.Sequential(*model)(x)
    handle = model[1].register_forward_hook(lambda *_: seen.append("relu"))
    assert torch.allclose(model(x), expected, atol=1e-5) and seen == ["relu"] and len(calls) == 1
    handle.remove()
    everywhere = nn.modules.module.register_module_forward_hook(lambda *_: seen.append("any"))
    assert torch.equal(model(x), expected) and "any" in seen and len(calls) == 1
    everywhere.remove()
    model[0] = parametrizations.weight_norm(model[0])
    model[3].stride = (2, 2)
    assert model[:6](x).shape == (2, 16, 2, 2) and len(calls) == 1
    assert type(model[:3]) is type(model)


def test_many_models_run_as_one(chosen: None, calls: list) -> None:
    alone = [models.lenet(seed=seed) for seed in (0, 1)]
    parameters, _ = stack_module_state(alone)  # type: ignore[arg-type]
    x = torch.randn(2, 3, 1, 28, 28)
    together = vmap(lambda weights, x: functional_call(alone[0], weights, (x,)))(parameters, x)
    assert not calls
    assert torch.allclose(together, torch.stack([model(x[i]) for i, model in enumerate(alone)]), atol=1e-5)
    assert len(calls) == 4
    swapped = functional_call(alone[0], dict(alone[1].named_parameters()), (x[1],))
    assert len(calls) == 6 and torch.equal(swapped, alone[1](x[1]))


def test_training_agrees_and_says_what_it_used(
    chosen: None, calls: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(4)
    arrays = {
        f"c{i}": (torch.rand(40, 1, 28, 28, generator=generator), torch.randint(0, 10, (40,), generator=generator))
        for i in range(4)
    }
    fed = accord.data.from_arrays(arrays)
    vectors, used = [], []
    for on in ("1", "0"):
        monkeypatch.setenv("ACCORD_NATIVE", on)
        run = accord.fit(
            models.lenet(), fed, rounds=3, sample=3, batch=16, engine="sequential", device="cpu", folder=tmp_path / on
        )
        vectors.append(run.last.vector)
        used += [
            entry["native"]
            for file in (tmp_path / on).rglob("environment.json")
            for entry in json.loads(file.read_text())
        ]
        assert calls
    assert (vectors[0] - vectors[1]).abs().max() < 1e-4
    assert used[0].startswith("native-") and used[1] == "off"


# ------------------------------------------------------------------------------------------------ aggregation


@pytest.mark.parametrize("clients", [1, 2, 5, 9, 100])
@pytest.mark.parametrize("size", [1, 17, 5000])
def test_both_sums_in_one_pass_have_the_same_bits(
    chosen: None, monkeypatch: pytest.MonkeyPatch, clients: int, size: int
) -> None:
    generator = torch.Generator().manual_seed(5)
    x, weight = torch.randn(clients, size, generator=generator), torch.rand(clients, 1, generator=generator)
    x[0, 0], x[-1, -1] = float("nan"), -0.0
    x[:, size // 2] = 0.0
    with monkeypatch.context() as without:
        without.setenv("ACCORD_NATIVE", "0")
        apart = total(x, weight).value, votes(x).value
    together = [field.value for field in tally(x, weight)]
    assert torch.equal(torch.nan_to_num(together[0], 7.0), torch.nan_to_num(total(x, weight).value, 7.0))
    assert torch.equal(torch.nan_to_num(apart[0], 7.0), torch.nan_to_num(together[0], 7.0)) and torch.equal(
        apart[1], together[1]
    )
    direct = native.sums(x[:, : max(size // 2, 1)], weight)  # rows that lie apart
    assert (direct is not None) == _rounds_as_torch()  # torch held to fewer instructions has to do it itself
    assert direct is None or torch.equal(direct[1], apart[1][: max(size // 2, 1)])


def test_a_threshold_of_zero_is_no_mask_with_it(chosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled sum and torch's must have the same bits, on every processor, however many threads share it."""
    generator = torch.Generator().manual_seed(6)
    for size in (500, 250_001):
        deltas, weights = torch.randn(9, size, generator=generator), torch.rand(9, generator=generator)
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            masked = combine(accord.gma(0.0), deltas, weights)
        finally:
            torch.set_num_threads(before)
        with monkeypatch.context() as without:
            without.setenv("ACCORD_NATIVE", "0")
            plain = combine(accord.mean(), deltas, weights)
        assert masked.mask.eq(1).all() and torch.equal(masked.update, plain.update)


def test_sums_use_the_library_unasked_once_it_is_loaded(chosen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(3, 8), torch.rand(3, 1)
    monkeypatch.delenv("ACCORD_NATIVE")
    assert library.in_use() and (native.sums(x, weight) is not None) == _rounds_as_torch()
    monkeypatch.setattr(library, "_loaded", None)
    assert native.sums(x, weight) is None and not library.in_use(), "small sums do not build it"


def test_one_pass_leaves_alone_what_it_cannot_read(chosen: None) -> None:
    x, weight = torch.randn(2, 3, 8), torch.rand(2, 3, 1)
    summed, counted = tally(x, weight)
    assert torch.equal(summed.value, total(x, weight).value) and torch.equal(counted.value, votes(x).value)
    for other in (x[0].double(), x[0].t().contiguous().t()):
        assert native.sums(other, weight[0].to(other.dtype)) is None


def test_a_running_total_is_added_to_in_place() -> None:
    def make(value: float) -> Record:
        part = Record(low=Field(torch.full((2,), value), "min"), rows=Field(torch.full((1, 2), value), "rows"))
        return Record(sum=Field(torch.full((2,), value)), part=part)

    running, expected = make(1.0), make(1.0) + make(3.0)
    kept = running["sum"]
    assert running.add_(make(3.0)) is running and running["sum"] is kept
    found, wanted = (
        {path: field.value.tolist() for path, field in record.fields().items()} for record in (running, expected)
    )
    assert found == wanted
    with pytest.raises(ValueError, match="different rules"):
        running.add_(Record(other=Field(torch.zeros(1))))


# ----------------------------------------------------------------------------------------------------- builds


def start(cache: Path, code: str = CODE, **changed: str) -> subprocess.Popen:
    env = {**os.environ, "ACCORD_CACHE": str(cache), "PYTHONPATH": os.pathsep.join(sys.path), **changed}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen) -> list[str]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return out.strip().split("|")


@pytest.mark.slow
def test_processes_that_build_at_once_do_not_meet(chosen: None, tmp_path: Path) -> None:
    answers = [answer(process) for process in [start(tmp_path), start(tmp_path)]]
    assert answers[0] == answers[1] and answers[0][0] == "True"
    left = list((tmp_path / "native").iterdir())
    assert all(file.suffix == ".so" and file.name.startswith(answers[0][1]) for file in left) and left


@pytest.mark.slow
def test_a_damaged_library_is_built_again(chosen: None, tmp_path: Path) -> None:
    first = answer(start(tmp_path))
    (file,) = (tmp_path / "native").iterdir()
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        assert answer(start(tmp_path)) == first
        (file,) = (tmp_path / "native").iterdir()
        assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"PATH": "", "CXX": ""}, "there is no C++ compiler on the PATH"),
        ({"CXX": "false"}, "the compiled kernel cannot be used"),
        ({"ACCORD_CACHE": "/proc/nowhere"}, "the compiled kernel cannot be used"),
    ],
)
def test_without_a_library_there_is_a_reason_and_the_same_result(
    chosen: None, tmp_path: Path, changed: dict, reason: str
) -> None:
    code = (
        CODE
        + "; import torch; from accord import models; print('', models.lenet()(torch.ones(1, 1, 28, 28)).sum().item(),"
        " sep='|')"
    )
    here, state, why, number = answer(start(tmp_path, code, **changed))
    assert here == "False" and state == "off" and reason in why and "\n" not in why.strip()
    assert float(number) == pytest.approx(models.lenet()(torch.ones(1, 1, 28, 28)).sum().item(), abs=1e-5)
