"""The package as it is imported: public names, few dependencies."""

import subprocess
import sys

import pytest

import accord


def test_public_names() -> None:
    expected = """AccordError Algorithm Average Conditions Local Mask Run Server __version__ aggregate and_mask
    attack audit causal causalfed combine
    corrective data ditto draws
    fedadagrad fedadam fedavg fedavgm fedgma fedprox fedsgd fedyogi fit geometric_mean gma krum leave_one_out load local
    local_only logs magnitude masked mean median metrics models native pooled privacy sand scaffold scaled schedule
    server smaller_is_better trimmed_mean"""
    assert dir(accord) == expected.split()
    assert all(getattr(accord, name) is not None for name in dir(accord))
    assert accord.combine is accord.aggregate.combine
    with pytest.raises(AttributeError, match="accord has no 'fedsomething'"):
        _ = accord.fedsomething


def test_fit_needs_torch_numpy_and_safetensors_alone() -> None:
    """The core must import where nothing else is installed."""
    code = """
import sys
for name in ("pydantic", "typer", "rich", "sklearn", "matplotlib", "PIL"):
    sys.modules[name] = None
import accord
accord.fit, accord.leave_one_out, accord.data.mnist, accord.models.lenet, accord.fedavg
"""
    subprocess.run([sys.executable, "-c", code], check=True)
