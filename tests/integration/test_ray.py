"""The Ray engine on a real cluster of several nodes on this machine: the same bits as `sequential`, whoever is lost or
joins."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import accord
from accord.core.losses import accuracy
from accord.core.record import Field, Record
from accord.data import Federation
from accord.engines.contract import Job
from accord.engines.sequential import Sequential
from accord.rules.algorithm import Algorithm
from accord.training.loop import Loop
from conftest import blobs, mlp, sentence
from engine_jobs import make_job, make_work, run, troubled, unknown_loss

HERE = Path(__file__).parent
STORE = 300 << 20  # bytes of shared memory a node
# A node that is gone is noticed within seconds, and one that is only busy has fifteen.
SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 3,
    "health_check_timeout_ms": 5000,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without devices and two nodes of one core each, which this process has joined."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'accord-fl[ray]'")
    from ray.cluster_utils import Cluster

    from accord.engines.ray import connect

    before = dict(os.environ)
    # the tests' models are defined there
    places = os.pathsep.join(map(str, (HERE.parents[1] / "src", HERE.parent, HERE)))
    os.environ |= {"PYTHONPATH": places, "RAY_USAGE_STATS_ENABLED": "0"}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    nodes = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": STORE,
            "include_dashboard": False,
            "_system_config": SOON,
        },
    )
    for _ in range(2):
        nodes.add_node(num_cpus=1, object_store_memory=STORE)
    connect(nodes.address)
    yield nodes
    ray.shutdown()
    nodes.shutdown()
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def engine(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes engines, and closes them."""
    from accord.engines.ray import Cluster, workers

    monkeypatch.setattr(workers, "_PATIENCE", 900.0)  # on a busy machine a worker takes minutes to start
    made: list[Cluster] = []

    def make(job: Job, local: str | None = None) -> Cluster:
        made.append(Cluster(job, local))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def third(cluster: Any) -> Iterator[Any]:
    """One more node, which the test may kill."""
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE)
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node, allow_graceful=False)


def assert_same(here: Loop, there: Loop) -> None:
    """Vector, buffers, what server and clients remember, and every row, bit for bit."""
    for name, value in here.progress.tensors().items():
        assert torch.equal(value, there.progress.tensors()[name]), name
    assert here.rows == there.rows
    for client in here.job.fed.clients:
        mine, theirs = here.store.get(client) or {}, there.store.get(client) or {}
        assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


class Slow(nn.Module):
    """Takes its time over every training step, except where the driver looks at it."""

    def __init__(self, seconds: float = 0.05) -> None:
        super().__init__()
        self.inner, self.seconds, self.driver = mlp(), seconds, os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if self.training and os.getpid() != self.driver:
            time.sleep(self.seconds)
        return self.inner(x)


class Wide(nn.Module):
    """A million parameters that are quick to train."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(6, 1000), nn.Tanh(), nn.Linear(1000, 1000), nn.Tanh(), nn.Linear(1000, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


# ---------------------------------------------------------------------------------------------- the same bits


def test_an_error_comes_in_as_many_parcels_as_an_answer() -> None:
    """Ray waits for two values of a training: one would be an error of its own, which says nothing of ours."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'accord-fl[ray]'")
    from accord.engines.ray.payload import Parcel
    from accord.engines.ray.worker import Worker

    worker = Worker(Parcel.of(None), "sequential", "CPU", [])
    sent = Parcel.of(None)
    first, second = worker.train(sent, sent)
    assert "a worker of the cluster failed" in str(first.open()) and second.open() is None
    assert "a worker of the cluster failed" in str(worker.evaluate(sent, sent).open())


