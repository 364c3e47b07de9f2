"""The processes engine: the same bits as one process, whoever finishes first, whoever dies, and nobody left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord import AccordError, Conditions, and_mask, gma
from accord.core.losses import accuracy, cross_entropy
from accord.data import SHIFTS, CropFlip, Federation, Scale, deal, shifted
from accord.engines.contract import Job
from accord.engines.processes import Processes
from accord.engines.sequential import Sequential
from accord.engines.shared_memory import Area
from accord.rules.algorithm import Algorithm
from accord.training.loop import Loop
from conftest import blobs, mlp, sentence, slow
from engine_jobs import make_job, make_work, run, small_net, troubled, unknown_loss


@pytest.fixture(autouse=True)
def one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the workers are compared with computes on one thread, as they do."""
    if torch.accelerator.is_available() and "spawn" not in request.node.name:
        pytest.skip("beside an accelerator a forked process cannot compute gradients once its parent has")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@contextmanager
def processes(job: Job, workers: int | None = 2, start: str | None = "fork") -> Iterator[Processes]:
    engine = Processes(job, workers, start)
    try:
        yield engine
    finally:
        engine.close()


def assert_same_run(job: Job, *workers: int, start: str = "fork", **plan) -> Loop:
    """Vector, buffers, what the server and every client remember, every row and every evaluation, bit for bit."""
    here = run(Sequential(job), job, **plan)
    for there in (run(Processes(job, count, start), job, **plan) for count in workers):
        for name, value in here.progress.tensors().items():
            assert torch.equal(value, there.progress.tensors()[name]), name
        assert here.rows == there.rows
        assert here.last_table.groups == there.last_table.groups
        assert all(
            np.array_equal(values, there.last_table.sums[name], equal_nan=True)
            for name, values in here.last_table.sums.items()
        )
        for client in job.fed.clients:
            mine, theirs = here.store.get(client) or {}, there.store.get(client) or {}
            assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    return here


# ---------------------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize(
    ("algorithm", "training"),
    [
        slow(accord.fedavg(), {}),
        (accord.fedavg(mask=gma(), weighting="uniform"), {"epochs": 2, "clip": 0.5, "weight_decay": 0.01}),
        slow(accord.fedsgd(), {}),
        slow(accord.fedprox(0.1, mask=and_mask()), {}),
        (accord.scaffold(mask=gma()), {}),
        slow(accord.scaffold("I"), {}),
        slow(accord.scaffold("II", weighting="samples"), {"momentum": 0.0}),
        (accord.fedadam(mask=gma()), {}),
        slow(accord.fedyogi(mask=and_mask()), {"steps": 3}),
        (accord.fedavgm(), {"batch": None}),
        (accord.pooled(), {}),
        (accord.local_only(), {}),
    ],
    ids=lambda value: value.name if isinstance(value, Algorithm) else "",
)
def test_every_algorithm_gives_the_same_bits(algorithm: Algorithm, training: dict) -> None:
    conditions = Conditions(available=0.9, lost=0.1, stragglers=0.5, least=0.2)
    fed = blobs() if algorithm.pools else troubled()  # a bad number in the pool would be everybody's
    here = assert_same_run(make_job(algorithm, fed=fed, **training), 1, 2, 3, conditions=conditions)
    if not algorithm.pools:
        reasons = {why for row in here.rows for why in row["left_out"].values()}
        assert {"report lost", "no samples", "1 sample, and the model needs 2 to train on"} < reasons


