"""The package as it is imported: public names, few dependencies, models of the printed sizes."""

import subprocess
import sys

import pytest
import torch

import accord
from accord import AccordError, models
from accord.layout import Layout


def test_public_names() -> None:
    expected = """AccordError Algorithm Conditions Run __version__ aggregate and_mask attack causal causalfed corrective data draws
    fedadagrad fedadam fedavg fedavgm fedgma fedprox fedsgd fedyogi fit geometric_mean gma krum local local_only logs
    magnitude masked mean median models native pooled privacy sand scaffold scaled schedule server smaller_is_better
    trimmed_mean"""
    assert dir(accord) == expected.split()
    assert all(getattr(accord, name) is not None for name in dir(accord))
    with pytest.raises(AttributeError, match="accord has no 'fedsomething'"):
        _ = accord.fedsomething


def test_fit_needs_torch_numpy_and_safetensors_alone() -> None:
    """The core must import where nothing else is installed."""
    code = """
import sys
for name in ("pydantic", "typer", "rich", "sklearn", "matplotlib", "PIL"):
    sys.modules[name] = None
import accord
accord.fit, accord.data.mnist, accord.models.lenet, accord.fedavg
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("module", "parameters"),
    [(models.lenet(), 44_426), (models.lenet(channels=3, size=32), 62_006), (models.logistic(), 7_850), (models.cnn(), 105_866)],
)
def test_parameter_counts(module: torch.nn.Module, parameters: int) -> None:
    assert Layout.of(module).size == parameters


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