def test_a_record_on_the_driver_s_device_still_says_what_its_fields_are() -> None:
    """Privacy puts noise on updates and votes, which it knows by their kind."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'accord-fl[ray]'")
    from accord.engines.ray.engine import _here

    record = Record(mask=Record(votes=Field(torch.ones(3), kind="votes")), rows=Field(torch.ones(2, 3), "rows"))
    there = _here(record, torch.device("meta")).fields()
    assert [(field.how, field.kind) for field in there.values()] == [("sum", "votes"), ("rows", "number")]
    assert {field.value.device.type for field in there.values()} == {"meta"}


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(accord.fedadam(mask=accord.gma(0.4)), id="sums"),
        pytest.param(accord.fedadam(mask=accord.scaled(accord.gma(0.4))), id="control of a mask"),
        pytest.param(accord.scaffold(mask=accord.gma(0.4)), id="clients that remember"),
        pytest.param(accord.fedavg(average=accord.median()), id="rows"),
        pytest.param(accord.fedavg(average=accord.corrective(0.2, passes=2)), id="asked twice"),
        pytest.param(accord.fedavg(mask=accord.gma(0.4)).with_personal("last"), id="parameters that stay home"),
    ],
)
@pytest.mark.slow
def test_a_cluster_gives_the_bits_of_one_process(engine: Callable[..., Any], algorithm: Algorithm) -> None:
    job = make_job(algorithm, fed=troubled(), momentum=0.0)
    there = engine(job)
    assert_same(run(Sequential(job), job), run(there, job))


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
@pytest.mark.slow
def test_local_optimisers_have_the_bits_of_one_process(engine: Callable[..., Any], optimiser: str) -> None:
    job = make_job(accord.fedavg(), fed=blobs(), lr=0.01, optimiser=optimiser)
    assert_same(run(Sequential(job), job), run(engine(job), job))


@pytest.mark.slow
def test_metrics_of_a_whole_group_have_the_bits_of_one_process(engine: Callable[..., Any]) -> None:
    pytest.importorskip("sklearn", reason="the metrics are scikit-learn's")
    job = replace(make_job(), metrics={"auc": accord.metrics.auc, "accuracy": accuracy})
    assert_same(run(Sequential(job), job), run(engine(job), job))


def test_a_model_from_a_script_with_a_loss_without_a_name(engine: Callable[..., Any]) -> None:
    """Ray carries what was never importable; a metric that cannot travel is named."""
    scope: dict[str, Any] = {"nn": nn}
    exec("class Net(nn.Linear):\n    pass", scope | {"__name__": "__main__"}, scope)
    job = make_job(module=scope["Net"](6, 4))
    job = replace(job, loss=lambda output, target: nn.functional.cross_entropy(output, target, reduction="none"))
    assert_same(run(Sequential(job), job, rounds=1), run(engine(job), job, rounds=1))
    lock = threading.Lock()
    stuck = replace(job, metrics={"mine": lambda output, target: output[:, 0] if lock else target})
    with sentence("the metrics cannot be sent to another node: cannot pickle '_thread.lock' object"):
        run(engine(stuck), stuck, rounds=1)


@pytest.mark.slow
def test_lanes_on_every_device_agree_with_one_process(engine: Callable[..., Any]) -> None:
    """What a GPU would run: `vectorised`, with one part of the cohort for each device; sums are cut otherwise, so bits
    may differ."""
    job = make_job(accord.scaffold(mask=accord.gma(0.4)), module=mlp(), momentum=0.0)
    work, cohort = make_work(job)
    here, there = Sequential(job).train(work, cohort), engine(job, "vectorised").train(work, cohort)
    assert torch.allclose(here.record.part("average")["delta"], there.record.part("average")["delta"], atol=1e-5)
    assert torch.equal(here.record.part("mask")["votes"], there.record.part("mask")["votes"])
    assert [row.client for row in here.rows] == [row.client for row in there.rows]


@pytest.mark.slow
def test_errors_are_the_same_sentence_and_the_engine_goes_on(engine: Callable[..., Any]) -> None:
    fed = blobs()
    labels = fed.y.clone()
    for client in ("c02", "c09"):
        labels[fed.train[client][-1]] = 7  # four classes
    broken = Federation(fed.x, labels, fed.train, fed.heldout, fed.unseen)
    job = replace(make_job(module=mlp(), fed=broken), loss=unknown_loss)
    there = engine(job)
    for _ in range(2):
        with sentence("client c02 could not train in round 1: Target 7"):
            run(there, job)


# --------------------------------------------------------------------------------------------- lost and found


class When:
    """Acts once a worker on that node is in the middle of a shard, and keeps the shard."""

    def __init__(self, engine: Any, node: str, act: Callable[[Any], object]) -> None:
        self.engine, self.node, self.act = engine, node, act
        self.hand = self.task = None
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and self.task is None:
            time.sleep(0.01)
            for hand in list(self.engine.crew.hands):
                if hand.node == self.node and hand.task is not None:
                    self.hand, self.task = hand, hand.task
        self.act(self.hand)

    def deaths(self) -> int:
        """How many workers ended over that shard."""
        self.thread.join()
        return self.task.deaths


@pytest.mark.slow
def test_a_node_killed_in_the_middle_of_a_round(cluster: Any, third: Any, engine: Callable[..., Any]) -> None:
    job = make_job(accord.scaffold(), Slow(), momentum=0.0)
    there = engine(job)
    killer = When(there, third.node_id, lambda _: cluster.remove_node(third, allow_graceful=False))
    after = run(there, job, rounds=2)
    assert killer.deaths() == 1
    assert_same(run(Sequential(job), job, rounds=2), after)


@pytest.mark.slow
def test_a_node_killed_with_the_records_of_shards_that_were_done(
    cluster: Any, third: Any, engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shards of the lost node are trained again, the others are not. Records are large enough to lie in the node's
    memory."""
    job = make_job(accord.fedavg(mask=accord.gma()), Wide(), batch=None)
    there = engine(job)
    work, cohort = make_work(job)
    added, trained = there._added, []

    def killing(tasks: Any) -> Any:
        trained.append([(task.node, id(task.record)) for task in tasks])
        if len(trained) == 1:
            assert third.node_id in {task.node for task in tasks}
            cluster.remove_node(third, allow_graceful=False)
        return added(tasks)

    monkeypatch.setattr(there, "_added", killing)
    outcome = there.train(work, cohort)
    alone = Sequential(job).train(work, cohort)
    assert torch.equal(outcome.record.part("average")["delta"], alone.record.part("average")["delta"])
    assert torch.equal(outcome.record.part("mask")["votes"], alone.record.part("mask")["votes"])
    assert len(trained) >= 2 and third.node_id not in {node for node, _ in trained[-1]}
    assert set(trained[0]) & set(trained[-1])  # some were kept


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_shard_done_again(cluster: Any, engine: Callable[..., Any]) -> None:
    import ray

    job = make_job(module=Slow(), momentum=0.0)
    there = engine(job)
    killer = When(there, cluster.list_all_nodes()[1].node_id, lambda hand: ray.kill(hand.actor))
    after = run(there, job, rounds=1)
    assert killer.deaths() == 1 and killer.hand not in there.crew.hands
    assert_same(run(Sequential(job), job, rounds=1), after)


