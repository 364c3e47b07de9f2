"""Torch's threads: as many as a step is worth, what the user set where the user set it, and the user's own again after
a run."""

import json
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import accord
from accord.engines.contract import Job
from accord.engines.determinism import steady
from accord.engines.threads import step_work, threads_for
from accord.rules.local import Training
from accord.training.engine_choice import make_engine
from accord.training.fit import make_job
from accord.training.plan import Plan
from conftest import blobs, mlp, sentence

HAS = 3  # threads that torch has in these tests, whatever the machine


@pytest.fixture(autouse=True)
def nobody_chose(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """conftest.py sets OMP_NUM_THREADS, which is a choice; here there is none, unless a test makes one."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(HAS)
    yield
    torch.set_num_threads(before)


def job_of(module: nn.Module, batch: int | None = 8, algorithm: accord.Algorithm | None = None) -> Job:
    return make_job(module, blobs(), algorithm or accord.fedavg(), Training(batch=batch), Plan(1), "cpu")


def wide() -> nn.Module:
    """16 million weights: a step of eight samples has 400 million multiply-adds, one of 32 has 1.6 billion."""
    return nn.Sequential(
        nn.Linear(6, 4096, bias=False), nn.Linear(4096, 4096, bias=False), nn.Linear(4096, 4, bias=False)
    )


def settled(engine: str, job: Job) -> tuple[int, list[str]]:
    """Threads that an engine computes with, and what was told of it."""
    told: list[str] = []
    with steady():
        make_engine(engine, job, told.append).close()
        threads = torch.get_num_threads()
    assert torch.get_num_threads() == HAS  # as they were
    return threads, told


def test_a_thread_for_every_quarter_of_a_billion_multiply_adds_as_far_as_there_are_any() -> None:
    million = 10**6
    assert [threads_for(work * million, most=16) for work in (0, 1, 249, 499, 500, 1000, 10**6)] == [
        1,
        1,
        1,
        1,
        2,
        4,
        16,
    ]
    assert threads_for(10**12, most=1) == 1


@pytest.mark.parametrize(
    ("module", "batch", "expected"),
    [
        (mlp(), 8, 3 * 8 * (6 * 8 + 8 * 4 + 12)),  # 12 biases: a network so small has more parameters than products
        (mlp(), 1000, 3 * 32 * (6 * 8 + 8 * 4 + 12)),  # the largest client has 32 samples to train on
        (mlp(), None, 3 * 32 * (6 * 8 + 8 * 4 + 12)),
        (
            nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 5, 2), nn.Flatten(), nn.Linear(10, 4)),
            8,
            3 * 8 * (2 * 20 + 40),
        ),
        (
            nn.Sequential(nn.Unflatten(1, (3, 2)), nn.Linear(2, 50), nn.Flatten(), nn.Linear(150, 4)),
            8,
            3 * 8 * (3 * 100 + 600),
        ),
    ],
)
def test_a_steps_multiply_adds_worked_by_hand(module: nn.Module, batch: int | None, expected: int) -> None:
    job = job_of(module, batch)
    assert max(map(len, job.fed.train.values())) == 32
    assert step_work(job) == expected


def test_torchs_own_counter_agrees_on_the_papers_models() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.zeros(2, 1, 28, 28)
    arrays = {"a": (x, torch.zeros(2, dtype=torch.int64))}
    for module in (accord.models.lenet(), accord.models.cnn(), accord.models.leaf_cnn()):
        fed = accord.data.from_arrays(arrays, heldout=0.0)
        job = make_job(module, fed, accord.fedavg(), Training(batch=2), Plan(1), "cpu")
        with FlopCounterMode(display=False) as counter:
            module(x)
        assert step_work(job) == 3 * counter.get_total_flops() // 2


def test_the_same_job_gets_the_same_threads_and_nobodys_generator_moves() -> None:
    job = job_of(nn.Sequential(nn.Dropout(0.5), mlp()))
    before = torch.random.get_rng_state()
    assert len({settled("auto", job)[0] for _ in range(3)}) == 1
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("module", "batch", "expected"), [(mlp(), 8, 1), (wide(), 8, 1), (wide(), 16, HAS), (wide(), 32, HAS)]
)
def test_small_steps_have_one_thread_and_large_ones_all(module: nn.Module, batch: int, expected: int) -> None:
    assert settled("sequential", job_of(module, batch))[0] == expected
    assert settled("auto", job_of(module, batch, accord.pooled()))[0] == expected


def test_what_is_told_says_how_many() -> None:
    small = "clients are done too soon to be handed out (92 parameters), one thread for steps of 2,208 multiply-adds"
    assert settled("auto", job_of(mlp()))[1] == [f"engine sequential: {small}"]
    large = f"there is one client at a time, {HAS} threads for steps of 1,614,544,896 multiply-adds"
    assert settled("auto", job_of(wide(), 32, accord.pooled()))[1] == [f"engine sequential: {large}"]


def test_what_a_user_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(HAS))
    threads, told = settled("auto", job_of(mlp()))
    assert threads == HAS and told[0].endswith(f", {HAS} threads, by OMP_NUM_THREADS")
    monkeypatch.delenv("OMP_NUM_THREADS")
    torch.set_num_threads(1)  # the most there may be
    with steady():
        make_engine("sequential", job_of(wide(), 32))
        assert torch.get_num_threads() == 1


def test_the_record_says_how_many_and_the_callers_are_back_afterwards(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(name: str, **options) -> int:
        run = accord.fit(mlp(), blobs(), rounds=1, device="cpu", folder=tmp_path / name, **options)
        assert torch.get_num_threads() == HAS
        return json.loads((run.folder / "environment.json").read_text())[0]["threads"]

    assert recorded("auto") == 1
    if not torch.accelerator.is_available():  # beside one a forked process cannot compute gradients once its parent has
        assert recorded("processes", engine="processes") == 1
    monkeypatch.setenv("OMP_NUM_THREADS", str(HAS))
    assert recorded("chosen") == HAS


def test_the_callers_are_back_after_a_run_that_fails() -> None:
    def die(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accord.fit(mlp(), blobs(), rounds=1, device="cpu", hooks=[die])
    assert torch.get_num_threads() == HAS
    with sentence("the model cannot read samples of shape (6,)"):  # counting the work of its step hides nothing
        accord.fit(mlp(features=7), blobs(), rounds=1, device="cpu")
    assert torch.get_num_threads() == HAS
