"""Twelve algorithms on three engines give the bits that are stored in `bits.json`.

The file holds, for each run of five rounds, digests of the model and of all numbers of its rows, the norm of the
model and the last loss. Digests hold for the kind of processor, the threads and the version of torch that they were
made with; elsewhere norms and losses must agree. `OMP_NUM_THREADS=1 python tests/test_bits.py` writes the file again,
after a change that is meant to change bits.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import accord
from accord import Algorithm, gma
from accord.runs.run import Run

STORED = Path(__file__).with_name("bits.json")
ENGINES = ("sequential", "processes", "vectorised")
ALGORITHMS = {
    "fedavg": accord.fedavg(),
    "fedprox, layers masked": accord.fedprox(mu=0.1, mask=gma(0.3, scope="layer")),
    "scaffold, masked": accord.scaffold(mask=gma(0.4)),
    "fedadam, masked": accord.fedadam(mask=gma(0.4)),
    "fedadam, control": accord.fedadam(mask=accord.scaled(gma(0.4))),
    "fedyogi, and-mask": accord.fedyogi(mask=accord.and_mask(0.6, rescale=True)),
    "momentum, sand": accord.fedavgm(mask=accord.sand(0.2, k=1e-3)),
    "adagrad, magnitude": accord.fedadagrad(mask=accord.magnitude(0.4)),
    "first fedgma": accord.fedgma(),
    "corrective, votes remembered": accord.fedavg(average=accord.corrective(0.2, passes=2), mask=gma(0.4, memory=0.5)),
    "ditto, masked": accord.ditto(mask=gma(0.4)),
    "median": accord.fedavg(average=accord.median()),
}


class Net(nn.Module):
    """A convolution, a norm with buffers, dropout and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.dropout, self.head = nn.Dropout(0.2), nn.Linear(4 * 49, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.conv(x)))
        hidden = nn.functional.max_pool2d(hidden, 4).flatten(1)
        logits: Tensor = self.head(self.dropout(hidden))
        return logits


def trained(algorithm: Algorithm, engine: str) -> Run:
    torch.manual_seed(7)
    fed = accord.data.digits(clients=12, split="labels", classes=3, unseen=3, seed=3)
    try:
        algorithm.local.check(0.9)
        momentum = 0.9
    except accord.AccordError:
        momentum = 0.0
    return accord.fit(
        Net(),
        fed,
        algorithm,
        rounds=5,
        sample=6,
        lr=0.05,
        momentum=momentum,
        evaluate_every=2,
        conditions=accord.Conditions(lost=0.1, stragglers=0.3),
        seed=11,
        engine=engine,
        device="cpu",
        verbose=False,
    )


def environment() -> list[Any]:
    """What bits depend on, apart from the run."""
    return [torch.__version__.partition("+")[0], torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()]


def told(run: Run) -> dict[str, Any]:
    """A run without the names of anything, which may change."""
    model = hashlib.blake2b(digest_size=16)
    for tensor in (run.last.vector, run.last.buffers):
        model.update(tensor.contiguous().numpy().tobytes())
    rows = ["\n".join(sorted(numbers(row))) for row in run.rows]
    return {
        "model": model.hexdigest(),
        "rows": hashlib.blake2b("\n\n".join(rows).encode(), digest_size=16).hexdigest(),
        "norm": run.last.vector.double().norm().item(),
        "loss": run.rows[-1]["train_loss"],
    }


def numbers(value: Any) -> Iterator[str]:
    """All numbers in a row, to the last bit."""
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value).hex()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bits_are_those_stored(algorithm: str, engine: str) -> None:
    stored = json.loads(STORED.read_text())
    found, expected = told(trained(ALGORITHMS[algorithm], engine)), stored["runs"][f"{algorithm}, {engine}"]
    for name in ("norm", "loss"):
        assert found[name] == pytest.approx(expected[name], rel=1e-2)
    if stored["environment"] == environment():
        assert found == expected


if __name__ == "__main__":
    accord.native.disable()  # as tests/conftest.py does: compiled code rounds as its compiler does
    runs = {f"{name}, {engine}": told(trained(ALGORITHMS[name], engine)) for name in ALGORITHMS for engine in ENGINES}
    STORED.write_text(json.dumps({"environment": environment(), "runs": runs}, indent=1) + "\n")