class Deadly(Slow):
    """Kills the worker that trains on a sample of 1000."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and os.getpid() != self.driver and (x == 1000.0).any():
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(x)


@pytest.mark.slow
def test_a_client_that_ends_its_worker_every_time_is_named(engine: Callable[..., Any]) -> None:
    fed = blobs()
    fed.x[fed.train["c03"][0]] = 1000.0
    job = make_job(module=Deadly(), fed=fed)
    with sentence("the worker for client c03 in round 1 ended 3 times without an answer: "):
        run(engine(job), job)


@pytest.mark.slow
def test_a_node_that_joins_is_used_from_then_on(cluster: Any, engine: Callable[..., Any]) -> None:
    job = make_job(module=mlp(), momentum=0.0)
    there = engine(job)
    work, cohort = make_work(job)
    outcomes = [there.train(work, cohort)]
    assert len({hand.node for hand in there.crew.ready}) == 2
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE)
    try:
        end = time.monotonic() + 60
        while node.node_id not in {hand.node for hand in there.crew.ready} and time.monotonic() < end:
            outcomes.append(there.train(work, cohort))
        assert len({hand.node for hand in there.crew.ready}) == 3
        outcomes.append(there.train(work, cohort))
    finally:
        there.close()
        cluster.remove_node(node)
    alone = Sequential(job).train(work, cohort)
    assert all(
        torch.equal(alone.record.part("average")["delta"], each.record.part("average")["delta"]) for each in outcomes
    )


# ------------------------------------------------------------------------------------------- bytes and memory


def loopback() -> int:
    """Bytes that went from one process of this machine to another over the network."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))


