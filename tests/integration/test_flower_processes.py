"""The example as a deployment of real processes: a SuperLink with TLS and three SuperNodes with registered keys, on
loopback."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")
pytest.importorskip("sklearn", reason="the example's digits are scikit-learn's")

from safetensors.torch import load_file

import accord
from accord.deploy.flower.keys import make_certificates, make_node_key
from accord.deploy.flower.loopback import Loopback
from accord.deploy.flower.machine import descendants
from conftest import sentence

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"


def wait_for(what: Callable[[], Any], seconds: float = 600.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.1)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs. One that ended and that nobody asked about (a zombie) does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return bool(state) and not state.startswith("Z")


def all_gone(pids: Iterable[int]) -> None:
    """No process is left behind. A kill is carried out a moment after it was sent."""
    wait_for(lambda: not any(alive(pid) for pid in pids), 5.0)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in folder.glob("*/metrics.jsonl") for line in file.read_text().splitlines()]


def simulated(algorithm: Any, rounds: int, evaluate_every: int) -> accord.Run:
    task = example()
    options = {"rounds": rounds, "sample": 3, "lr": 0.05, "evaluate_every": evaluate_every, "engine": "sequential"}
    return accord.fit(task.model(), task.everybody(), algorithm, **options)


def example() -> Any:
    """The example's model and data."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        from digits import task
    finally:
        sys.path.remove(str(EXAMPLE))
    return task


def same_rounds(folder: Path, expected: accord.Run) -> None:
    """The deployed run's record against the simulated run: every figure of every round, and the model to the last
    bit."""
    rows = rows_of(folder)
    assert [row["round"] for row in rows] == [row["round"] for row in expected.rows]
    for mine, theirs in zip(rows, expected.rows, strict=True):
        assert mine["bytes_down"] > 0 and mine["bytes_up"] > 0
        for key in set(theirs) - {"evaluation"}:
            assert mine[key] == theirs[key], key
        for split in ("train", "heldout", "unseen") if "evaluation" in theirs else ():
            here, there = (row["evaluation"]["splits"][split] for row in (mine, theirs))
            assert (
                here["accuracy"]["by_sample"] == there["accuracy"]["by_sample"] and here["samples"] == there["samples"]
            )
            assert here["loss"]["by_client"] == pytest.approx(there["loss"]["by_client"], rel=1e-5)
    same_model(folder, expected)


def same_model(folder: Path, expected: accord.Run) -> None:
    """To the last bit."""
    (model,) = folder.glob("*/model.safetensors")
    for name, value in expected.model().state_dict().items():
        assert torch.equal(load_file(model)[name], value), name


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("deployment")
    with Loopback(EXAMPLE, nodes=3, folder=folder) as running:
        yield running
        family = [process.pid for process in running.processes.values()]
        family += list(descendants(family))
    all_gone(family)


@pytest.mark.slow
def test_the_deployed_run_is_the_simulated_one(federation: Loopback, tmp_path: Path) -> None:
    """Three of six clients a round, on nodes with ids that Flower drew; meanwhile two nodes knock that must not come
    in."""
    pids = {name: process.pid for name, process in federation.processes.items()}
    assert len({os.getpid(), *pids.values()}) == 5 and len({federation.port, *federation.node_ports.values()}) == 4
    keys = ",".join(map(str, federation.public_keys.values()))  # names are bound to them
    settings = {"rounds": 2, "algorithm": "scaffold", "evaluate-every": 2, "folder": str(tmp_path), "keys": keys}
    number = federation.submit(settings)
    stranger, _ = make_node_key(federation.folder / "keys", "stranger")
    other, *_ = make_certificates(federation.folder / "others")
    federation.start_node(7, key=stranger)
    federation.start_node(8, key=federation.folder / "keys" / "node-0", authority=other)
    federation.wait(number, 900.0)
    assert all(alive(pid) for pid in pids.values())  # the same processes from the first round to the last
    for name, port in {"superlink": federation.port, "node-0": federation.node_ports[0]}.items():
        with socket.create_connection(("127.0.0.1", port), 2.0):
            assert federation.processes[name].poll() is None
    same_rounds(tmp_path, simulated(accord.scaffold(mask=accord.gma(0.4)), 2, 2))
    unknown, wrong = (federation._log(f"node-{n}").read_text() for n in (7, 8))
    assert "Received successfully" not in unknown + wrong and "SuperNode ID" not in unknown + wrong
    assert "certificate verify failed" in wrong.lower() or "certificate_verify_failed" in wrong.lower()
    assert federation.processes["node-7"].poll() not in (None, 0)  # refused for good
    orphans = list(descendants([federation.processes["node-7"].pid]))  # what it had started, and nobody ended
    for name in ("node-7", "node-8"):
        federation.kill(name)
    all_gone(orphans)