class Noisy(nn.Module):
    """Draws at random, also in evaluation, and counts in a buffer that has no average."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_net()
        self.register_buffer("odd", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        self.odd.logical_not_()
        return self.inner(x + 0.1 * torch.randn_like(x)) * (2.0 if self.odd else 1.0)


def pictures(shift: str | None) -> Federation:
    x = torch.arange(60 * 64, dtype=torch.int64).remainder(251).to(torch.uint8).view(60, 1, 8, 8)
    fed = deal(x, torch.arange(60) % 10, clients=5, unseen=1, prepare=Scale((0.1,), (0.3,)))
    return replace(fed if shift is None else shifted(fed, SHIFTS[shift](), 0), augment=CropFlip(2))


def convolutions(channels: int, classes: int) -> nn.Module:
    torch.manual_seed(0)
    norm = nn.GroupNorm(2, 4)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), norm, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, classes)
    )


@pytest.mark.parametrize("shift", [None, "coloured", "binary", "rotated"])
def test_shifted_and_augmented_pictures_give_the_same_bits(shift: str | None) -> None:
    fed = pictures(shift)
    assert_same_run(make_job(module=convolutions(fed.shape[0], fed.outputs), fed=fed), 2)


def test_models_that_draw_at_random_give_the_same_bits() -> None:
    assert_same_run(make_job(module=Noisy()), 2)


def test_many_batches_of_evaluation_and_a_cohort_smaller_than_the_crew() -> None:
    """3,000 samples are twelve batches, most of them shared by several clients."""
    assert_same_run(make_job(fed=blobs(clients=40, samples=60), batch=None), 8, sample=2)


def test_the_threads_of_the_parent_change_nothing_and_stay() -> None:
    """A forked process that called for OpenMP's threads, which stay with the parent, would hang here."""
    job = make_job(module=convolutions(1, 10), fed=pictures(None))
    alone = run(Sequential(job), job)
    torch.set_num_threads(3)
    wide = torch.randn(400, 400, requires_grad=True)
    (wide @ wide).sum().backward()
    assert torch.equal(run(Processes(job, 2), job).progress.vector, alone.progress.vector)
    assert torch.get_num_threads() == 3


@pytest.mark.slow
def test_spawned_workers_give_the_same_bits() -> None:
    assert_same_run(make_job(accord.scaffold(mask=gma()), Noisy(), troubled()), 2, start="spawn")


def test_fit_takes_the_engine_by_name() -> None:
    runs = [
        accord.fit(mlp(), blobs(), rounds=2, sample=4, device="cpu", engine=engine)
        for engine in ("sequential", "processes")
    ]
    assert torch.equal(runs[0].last.vector, runs[1].last.vector) and runs[0].rows == runs[1].rows


class Halves(nn.Module):
    """Parameters of two precisions, one of them tied, one frozen, one unused; and a buffer whose elements share
    memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.narrow = nn.Linear(6, 6), nn.Linear(6, 6, dtype=torch.bfloat16)
        self.frozen = nn.Parameter(torch.randn(4, 6), requires_grad=False)
        self.unused, self.tied = nn.Parameter(torch.ones(3)), self.wide
        self.register_buffer("same", torch.ones(1).expand(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.tied(self.narrow(self.wide(x).bfloat16()).float() * self.same) @ self.frozen.T


def test_the_client_loop_handles_uncommon_parameters() -> None:
    """Against a loop with plain modules: bfloat16 parameters follow a float32 master copy, cast anew at every step."""
    job = make_job(module=Halves(), momentum=0.5)
    work, cohort = make_work(job)
    outcome = Sequential(job).train(work, cohort[:1])
    module = Halves()
    trained = [p for p in module.parameters() if p.requires_grad]
    master = [p.detach().float() for p in trained]
    velocity = [torch.zeros_like(m) for m in master]
    for rows in accord.engines.contract.batches(job, 1, cohort[0]):
        loss = cross_entropy(module(job.fed.x[rows]), job.fed.y[rows]).mean()
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        for k, gradient in enumerate(gradients):
            velocity[k] = 0.5 * velocity[k] + (0.0 if gradient is None else gradient.float())
            master[k] = master[k] - 0.05 * velocity[k]
            trained[k].data = master[k].to(trained[k].dtype)
    delta = torch.cat([m.reshape(-1) for m in master]) - work.vector
    assert delta.abs().max() > 0.01
    assert torch.allclose(outcome.record.part("average")["delta"] / len(cohort[0].rows), delta, atol=1e-5)
    assert_same_run(job, 2, rounds=1)


# ----------------------------------------------------------------------------------------------------- faults


class Slow(nn.Module):
    """Takes its time over every training step, except where the engine first looks at it."""

    def __init__(self, seconds: float = 0.02) -> None:
        super().__init__()
        self.inner, self.seconds, self.parent = mlp(), seconds, os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if self.training and os.getpid() != self.parent:
            time.sleep(self.seconds)
        return self.inner(x)


class Deadly(Slow):
    """Kills the worker that trains on a sample of 1000, and makes it leave on one of 2000."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and os.getpid() != self.parent and (x == 1000.0).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if self.training and os.getpid() != self.parent and (x == 2000.0).any():
            sys.exit(3)
        return self.inner(x)