@pytest.mark.skipif(not Path("/proc/net/dev").exists(), reason="counts bytes as Linux does")
@pytest.mark.slow
def test_bytes_of_a_round_grow_with_nodes_and_not_with_clients(engine: Callable[..., Any]) -> None:
    """Two nodes get the model (P) and send a record (2 P: sums and votes) on; 48 clients would get and send 96 P.
    Others may use the network meanwhile, and a worker that helps another node moves one record more, so the least of
    some rounds counts."""
    job = make_job(accord.fedavg(mask=accord.gma()), Wide(), fed=blobs(clients=48), batch=None)
    there, (work, cohort) = engine(job), make_work(job)
    there.train(work, cohort)
    moved = {}
    for clients in (16, 48):
        rounds = []
        for _ in range(4):
            before = loopback()
            there.train(work, cohort[:clients])
            rounds.append((loopback() - before) / (4 * job.layout.size))
        moved[clients] = min(rounds)
    print(f"bytes of a round over P: {moved}")
    assert all(5.9 < each < 6.5 for each in moved.values()), moved


def private_mb(pid: int) -> float:
    """Memory that a process has to itself."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


def workers() -> dict[int, str]:
    """Every worker of the engine that the cluster knows, by process, and how it is."""
    from ray._private.state import actors

    return {actor["Pid"]: actor["State"] for actor in actors().values() if actor["ActorClassName"] == "Worker"}


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="looks at memory as Linux shows it")
@pytest.mark.slow
def test_samples_are_in_a_node_s_memory_once(cluster: Any, engine: Callable[..., Any]) -> None:
    """200 MB of samples, all of which the workers read; each has torch to itself besides, in some 250 MB."""
    samples = 50_000
    train = dict(zip("abcd", torch.arange(samples).split(samples // 4), strict=True))
    private = {}
    for width in (1, 1000):
        job = make_job(
            module=nn.Linear(width, 2),
            fed=Federation(torch.ones(samples, width), torch.zeros(samples).long(), train),
            batch=1000,
        )
        there, (work, cohort) = engine(job), make_work(job)
        there.train(work, cohort)
        private[width] = max(private_mb(pid) for pid, state in workers().items() if state == "ALIVE")
        there.close()
    assert private[1000] - private[1] < 100, private


# ------------------------------------------------------------------------------------------------ the command

EXPERIMENT = """
[data]
name = "digits"
clients = 8
unseen = 2
[model]
name = "logistic"
[train]
rounds = 3
sample = 6
evaluate_every = 2
[algorithm]
name = "scaffold"
mask = "gma"
[run]
device = "cpu"
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "accord", "run", "my.toml", *words]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "my.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.mark.slow
def test_the_command_writes_what_it_writes_alone(cluster: Any, here: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    written = {}
    for folder, words in {"alone": ["run.engine=sequential"], "cluster": ["--ray", cluster.address]}.items():
        done = subprocess.run(
            command(f"run.folder={folder}", *words), cwd=here, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr and "Traceback" not in done.stderr
        written[folder] = {
            file.name: file.read_bytes()
            for file in (here / folder).rglob("*")
            if file.name in ("metrics.jsonl", "model.safetensors")
        }
    assert len(written["alone"]) == 2 and written["alone"] == written["cluster"]


@pytest.mark.slow
def test_workers_find_a_rule_that_lies_beside_the_experiment_file(cluster: Any, here: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    beside = here / "experiments"  # not the working directory, which Ray tells its workers
    beside.mkdir()
    (beside / "half.py").write_text("import accord\n\nclass Half(accord.gma):\n    pass\n")
    (here / "my.toml").rename(beside / "my.toml")
    words = [sys.executable, "-m", "accord", "run", "experiments/my.toml", "algorithm.mask=half:Half"]
    done = subprocess.run([*words, "--ray", cluster.address], cwd=here, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_no_worker(cluster: Any, here: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    before = set(workers())
    # rounds of about a second: the second Ctrl-C comes within one or, on a fast machine, a little after it
    words = command("train.rounds=1000", "train.epochs=10", "run.checkpoint_every=1", "--ray", cluster.address)
    process = subprocess.Popen(words, cwd=here, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: any(file.stat().st_size for file in here.rglob("metrics.jsonl")))
    pids = {pid for pid, state in workers().items() if pid not in before and state == "ALIVE"}
    assert len(pids) == 2
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (130, -signal.SIGINT) and "Traceback" not in errors, errors  # a shell says 130 to both
    assert f"--resume --ray {cluster.address}" in errors
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    wait_for(lambda: all(workers()[pid] == "DEAD" for pid in pids))


def wait_for(happens: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# -------------------------------------------------------------------------------------------------- bad input


def refused(here: Path, *words: str, **env: str) -> str:
    """The one sentence that the command says before it exits with 2."""
    started = time.monotonic()
    done = subprocess.run(
        command(*words), cwd=here, env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and time.monotonic() - started < 60
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


KNOCK = """
import sys
from accord.engines.ray import connect
from accord.core.errors import AccordError
for address in sys.argv[1:]:
    try:
        connect(address)
    except AccordError as error:
        print(error)
"""


def test_an_address_where_no_cluster_is(here: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'accord-fl[ray]'")
    addresses = {
        "127.0.0.1:9": "no Ray cluster answers at 127.0.0.1:9: Connection refused (start one with `ray start --head`)",
        "nowhere.invalid:6379": "no Ray cluster answers at nowhere.invalid:6379: ",
        "ray://127.0.0.1:10001": "accord joins a cluster on one of its machines, got ray://127.0.0.1:10001",
        "6379": "a Ray address is HOST:PORT, such as 10.0.0.1:6379, or auto, got '6379'",
        "here:99999": "a Ray address is HOST:PORT, such as 10.0.0.1:6379, or auto, got 'here:99999'",
        "": "a Ray address is HOST:PORT, such as 10.0.0.1:6379, or auto, got ''",
    }
    assert addresses["127.0.0.1:9"] in refused(here, "--ray", "127.0.0.1:9")
    done = subprocess.run([sys.executable, "-c", KNOCK, *addresses], capture_output=True, text=True, timeout=60)
    said = done.stdout.splitlines()
    assert len(said) == len(addresses), done
    assert all(line.startswith(expected) for line, expected in zip(said, addresses.values(), strict=True)), said


def test_a_port_where_something_else_listens_and_one_that_is_mute(here: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'accord-fl[ray]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"no Ray cluster answers at 127.0.0.1:{port}: timed out" in refused(here, "--ray", f"127.0.0.1:{port}")

        def chat() -> None:
            server.accept()  # from before
            line, _ = server.accept()
            line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            time.sleep(1)

        threading.Thread(target=chat, daemon=True).start()
        assert f"no Ray cluster answers at 127.0.0.1:{port}: something else listens there" in refused(
            here, "run.engine=ray", RAY_ADDRESS=f"127.0.0.1:{port}"
        )


def test_without_ray_the_sentence_says_what_to_install(here: Path) -> None:
    (here / "ray.py").write_text("raise ImportError('no module named ray')")  # stands before any that is installed
    for words in (["--ray", "auto"], ["run.engine=ray"]):
        says = refused(here, *words, PYTHONPATH=str(here))
        assert "engine ray needs Ray 2.55 or newer (no module named ray): pip install 'accord-fl[ray]'" in says
