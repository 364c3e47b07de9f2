"""Small federations that train in milliseconds, and the quadratics whose optimum is known."""

import json
import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# One thread each: tests and the processes they start are small, and threads that wait for each other on a busy machine
# cost seconds.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Plain torch, unless a test asks for the compiled kernel: results must not depend on whether there is a compiler.
os.environ.setdefault("ACCORD_NATIVE", "0")

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor, nn

import accord
from accord import kernels
from accord.core.errors import AccordError
from accord.data import Federation
from accord.kernels import library
from accord.runs.checksums import _say_without_checksums, checksum, read_sealed, write_sealed

if TYPE_CHECKING:
    from command import Started


# A shell has what it starts in the background ignore Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_ctrl_c() -> Iterator[None]:
    """A command that ran in this process leaves its handler of Ctrl-C, which would end the tests without a word."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


# How accord says that a user chose the threads, as this file or whoever runs the tests did.
_CHOSEN = torch.get_num_threads()
THREADS = f"{'one thread' if _CHOSEN == 1 else f'{_CHOSEN} threads'}, by OMP_NUM_THREADS"


def slow(*values: object) -> ParameterSet:
    """One set of a test's parameters that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def unloaded_kernel(kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled kernel as a process finds it that has not used it yet, in a cache of the tests' own."""
    monkeypatch.setenv("ACCORD_CACHE", str(kernel_cache))
    monkeypatch.setattr(library, "_loaded", None)


def skip_without_kernel() -> None:
    if not kernels.available():
        pytest.skip(f"no compiled kernel here: {kernels.why_not()}")


@contextmanager
def sentence(*parts: str) -> Iterator[None]:
    """Within it an AccordError is raised whose one line holds these parts in this order."""
    with pytest.raises(AccordError, match=".*".join(re.escape(part) for part in parts)) as caught:
        yield
    assert "\n" not in str(caught.value)


def blobs(
    clients: int = 12, samples: int = 30, features: int = 6, classes: int = 4, unseen: int = 3, seed: int = 0
) -> Federation:
    """Clients whose classes are Gaussian blobs, each client's shifted a little its own way, with ragged sizes."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2.0 * torch.randn(classes, features, generator=generator)
    arrays = {}
    for client in range(clients + unseen):
        count = samples + 5 * (client % 3)
        y = torch.randint(0, classes, (count,), generator=generator)
        shift = 0.5 * torch.randn(features, generator=generator)
        arrays[f"c{client:02d}"] = (centres[y] + shift + torch.randn(count, features, generator=generator), y)
    return accord.data.from_arrays(
        arrays, unseen=[f"c{c:02d}" for c in range(clients, clients + unseen)], heldout=0.2, seed=seed, name="blobs"
    )


def mlp(features: int = 6, classes: int = 4, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, classes))


@pytest.fixture
def start(env: dict[str, str], here: Path) -> Iterator[Callable[..., "Started"]]:
    """Starts commands, in the folder and with the variables of the test module; none outlives the test."""
    from command import Started  # here: the command line is not part of every environment that tests run in

    started: list[Started] = []

    def one(*words: str) -> Started:
        started.append(Started(env, here, list(words)))
        return started[-1]

    yield one
    for each in started:
        each.process.kill()
        each.process.wait()


def record_runs(folder: Path, masked: int, plain: int) -> Path:
    """Run folders of so many rounds: two seeds with a mask, one without."""
    for seed in (0, 1):
        rule = accord.fedavg(mask=accord.gma(0.6))
        accord.fit(mlp(), blobs(), rule, rounds=masked, sample=4, evaluate_every=2, seed=seed, folder=folder)
    accord.fit(mlp(), blobs(), accord.fedavg(), rounds=plain, sample=4, evaluate_every=2, folder=folder)
    return folder


@pytest.fixture
def fed() -> Federation:
    return blobs()


class Point(nn.Module):
    """A model that is one number x; a sample (a, b) costs a/2 (x - b)^2."""

    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([start], dtype=torch.float64))

    def forward(self, samples: Tensor) -> Tensor:
        return samples[:, 0] / 2 * (self.x - samples[:, 1]).square()


def quadratics(*curves: tuple[float, float]) -> Federation:
    """One client per curve a/2 (x - b)^2, each with a single sample."""
    # from_arrays rounds to float32, so it is only told of the clients
    arrays = {f"q{i}": (torch.zeros(1, 2), torch.zeros(1)) for i in range(len(curves))}
    fed = accord.data.from_arrays(arrays, heldout=0.0, name="quadratics")
    return Federation(torch.tensor(curves, dtype=torch.float64), fed.y, fed.train, name="quadratics")


def cost(output: Tensor, target: Tensor) -> Tensor:
    return output


def forge(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replaces files of a run folder, and their checksums, as somebody does who has read the library."""
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    for mark in (folder / "state.json", folder / "older.json", folder / "done"):
        if mark.exists():
            form = read_sealed(mark)
            for name in form["files"].keys() & contents.keys():
                now = checksum(contents[name])
                form["files"][name] = [now] if isinstance(form["files"][name], list) else now
            write_sealed(mark, form)


def without_checksums(folder: Path) -> None:
    """Makes a run folder one of an earlier version, whose files may be edited."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _say_without_checksums()  # which is said once, and here
    for path in (folder / "state.json", folder / "done"):
        form = json.loads(path.read_text()) if path.exists() else {}
        kept = {key: of for key, of in form.items() if key not in ("checksum", "files", "rows", "client_checksums")}
        if kept:
            path.write_text(json.dumps(kept))
    rows = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    timing = [json.dumps({key: of for key, of in row.items() if key != "row"}) + "\n" for row in rows]
    (folder / "timing.jsonl").write_text("".join(timing))
