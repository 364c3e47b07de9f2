"""A secure sum between real processes, three of ten of which are killed at one of the four stages: the round completes
with the other seven, and its model is that of their open sums to the last bit; with four killed it is skipped. First
processes at the other end of a pipe, then a SuperLink with TLS and ten SuperNodes.

    python -m pytest tests/integration/test_flower_secagg_processes.py -s        # prints the table of drop-outs
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
import torch

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'accord-fl[flower]'")

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from process_grid import ProcessGrid
from safetensors.torch import load_file
from test_flower import finished, grid_of, state  # noqa: F401
from test_flower_processes import EXAMPLE, all_gone, rows_of, wait_for
from warm_deployment import WarmLoopback

import accord
from accord.data import Federation
from accord.deploy.flower import Strategy, Sums, client_app, owned
from accord.deploy.flower.keys import make_node_key
from accord.deploy.flower.loopback import Loopback
from accord.deploy.flower.machine import descendants
from accord.deploy.flower.secagg_messages import KEYS, MASKED, SHARES, UNMASK
from accord.privacy.secure_sum import SecureSum
from accord.rules.local import Training
from accord.training.plan import Plan

ALGORITHM = accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
SECURE = SecureSum(clients=10, bound=20.0)
NODES, TIMEOUT = 10, 500.0  # seconds: of a node that was killed the SuperLink knows after a minute

TASK = """
import accord
import torch
from accord.deploy.flower import Sums, owned
from accord.privacy.secure_sum import SecureSum

algorithm = accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
sums = Sums(SecureSum(clients=10, bound=20.0), protocol="secagg+")
generator = torch.Generator().manual_seed(0)
arrays = {}
for number in range(10):
    y = torch.randint(0, 4, (30,), generator=generator)
    arrays[f"c{number:02d}"] = (torch.randn(30, 6, generator=generator) + y[:, None], y)
fed = accord.data.from_arrays(arrays, heldout=0.2, seed=0)


def mine(context):
    return owned(fed, int(context.node_config["partition-id"]), 10)


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
"""

SERVER = """
from accord.deploy.flower import Strategy
from accord.rules.local import Training
from accord.training.plan import Plan
from digits.task import algorithm, fed, model, sums
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    chosen = context.run_config
    plan = Plan(rounds=1, seed=chosen["rounds"])
    training = Training(lr=0.05, epochs=1)
    Strategy(algorithm, model(), clients=fed.clients, training=training, plan=plan, sums=sums, folder=chosen["folder"],
             timeout=chosen["timeout"], wait=chosen["timeout"]).start(grid)
"""

CLIENT = """
import os
import time
from pathlib import Path

from accord.deploy.flower import client_app
from digits.task import algorithm, mine, model, sums
from flwr.clientapp import ClientApp

honest = client_app(model(), mine, sums=sums, algorithm=algorithm)
app = ClientApp()
app.query()(honest)
app.evaluate()(honest)


def hangs(stage):
    @app.train(stage)
    def answer(message, context):
        mark = Path("{marks}") / f"{{stage}}-{{context.node_config['partition-id']}}"
        if mark.exists():  # it was asked, and will be killed before it answers
            mark.with_suffix(".part").write_text(str(os.getpid()))
            mark.with_suffix(".part").rename(mark.with_suffix(".there"))
            time.sleep(3600)
        return honest(message, context)


for stage in ("keys", "shares", "masked", "unmask"):
    hangs(stage)