def test_a_killed_worker_is_replaced_and_its_shard_done_again() -> None:
    job = make_job(accord.scaffold(), Slow(), momentum=0.0)
    alone = run(Sequential(job), job, rounds=2)
    with processes(job) as engine:
        killed: list[int] = []

        done = threading.Event()

        def kill() -> None:
            """Two workers, each in the middle of a shard; a third death of one shard's workers would be the shard's
            fault."""
            while len(killed) < 2 and not done.wait(0.001):
                busy = [w.process.pid for w in list(engine._crew) if w.tasks and w.process.pid not in killed]
                if busy and not done.wait(0.03):
                    killed.append(busy[0])
                    with suppress(ProcessLookupError):
                        os.kill(killed[-1], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        there = run(engine, job, rounds=2)
        done.set()
        killer.join()
    assert killed
    assert torch.equal(alone.progress.vector, there.progress.vector) and alone.rows == there.rows
    assert all(torch.equal(alone.store.get(client)["c"], there.store.get(client)["c"]) for client in job.fed.clients)


@pytest.mark.parametrize(
    ("sample", "how"), [(1000.0, "SIGKILL): is there enough memory?"), (2000.0, "exit code 3): what it printed")]
)
def test_a_client_that_ends_its_worker_every_time_is_named(sample: float, how: str) -> None:
    fed = blobs()
    fed.x[fed.train["c03"][0]] = sample
    job = make_job(module=Deadly(), fed=fed)
    with (
        processes(job) as engine,
        sentence("worker process for client c03 in round 1 ended 3 times without an answer (", how),
    ):
        run(engine, job)


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_an_error_reaches_the_caller_as_the_same_sentence_and_the_engine_goes_on(split: str) -> None:
    """Two clients fail; the first one is slower about it, and is told all the same."""
    fed = blobs()
    labels = fed.y.clone()
    for client in ("c02", "c09"):
        labels[getattr(fed, split)[client][-1]] = 7  # four classes
    broken = Federation(fed.x, labels, fed.train, fed.heldout, fed.unseen)
    job = replace(make_job(module=Slow(), fed=broken), loss=unknown_loss)
    says = []
    with processes(job, 3) as engine:
        for each in (Sequential(job), engine, engine):
            with pytest.raises(AccordError) as caught:
                run(each, job)
            says.append(str(caught.value))
    assert says[0] == says[1] == says[2]
    assert says[0].startswith(
        "client c02 could not train in round 1: Target 7" if split == "train" else "evaluation failed at or soon after"
    )


def test_an_error_in_accord_itself_shows_where_it_happened() -> None:
    job = make_job()
    work, cohort = make_work(job)
    with (
        processes(job) as engine,
        pytest.raises(RuntimeError, match=r"a worker process failed:\n(?s:.*)KeyError: 'average'"),
    ):
        engine.train(replace(work, memory={"local": {}}), cohort)


def test_what_does_not_fit_is_refused() -> None:
    job = make_job()
    with sentence("the processes engine trains on the CPU, got device cuda: choose device cpu"):
        Processes(replace(job, device=torch.device("cuda")))
    with sentence("start must be 'fork' or 'spawn', got 'thread'"):
        Processes(job, start="thread")
    with sentence("workers must be a whole number of at least 1, got 0"):
        Processes(job, 0)
    with sentence("the model cannot read samples of shape (6,)"):
        Processes(make_job(module=nn.Linear(5, 4)))


@pytest.mark.parametrize("what", ["loss", "metrics", "data", "model"])
def test_what_cannot_be_spawned_is_named(what: str) -> None:
    job, same = make_job(), lambda value: value
    if what == "model":
        job.module.scale = same
    odd = {
        "loss": {"loss": lambda output, target: cross_entropy(output, target)},
        "metrics": {"metrics": {"mine": lambda output, target: accuracy(output, target)}},
        "data": {"fed": replace(job.fed, prepare=same)},
        "model": {},
    }
    job = replace(job, **odd[what])
    with sentence(f"the {what} cannot be sent to a spawned process", "at the top of a module"):
        Processes(job, start="spawn")
    run(Processes(job, 2, "fork"), job, rounds=1)


# ----------------------------------------------------------------------------------------- memory and manners


def private_mb(pid: int) -> float:
    """Memory that a process has to itself."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


@pytest.mark.parametrize(
    ("start", "samples"), [("fork", 50_000), pytest.param("spawn", 100_000, marks=pytest.mark.slow)]
)
def test_samples_are_in_memory_once(start: str, samples: int) -> None:
    """4 kB each, all of which the workers read. A spawned worker also has torch to itself, in some 200 MB."""
    x, y = torch.ones(samples, 1000), torch.zeros(samples, dtype=torch.int64)
    fed = Federation(x, y, dict(zip("abcd", torch.arange(samples).split(samples // 4), strict=True)))
    job = make_job(module=nn.Linear(1000, 2), fed=fed, batch=1000)
    work, cohort = make_work(job)
    with processes(job, start=start) as engine:
        engine.train(work, cohort)
        assert len(engine._crew) == 2
        assert all(private_mb(worker.process.pid) < x.nbytes / 2**20 for worker in engine._crew)


def test_the_parent_sleeps_while_it_waits() -> None:
    job = make_job(module=Slow(0.2), batch=None)
    work, cohort = make_work(job)
    with processes(job) as engine:
        engine.train(work, cohort[:2])
        wall, own = time.perf_counter(), time.process_time()
        engine.train(work, cohort[:4])
        assert time.process_time() - own < 0.2 * (time.perf_counter() - wall)


def gone(pid: int) -> bool:
    try:
        # ended; whoever adopted it has not looked yet
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def all_gone(pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (done := all(gone(pid) for pid in pids)) and time.monotonic() < end:
        time.sleep(0.01)
    return done


def test_closing_ends_all_workers_and_leaves_no_file_open() -> None:
    job = make_job(accord.scaffold(), module=Slow(0.0))
    work, cohort = make_work(job)
    open_files = []
    for _ in range(3):
        engine = Processes(job, 2)
        engine.train(work, cohort)
        pids = [worker.process.pid for worker in engine._crew]
        assert len(pids) == 2 and not any(gone(pid) for pid in pids)
        started = time.monotonic()
        engine.close()
        engine.close()
        assert time.monotonic() - started < 2 and all_gone(pids, 0)
        del engine
        open_files.append(len(os.listdir("/proc/self/fd")))
    assert open_files[1] >= open_files[2]  # fewer: what other tests left behind was collected


SCRIPT = """
import sys, time
import torch
import accord
from torch import nn
from engine_jobs import make_job, make_work, unknown_loss
from test_processes import Slow
from accord.engines.processes import Processes

job = make_job(module=Slow(0.2), batch=None)
work, cohort = make_work(job)
engine = Processes(job, 3)
engine.train(work, cohort[:3])
print(*(worker.process.pid for worker in engine._crew), flush=True)
for _ in range(0 if sys.argv[1] == "leave" else 1000):
    engine.train(work, cohort)
"""


@pytest.mark.slow
def test_however_the_parent_ends_no_worker_is_left() -> None:
    """Ctrl-C (which reaches the workers too), a kill that nobody can catch, a polite one, and an end without
    `close`."""
    ways = {"ctrl-c": signal.SIGINT, "kill": signal.SIGKILL, "terminate": signal.SIGTERM, "leave": None}
    started = {
        way: subprocess.Popen(
            [sys.executable, "-c", SCRIPT, way],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for way in ways
    }
    for way, process in started.items():
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 3, process.stderr.read()
        if way == "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)
        elif ways[way] is not None:
            os.kill(process.pid, ways[way])
        _, errors = process.communicate(timeout=20)
        assert all_gone(pids, 10), way
        assert errors.count("Traceback") == (1 if way == "ctrl-c" else 0), errors


def test_an_area_carries_tensors_of_every_kind() -> None:
    area, twice = Area(), torch.arange(5)
    value = {
        "floats": torch.randn(3, 4),
        "turned": torch.randn(2, 3, 4).permute(2, 0, 1),
        "strided": torch.arange(10)[::2],
        "empty": torch.zeros(0, 3),
        "half": torch.randn(7).bfloat16(),
        "flags": torch.tensor([True, False]),
        "spread": torch.ones(1).expand(4),
        "twice": [twice, twice],
        "parameter": nn.Parameter(torch.randn(2)),
    }
    for copy in (False, True):
        back = area.load(area.dump(value), copy)
        assert all(
            torch.equal(back[name], value[name]) and back[name].dtype == value[name].dtype
            for name in value
            if name != "twice"
        )
        assert back["turned"].stride() == value["turned"].stride()
        assert back["twice"][0] is back["twice"][1] and isinstance(back["parameter"], nn.Parameter)
    kept, view = area.load(area.dump([torch.zeros(4)]), copy=True), area.load(area.dump([torch.zeros(4)]))
    area.dump([torch.ones(100_000)])  # grows
    assert kept[0].sum() == 0 and view[0].sum() == 4
