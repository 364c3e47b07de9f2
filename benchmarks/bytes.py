"""Bytes that a round moves between nodes: accord's engine `ray` and Flower's simulation, the same work on the same
cluster.

    python benchmarks/bytes.py [--clients 16,48] [--nodes 2] [--rounds 6]

It needs an environment with Flower and its simulation, which brings Ray along: `pip install '.[flower]'`. The cluster
is several Ray nodes on this machine, and what they send to each other goes over its loopback device, where Linux counts
it. A round's bytes are those from the end of the round before it to its own end; the first round, in which workers
start and data travels, and the last, which has an evaluation, are left out, and of the others the least counts, since
whatever else uses the network is counted too.
"""

import argparse
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent)  # where workers find `contestants`
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import ray
import torch
from contestants.wide import LR, accords, federation, model, plain
from flwr.app import ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from ray.cluster_utils import Cluster

import accord
from accord.core.layout import Layout
from accord.deploy.flower import GMA, Strategy
from accord.engines.ray import connect
from accord.rules.local import Training
from accord.training.loop import Event
from accord.training.plan import Plan

STORE = 400 << 20  # bytes of shared memory a node
ALGORITHM = accord.fedavg(mask=accord.gma(0.4))
Counted = tuple[list[int], torch.Tensor | None]  # the counter after every round, and the model at the end


def loopback() -> int:
    """Bytes that went from one process of this machine to another over the network."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))


def engine(clients: int, rounds: int) -> Counted:
    """accord's engine: a node gets the model once and sends one record on."""
    seen: list[int] = []

    def count(event: Event) -> None:
        seen.append(loopback())

    options: dict[str, Any] = {
        "batch": None,
        "momentum": 0.0,
        "lr": LR,
        "evaluate_every": rounds,
        "engine": "ray",
        "device": "cpu",
        "verbose": False,
    }
    run = accord.fit(model(), federation(clients), ALGORITHM, rounds=rounds, hooks=[count], **options)
    return seen, run.last.vector


def strategy(clients: int, rounds: int) -> Counted:
    """The same run as accord's strategy for Flower, in Flower's simulation."""
    seen: list[int] = []
    made: list[torch.Tensor] = []

    def look(number: int, arrays: ArrayRecord) -> None:
        seen.append(loopback())

    def main(grid: Grid, context: Context) -> None:
        training, plan = Training(batch=None, momentum=0.0, lr=LR), Plan(rounds=rounds, evaluate_every=rounds)
        asked = Strategy(ALGORITHM, model(), clients=clients, training=training, plan=plan)
        asked.start(grid, evaluate_fn=look)
        assert asked.run is not None
        made.append(asked.run.last.vector)

    simulate(main, accords, clients)
    return seen, made[0]


def flowers(clients: int, rounds: int) -> Counted:
    """Flower's own FedAvg and a client as its tutorials write it, with accord's mask around."""
    seen: list[int] = []

    def look(number: int, arrays: ArrayRecord) -> None:
        if number:  # before the first round it is asked too
            seen.append(loopback())

    def main(grid: Grid, context: Context) -> None:
        within = FedAvg(fraction_evaluate=0.0, min_available_nodes=clients, min_train_nodes=clients)
        GMA(within, tau=0.4).start(grid, ArrayRecord(model().state_dict()), num_rounds=rounds, evaluate_fn=look)

    simulate(main, plain, clients)
    return seen, None


def simulate(main: Callable[[Grid, Context], None], client: ClientApp, clients: int) -> None:
    app = ServerApp()
    app.main()(main)
    run_simulation(app, client, clients, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})


def least(seen: list[int], rounds: int) -> int:
    if len(seen) != rounds:
        raise SystemExit(f"{len(seen)} of {rounds} rounds were counted")
    return min(after - before for before, after in pairwise(seen[:-1]))


def measured(address: str, clients: int, rounds: int) -> list[float]:
    """Bytes of a round in units of the model, for each of the three."""
    found, models = [], []
    for contestant in (engine, strategy, flowers):
        connect(address)
        seen, end = contestant(clients, rounds)
        ray.shutdown()
        found.append(least(seen, rounds) / (4 * Layout.of(model()).size))
        models.append(end)
    assert models[0] is not None and models[1] is not None
    if not torch.equal(models[0], models[1]):
        raise SystemExit(
            f"the two runs of accord's end {float((models[0] - models[1]).abs().max()):g} apart: they are not the same"
            " work"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="16,48", help="clients of a round, one table row each")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6, help="of each measurement, at least 3")
    asked = parser.parse_args()
    counts = [int(word) for word in asked.clients.split(",")]
    if min(counts) < 1 or asked.nodes < 1 or asked.rounds < 3:
        parser.error("clients and nodes must be at least 1, rounds at least 3")
    torch.set_num_threads(1)  # as workers have it
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(asked.nodes):
            cluster.add_node(num_cpus=1, object_store_memory=STORE)
        rows = [(clients, measured(cluster.address, clients, asked.rounds)) for clients in counts]
    finally:
        cluster.shutdown()
    print(
        f"a model of {Layout.of(model()).size:,} parameters, {asked.nodes} nodes; bytes of a round in units of the"
        " model"
    )
    print("clients  ray engine  nodes x 3  Flower, accord's strategy  Flower, its FedAvg  clients x 2")
    for clients, (ours, ported, theirs) in rows:
        print(f"{clients:7d}  {ours:10.2f}  {3 * asked.nodes:9d}  {ported:25.2f}  {theirs:18.2f}  {2 * clients:11d}")


if __name__ == "__main__":
    main()