"""


def task() -> dict[str, Any]:
    """The app's model and data, as the test sees them."""
    held: dict[str, Any] = {}
    exec(TASK, held)
    return held


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("deployment")
    app = shutil.copytree(EXAMPLE, folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in {"task": TASK, "server": SERVER, "client": CLIENT.format(marks=marks)}.items():
        (app / "digits" / f"{name}.py").write_text(text)
    with WarmLoopback(app, nodes=NODES, folder=folder) as running:
        yield running
        family = [process.pid for process in running.processes.values()]
        family += list(descendants(family))
    all_gone(family)


def open_sums(fed: Federation, without: set[str], seed: int) -> accord.Run:
    """The same round in one process, of those who remained."""
    others = replace(fed, train={client: rows for client, rows in fed.train.items() if client not in without})
    model, sums = task()["model"](), Sums(SECURE)
    plan, training = Plan(rounds=1, seed=seed), Training(lr=0.05, epochs=1)
    strategy = Strategy(ALGORITHM, model, clients=others.clients, training=training, plan=plan, sums=sums)
    return finished(strategy, grid_of(others, NODES, model, sums=sums, algorithm=ALGORITHM))


@pytest.mark.parametrize("killed", [3, 4])
@pytest.mark.parametrize("stage", [KEYS, SHARES, MASKED, UNMASK])
def test_processes_killed_at_a_stage(stage: str, killed: int) -> None:
    fed, sums = task()["fed"], Sums(SECURE, protocol="secagg+")
    dying = range(NODES - killed, NODES)
    apps = {
        number: (client_app(task()["model"](), owned(fed, number, NODES), sums=sums, algorithm=ALGORITHM), {})
        for number in range(NODES)
    }
    grid = ProcessGrid(apps, dict.fromkeys(dying, stage))
    try:
        strategy = Strategy(
            ALGORITHM,
            task()["model"](),
            clients=fed.clients,
            training=Training(lr=0.05, epochs=1),
            plan=Plan(rounds=1),
            sums=sums,
            timeout=10.0,
        )
        with nullcontext() if killed == 3 else pytest.warns(UserWarning, match="round 1 was skipped"):
            found = finished(strategy, grid)
        assert grid.killed == set(dying)
        assert {number for number, process in grid.processes.items() if process.exitcode == -SIGKILL} == set(dying)
    finally:
        grid.close()
    check_round(fed, found.rows[0], found.model().state_dict(), stage, {fed.clients[node] for node in dying}, 0)


def check_round(
    fed: Federation, row: dict[str, Any], model: dict[str, torch.Tensor], stage: str, gone: set[str], seed: int
) -> None:
    """The round's row, and its model to the last bit."""
    print(f"\n{len(gone)} of 10 killed at {stage}: {row['accepted']} records added, left out: {row['left_out']}")
    if len(gone) == 4:
        assert row["accepted"] == 0 and row["skipped"]
        assert "6 of 10 clients" in row["left_out"][fed.clients[0]] and "7 must" in row["left_out"][fed.clients[0]]
        expected = task()["model"]().state_dict()
    else:
        out = set() if stage == UNMASK else gone  # who had sent a record counts
        assert set(row["left_out"]) == out and row["accepted"] == 10 - len(out)
        assert set(row.get("silent_at_unmask", {})) == (gone if stage == UNMASK else set())
        expected = open_sums(fed, out, seed).model().state_dict()
    for name, value in expected.items():
        assert torch.equal(model[name], value), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "stage", "killed"),
    [(1, KEYS, 3), (2, SHARES, 3), (3, MASKED, 3), (4, UNMASK, 3), (5, MASKED, 4)],
    ids=["three at keys", "three at shares", "three at masked", "three at unmask", "four at masked"],
)
def test_nodes_killed_at_a_stage(
    federation: Loopback, marks: Path, tmp_path: Path, number: int, stage: str, killed: int
) -> None:
    dying = range(NODES - killed, NODES)
    for node in range(NODES):
        if f"node-{node}" not in federation.processes:  # killed by the test before; its key is refused for a minute
            key, public = make_node_key(federation.folder / "keys", f"node-{node}-{number}")
            federation._flwr_json("supernode", "register", str(public), "loopback")
            federation.start_node(node, key=key)
    for node in dying:
        (marks / f"{stage}-{node}").touch()
    run = federation.submit({"rounds": number, "folder": str(tmp_path), "timeout": TIMEOUT})
    wait_for(lambda: all((marks / f"{stage}-{node}.there").exists() for node in dying), 900.0)
    for node in dying:
        federation.kill(f"node-{node}")
        with suppress(ProcessLookupError):  # it may have gone with its node
            os.kill(int((marks / f"{stage}-{node}.there").read_text()), SIGKILL)
        for mark in marks.glob(f"{stage}-{node}*"):
            mark.unlink()
    federation.wait(run, 1200.0)
    (row,) = rows_of(tmp_path)
    fed = task()["fed"]
    (model,) = tmp_path.glob("*/model.safetensors")
    check_round(fed, row, load_file(model), stage, {fed.clients[node] for node in dying}, number)