BAD_CLIENT = """
import json
from accord.deploy.flower import client_app
from digits.task import everybody, mine, model
from flwr.app import Array, RecordDict
from flwr.clientapp import ClientApp

honest = client_app(model(), mine)
app = ClientApp()
app.query()(honest)
app.evaluate()(honest)
app.train("again")(honest)


@app.train()
def train(message, context):
    reply = honest(message, context)
    record = reply.content.array_records["record"]
    delta = record["average.delta"].numpy()
    kind = everybody().clients.index(json.loads(message.content["accord"]["json"])["client"])
    if kind == 0:
        record["average.delta"] = Array(delta * float("nan"))
    if kind == 1:
        record["average.delta"] = Array(delta[:-1])
    if kind == 2:
        reply.content = RecordDict()
    return reply
"""


@pytest.mark.slow
def test_bad_clients_are_left_out_and_the_others_are_asked_twice(federation: Loopback, tmp_path: Path) -> None:
    """One sends NaN, one a wrong shape, one nothing. The round is that of the others alone, here with corrective
    weights, for which clients keep their gradient from one message to the next: two processes."""
    algorithm = 'ALGORITHMS[chosen["algorithm"]](mask=mask)'
    app = shutil.copytree(EXAMPLE, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    (app / "digits" / "client.py").write_text(BAD_CLIENT)
    server = (app / "digits" / "server.py").read_text()
    assert server.count(algorithm) == 1
    (app / "digits" / "server.py").write_text(
        server.replace(algorithm, "accord.fedavg(mask=mask, average=accord.corrective(0.2, passes=2))")
    )
    good, federation.app = federation.app, app
    try:
        federation.run({"rounds": 1, "sample": 6, "folder": str(tmp_path / "runs")}, 900.0)
    finally:
        federation.app = good
    (row,) = rows_of(tmp_path / "runs")
    task = example()
    fed = task.everybody()
    assert row["accepted"] == 3 and set(row["left_out"]) == set(fed.clients[:3])
    for client, said in zip(fed.clients, ("NaN in the update", "wrong shape or type", "cannot be read"), strict=False):
        assert said in row["left_out"][client]
    others = replace(fed, train={client: rows for client, rows in fed.train.items() if client not in row["left_out"]})
    corrected = accord.fedavg(mask=accord.gma(0.4), average=accord.corrective(0.2, passes=2))
    expected = accord.fit(task.model(), others, corrected, rounds=1, lr=0.05, engine="sequential")
    same_model(tmp_path / "runs", expected)


HOSTILE_CLIENT = """
import json
from accord.deploy.flower import client_app
from digits import tampered
from digits.task import everybody, mine, model
from flwr.clientapp import ClientApp

honest = client_app(model(), mine)
app = ClientApp()
TRAIN = [
    tampered.arrays("record", "average.delta")["array: terabytes"],
    tampered.WORDS["words: 100,000 lists deep"],
]
OTHERS = tampered.within(lambda told: told["groups"].__setitem__(0, ["train", everybody().clients[0]]))


def hostile(context):
    return int(context.node_config["partition-id"]) == 1


@app.query()
def hello(message, context):
    return honest(message, context)


@app.train()
def train(message, context):
    reply = honest(message, context)
    if not hostile(context):
        return reply
    return TRAIN[mine(context).clients.index(json.loads(message.content["accord"]["json"])["client"])](reply)


@app.evaluate()
def evaluate(message, context):
    reply = honest(message, context)
    return OTHERS(reply) if hostile(context) else reply
"""


@pytest.mark.long
def test_a_hostile_node_is_excluded_after_three_replies_and_harms_nobody(federation: Loopback, tmp_path: Path) -> None:
    """In the first round one of its clients announces terabytes, the other nests 100,000 lists, and then it evaluates a
    client that is not its own. The second round asks it nothing."""
    app = shutil.copytree(EXAMPLE, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    (app / "digits" / "client.py").write_text(HOSTILE_CLIENT)
    shutil.copy(Path(__file__).parent / "tampered.py", app / "digits" / "tampered.py")
    log = federation._log("node-1")
    before = log.read_text().count("Receiving: ")
    good, federation.app = federation.app, app
    heard: list[str] = []
    try:
        federation.run(
            {"rounds": 2, "sample": 6, "timeout": 300.0, "folder": str(tmp_path / "runs")}, 900.0, heard.append
        )
    finally:
        federation.app = good
    first, second = rows_of(tmp_path / "runs")
    task = example()
    fed = task.everybody()
    one, other = mine = fed.clients[1::3]
    assert "wrong shape or type of average.delta: (1099511627776,) float32" in first["left_out"][one]
    assert "recursion limit exceeded" in first["left_out"][other]
    ((who, why),) = first["bad_replies"].items()
    assert one in who and other in who and who.endswith(", evaluation")
    assert f"it evaluates the train data of client {fed.clients[0]}, whom it does not hold" in why
    assert [who] == [f"{node}, evaluation" for node in first["excluded"]] and second["excluded"] == first["excluded"]
    assert second["left_out"] == dict.fromkeys(mine, "its node is excluded: 3 of its replies could not be read")
    assert log.read_text().count("Receiving: ") - before == 4  # hello, two tasks and an evaluation
    assert "is excluded for the rest of the run: 3 of its replies could not be read" in "".join(heard)
    assert second["evaluation"]["splits"]["heldout"]["clients"] == 4
    others = replace(fed, train={client: rows for client, rows in fed.train.items() if client not in mine})
    expected = accord.fit(
        task.model(), others, accord.fedavg(mask=accord.gma(0.4)), rounds=2, lr=0.05, engine="sequential"
    )
    same_model(tmp_path / "runs", expected)


TABLES = """
import accord
from accord.deploy.flower import Shaped, Sums
from accord.privacy.secure_sum import SecureSum

OWNERS = ["east", "north", "south"]
SUMS = Sums(SecureSum(clients=3, bound=4.0), masked=True)
ALGORITHM = accord.fedavg(weighting="uniform")


def mine(context):
    owner = OWNERS[int(context.node_config["partition-id"])]
    return accord.data.table(source=f"FOLDER/{owner}.csv", client="hospital", label="diagnosis", heldout=0.2)


def make(agreed):
    return accord.models.logistic(features=agreed.shape[0], classes=agreed.outputs, seed=3)


MODEL = Shaped(make)
"""
TABLES_CLIENT = """
from accord.deploy.flower import client_app
from digits.task import ALGORITHM, MODEL, SUMS, mine

app = client_app(MODEL, mine, sums=SUMS, algorithm=ALGORITHM, secret=5)
"""
TABLES_SERVER = """
from accord.deploy.flower import Strategy
from accord.rules.local import Training
from accord.training.plan import Plan
from digits.task import ALGORITHM, MODEL, OWNERS, SUMS
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    plan, chosen = Plan(rounds=context.run_config["rounds"]), {"training": Training(lr=0.05), "sums": SUMS}
    Strategy(ALGORITHM, MODEL, clients=OWNERS, plan=plan, folder=context.run_config["folder"], **chosen).start(grid)
"""


@pytest.mark.long
def test_owners_of_tables_share_one_preparation(federation: Loopback, tmp_path: Path) -> None:
    """Every node reads its own file and nothing else, and statistics go under masks. The preparation is that of a
    simulation on the joined table, and predictions with the server's folder are that run's."""
    header, *lines = (EXAMPLE.parent / "hospitals" / "patients.csv").read_text().splitlines()
    owners = {"east", "north", "south"}
    for owner in owners:
        own = [line for line in lines if line.startswith(f"{owner},")]
        (tmp_path / f"{owner}.csv").write_text("\n".join([header, *own, ""]))
    joined = tmp_path / "joined.csv"
    joined.write_text("\n".join([header, *(line for line in lines if line.split(",")[0] in owners), ""]))
    app = shutil.copytree(EXAMPLE, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    (app / "digits" / "task.py").write_text(TABLES.replace("FOLDER", str(tmp_path)))
    (app / "digits" / "client.py").write_text(TABLES_CLIENT)
    (app / "digits" / "server.py").write_text(TABLES_SERVER)
    good, federation.app = federation.app, app
    try:
        federation.run({"rounds": 1, "folder": str(tmp_path / "runs")}, 300.0)
    finally:
        federation.app = good
    run = accord.load(tmp_path / "runs")
    fed = accord.data.table(source=joined, client="hospital", label="diagnosis", heldout=0.2)
    start = accord.models.logistic(features=fed.shape[0], classes=fed.outputs, seed=3)
    expected = accord.fit(start, fed, accord.fedavg(weighting="uniform"), rounds=1, lr=0.05, engine="sequential")
    assert run.preparation is not None and run.preparation.columns == expected.preparation.columns
    assert run.preparation.scaling.mean == pytest.approx(fed.prepare.mean, rel=1e-13)
    assert run.preparation.scaling.std == pytest.approx(fed.prepare.std, rel=1e-13)
    assert torch.allclose(run.last.vector, expected.last.vector, atol=1e-6)  # secure sums are rounded to their step
    assert run.predict(joined).labels == expected.predict(joined).labels
    assert "sent in clear by every node: the levels of column sex" in federation._log("run").read_text()


@pytest.mark.slow
def test_a_run_that_fails_says_why_in_one_sentence(federation: Loopback) -> None:
    heard: list[str] = []
    with sentence("algorithm must be one of fedavg, ", "got 'fedfoo'"):
        federation.run({"algorithm": "fedfoo"}, 60.0, heard.append)
    assert "Traceback" in "".join(heard)  # the log has it all


@pytest.mark.slow
def test_a_killed_superlink_is_resumed_from_the_records(federation: Loopback, tmp_path: Path) -> None:
    """SCAFFOLD, so that clients have something to remember; another SuperLink, at another port, goes on where the
    records are."""
    settings = {"rounds": 2, "algorithm": "scaffold", "evaluate-every": 2, "folder": str(tmp_path)}
    federation.submit(settings)
    wait_for(lambda: list(tmp_path.glob("*/state.json")))
    for name in list(federation.processes):
        federation.kill(name)
    reached = json.loads(next(tmp_path.glob("*/state.json")).read_text())["round"]
    assert reached == 1
    federation.port = 0
    federation.start_superlink()
    for number in range(3):
        federation.register(number)
        federation.start_node(number)
    federation.run(settings, 200.0)
    same_rounds(tmp_path, simulated(accord.scaffold(mask=accord.gma(0.4)), 2, 2))


@pytest.mark.slow
def test_a_node_killed_in_a_round_does_not_stop_the_run(federation: Loopback, tmp_path: Path) -> None:
    """It is waited for once; the next round and the evaluation go on without it. Flower refuses a node with the same
    key for a minute from here, so no test that needs all three may follow."""
    log = federation._log("node-2")
    before = log.read_text().count("Receiving: train")
    number = federation.submit({"rounds": 2, "evaluate-every": 2, "timeout": 60.0, "folder": str(tmp_path)})
    wait_for(lambda: log.read_text().count("Receiving: train") > before)
    federation.kill("node-2")
    federation.wait(number, 400.0)
    first, second = rows_of(tmp_path)
    assert (first["accepted"], first["left_out"]) == (2, {"client-004": "no reply within 60 s"})
    assert (second["accepted"], second["left_out"]) == (3, {})  # its cohort lives on the other two nodes
    assert second["evaluation"]["splits"]["heldout"]["clients"] == 4


# ------------------------------------------------------------------------------------ one sentence, no orphan


def test_what_cannot_be_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with sentence(f"port {port} of 127.0.0.1 cannot be used"), Loopback(EXAMPLE, folder=tmp_path, port=port):
            pass
    authority, certificate, _ = make_certificates(tmp_path / "made")
    with (
        sentence("the certificate or key", "cannot be read"),
        Loopback(EXAMPLE, folder=tmp_path, certificates=(authority, certificate, tmp_path / "gone.key")),
    ):
        pass
    (tmp_path / "rubbish.crt").write_text("no certificate")
    with (
        sentence("rubbish.crt is no certificate of an authority"),
        Loopback(
            EXAMPLE,
            folder=tmp_path,
            certificates=(tmp_path / "rubbish.crt", certificate, tmp_path / "made" / "server.key"),
        ),
    ):
        pass
    with sentence("app must be the folder of a Flower app"):
        Loopback(tmp_path, folder=tmp_path)
    with sentence("nodes must be a whole number of at least 1, got 0"):
        Loopback(EXAMPLE, 0, folder=tmp_path)


def test_a_superlink_that_cannot_serve_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its key is another certificate's: it ends by itself, the sentence says so, and nobody is left."""
    authority, certificate, _ = make_certificates(tmp_path / "made")
    *_, key = make_certificates(tmp_path / "others")
    deployment = Loopback(EXAMPLE, folder=tmp_path / "deployment", certificates=(authority, certificate, key))
    with sentence("the SuperLink"), deployment:
        pass
    assert not deployment.processes


def test_an_address_that_does_not_answer(tmp_path: Path) -> None:
    deployment = Loopback(EXAMPLE, folder=tmp_path)
    (tmp_path / "flwr").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "loopback"\n[superlink.loopback]\naddress = "{address}"\ninsecure = true\n'
    )
    with sentence("flwr run failed", "Connection to the SuperLink is unavailable"):
        deployment.submit()


@pytest.mark.slow
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM])
def test_the_script_stops_everything_when_it_is_stopped(tmp_path: Path, way: signal.Signals) -> None:
    script = subprocess.Popen(
        [sys.executable, str(EXAMPLE / "deploy.py"), "--folder", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # which shells ignore for what they start in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        wait_for(lambda: (tmp_path / "logs" / "node-1.log").exists())
        family = list(descendants([script.pid]))
        assert len(family) >= 3
        script.send_signal(way)
        _, said = script.communicate(timeout=300.0)
    finally:
        script.terminate()
    assert script.returncode == 130 and b"Traceback" not in said
    all_gone(family)
