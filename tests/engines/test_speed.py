"""Ways to be faster that a run must ask for, and what happens when a device runs out of memory."""

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import accord
from accord import kernels as native
from accord.engines.determinism import steady
from accord.engines.vectorised.client_lane import Lane, Trained
from accord.engines.vectorised.descent import Descent
from accord.models import lenet
from accord.training.hooks import Event
from conftest import blobs, mlp, sentence


def test_an_unknown_way_is_one_sentence() -> None:
    with sentence("unknown speed option 'turbo'", "native, compile, channels-last, tf32, bf16"):
        accord.fit(mlp(), blobs(), rounds=1, speed=["turbo"])


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_bf16_is_near_and_has_a_name_of_its_own(engine: str, tmp_path: Path) -> None:
    exact, rough = (
        accord.fit(mlp(), blobs(), rounds=3, sample=5, engine=engine, device="cpu", speed=speed, folder=tmp_path)
        for speed in ((), ("bf16",))
    )
    distance = (exact.last.vector - rough.last.vector).norm() / exact.last.vector.norm()
    assert 1e-6 < distance < 1e-2
    assert exact.folder != rough.folder


def test_tf32_has_a_name_of_its_own_and_ends_with_the_run(tmp_path: Path) -> None:
    here = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    exact = accord.fit(mlp(), blobs(), rounds=1, sample=3, folder=tmp_path)
    seen: list[bool] = []

    def look(event: Event) -> None:
        seen.append(torch.backends.cuda.matmul.allow_tf32)

    with nullcontext() if here else pytest.warns(UserWarning, match="'tf32' changes nothing here"):
        rough = accord.fit(mlp(), blobs(), rounds=1, sample=3, folder=tmp_path, speed=["tf32"], hooks=[look])
    assert seen == [True]
    assert exact.folder != rough.folder and not torch.backends.cuda.matmul.allow_tf32


def test_other_ways_leave_the_name_alone(tmp_path: Path) -> None:
    folders = {
        accord.fit(mlp(), blobs(), rounds=1, sample=3, speed=speed, folder=tmp_path).folder
        for speed in ((), ("compile", "channels-last"))
    }
    assert len(folders) == 1


@pytest.mark.skipif(not native.available(), reason="no compiler here")
def test_the_compiled_kernel_is_chosen_for_a_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_NATIVE", "0")
    with steady(frozenset({"native"})):
        assert native.enabled()
    assert not native.enabled()
    monkeypatch.setenv("ACCORD_NATIVE", "1")
    assert native.enabled(), "the environment has its say again"


def test_a_kernel_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_NATIVE", "0")
    monkeypatch.setattr(native.library, "loaded", lambda *_: native.library.Loaded(reason="there is no C++ compiler"))
    with sentence("the compiled kernel was asked for, but there is no C++ compiler"):
        accord.fit(lenet(), blobs(), rounds=1, speed=["native"])
    assert os.environ["ACCORD_NATIVE"] == "0"


def test_running_out_of_memory_halves_the_lanes_and_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The device is made to run out with more than two lanes at once."""
    whole = accord.fit(mlp(), blobs(), rounds=2, sample=8, engine="vectorised", device="cpu")
    together = Descent._descend_together

    def small_device(self: Descent, lanes: Sequence[Lane], *more: object) -> Trained:
        if len(lanes) > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return together(self, lanes, *more)

    monkeypatch.setattr(Descent, "_descend_together", small_device)
    with pytest.warns(UserWarning, match="ran out of memory with [84] lanes at once: going on with [42]") as halved:
        run = accord.fit(mlp(), blobs(), rounds=2, sample=8, engine="vectorised", device="cpu", folder=tmp_path)
    assert len(halved) == 2 and torch.equal(run.last.vector, whole.last.vector)
    timing = [json.loads(line) for line in (run.folder / "timing.jsonl").read_text().splitlines()]
    assert [row["lanes_at_once"] for row in timing] == [2, 2]
