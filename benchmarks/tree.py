"""What adding up a very large federation costs: rates of this machine, and the aggregation of one round at full size.

    python benchmarks/tree.py [--parameters 100000000] [--clients 1000] [--nodes 4] [--rates] [--ray]

A round is 16 shards. Every node adds its clients' reports into a record, and a record goes from node to node, each
adding its own, so that the sum has the bits of one machine's. Here the nodes are one after another in one process and
the records travel over a TCP connection of this machine, so that the largest of federations fits into a few GB. Every
client's update is a known pattern of whole numbers: the sums and votes must come out exactly, in every coordinate.
"""

import argparse
import platform
import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

import accord
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.reports import Reports
from accord.core.round import Round
from accord.engines.contract import SHARDS
from accord.rules.algorithm import Algorithm, Memory

GB = 1e9
BLOCK = 1 << 16  # coordinates at a time: so much of a shard's updates stays in a core's cache


def seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Median time of a call, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


# -------------------------------------------------------------------------------------------------- the rates


class Wire:
    """A TCP connection of this process with itself, over which a tensor is sent and received."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.near = socket.create_connection(server.getsockname())
            self.far, _ = server.accept()

    def send(self, value: Tensor) -> Tensor:
        """The same tensor, as it comes out at the other end."""
        here, there = value.numpy().data.cast("B"), torch.empty_like(value)
        sender = threading.Thread(target=self.near.sendall, args=(here,))
        sender.start()
        left = there.numpy().data.cast("B")
        while left:
            left = left[self.far.recv_into(left) :]
        sender.join()
        return there


def rates(parameters: int) -> None:
    """Bytes of a vector of float32 per second, for what a round is made of."""
    vector, other, wire = torch.randn(parameters), torch.randn(parameters), Wire()
    size = vector.nbytes / GB
    algorithm, layout = accord.fedavg(mask=accord.gma(0.4)), Layout.flat(parameters)
    memory = algorithm.init(layout, 1, vector)
    record = algorithm.lift(_report(vector), memory)
    measured = {
        "add a vector to a vector": seconds(lambda: vector.add_(other)),
        "lift a client's report (sum and votes)": seconds(lambda: algorithm.lift(_report(other), memory)),
        "add a record to a record (sum and votes)": seconds(lambda: record.add_(record)),
        "copy (what a parcel does once)": seconds(lambda: vector.copy_(other)),
        "send and receive over loopback TCP": seconds(lambda: wire.send(vector)),
    }
    for what, took in measured.items():
        print(f"  {what:42s} {took:7.3f} s   {size / took:6.2f} GB of vector a second")


def ray_rates(parameters: int) -> None:
    """The same for a real cluster of two nodes on this machine: a vector put down on one and opened on the other."""
    import ray
    from ray.cluster_utils import Cluster

    from accord.engines.ray.payload import Parcel

    store = max(200 << 20, 5 * 4 * parameters)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": store, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1, object_store_memory=store)
    ray.init(address=cluster.address, log_to_driver=False)

    @ray.remote
    def opened(parcel: Parcel) -> float:
        return float(parcel.open()[0])

    vector = torch.randn(parameters)
    ray.get(opened.remote(Parcel.of(vector[:1])))
    size = vector.nbytes / GB
    put = seconds(lambda: ray.put(Parcel.of(vector)), 3)
    moved = seconds(lambda: ray.get(opened.remote(ray.put(Parcel.of(vector)))), 3) - put
    print(f"  {'Ray: pack and put into shared memory':42s} {put:7.3f} s   {size / put:6.2f} GB of vector a second")
    print(f"  {'Ray: move to another node and open':42s} {moved:7.3f} s   {size / moved:6.2f} GB of vector a second")
    ray.shutdown()
    cluster.shutdown()


def _report(delta: Tensor) -> Reports:
    one = torch.ones(1, 1)
    return Reports(delta[None], one, one, one[:, :0])


# -------------------------------------------------------------------------------------------------- the round


def pattern(parameters: int) -> Tensor:
    return torch.tensor([1.0, 2.0, -1.0]).repeat(-(-parameters // 3))[:parameters].contiguous()


def reports(base: Tensor, clients: range) -> Reports:
    """Client n's update is n % 5 - 1 times the pattern of 1, 2 and -1, and its weight 1 + n % 3: sums are whole numbers
    that float32 holds. Of every five clients three vote with the pattern, one against it, one not at all: a net share
    of 0.4, which gma(0.4) just lets pass."""
    factors = torch.tensor([[n % 5 - 1.0] for n in clients])
    weights = torch.tensor([[1.0 + n % 3] for n in clients])
    return Reports(base * factors, weights, torch.ones_like(weights), weights[:, :0])


def summed(algorithm: Algorithm, memory: Memory, base: Tensor, shard: range) -> Record:
    """A shard's record, some coordinates at a time: 62 updates of 400 MB fit in no memory, and need not."""
    delta, votes = torch.empty_like(base), torch.empty_like(base)
    for start in range(0, len(base), BLOCK):
        part = slice(start, start + BLOCK)
        record = algorithm.lift(reports(base[part], shard), memory)
        delta[part], votes[part] = record.part("average")["delta"], record.part("mask")["votes"]
    average = Record(**dict(record.part("average")) | {"delta": Field(delta, kind="update")})
    mask = Record(**dict(record.part("mask")) | {"votes": Field(votes, kind="votes")})
    return Record(**dict(record) | {"average": average, "mask": mask})


def node(algorithm: Algorithm, memory: Memory, base: Tensor, shards: list[range], before: Record | None) -> Record:
    """What one node makes of its shards: their records, added in order to the sum of the nodes before."""
    total = before
    for shard in shards:
        record = summed(algorithm, memory, base, shard)
        total = record if total is None else total.add_(record)
    assert total is not None
    return total


def carried(record: Record, wire: Wire) -> tuple[Record, int]:
    """The record as the next node gets it, and its bytes."""
    fields: dict[str, Field | Record] = {}
    moved = 0
    for name, entry in record:
        if isinstance(entry, Record):
            fields[name], more = carried(entry, wire)
        else:
            fields[name], more = (
                Field(wire.send(entry.value) if entry.value.numel() else entry.value, entry.how),
                entry.value.nbytes,
            )
        moved += more
    return Record(**fields), moved


def tree(parameters: int, clients: int, nodes: int) -> None:
    """One round: train nothing, add everything, check every coordinate."""
    algorithm, layout, wire = accord.fedavg(mask=accord.gma(0.4)), Layout.flat(parameters), Wire()
    memory = algorithm.init(layout, clients, torch.zeros(parameters))
    cuts = np.linspace(0, clients, min(SHARDS, clients) + 1).round().astype(int)
    shards = [range(first, last) for first, last in pairwise(cuts.tolist())]
    runs = [list(run) for run in np.array_split(np.arange(len(shards)), nodes)]
    base, adding, moving, moved = pattern(parameters), [], 0.0, 0
    total: Record | None = None
    for number, run in enumerate(runs):
        started = time.perf_counter()
        total = node(algorithm, memory, base, [shards[shard] for shard in run], total)
        adding.append(time.perf_counter() - started)
        started = time.perf_counter()
        total, size = carried(total, wire)
        moving, moved = moving + time.perf_counter() - started, moved + size
        print(f"  node {number + 1}: {sum(len(shards[s]) for s in run)} clients in {adding[-1]:.1f} s", flush=True)
    assert total is not None
    started = time.perf_counter()
    lowered, _, _ = algorithm.lower(total, memory, Round(1, layout, clients))
    assert lowered.mask is not None
    lowering = time.perf_counter() - started
    _check(total, base, clients)
    print(f"  sums and votes of all {parameters:,} coordinates are exact; mask passes {float(lowered.mask.mean()):.3f}")
    print(
        f"  records moved: {moved / GB:.2f} GB in {moving:.1f} s; reports that never moved:"
        f" {2 * clients * 4 * parameters / GB:,.0f} GB"
    )
    print(
        f"  adding: {sum(adding):.0f} s for {clients} clients, {max(adding):.0f} s for the slowest node; lowering:"
        f" {lowering:.2f} s"
    )
    print(f"  peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def _check(total: Record, base: Tensor, clients: int) -> None:
    """Against the sums in closed form: factor and weight of client n have periods of 5 and 3."""
    factor = float(sum((n % 5 - 1) * (1 + n % 3) for n in range(clients)))
    net = float(sum(np.sign(n % 5 - 1) for n in range(clients)))
    assert torch.equal(total.part("average")["delta"], base * factor), "the sums are wrong"
    assert torch.equal(total.part("mask")["votes"], base.sign() * net), "the votes are wrong"
    assert float(total.part("mask")["count"]) == clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rates", action="store_true", help="the rates alone")
    parser.add_argument("--ray", action="store_true", help="rates of a real Ray cluster too")
    asked = parser.parse_args()
    print(
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {asked.parameters:,}"
        " parameters in float32"
    )
    print("rates, medians of 5 (Ray: 3):")
    rates(asked.parameters)
    if asked.ray:
        ray_rates(asked.parameters)
    if not asked.rates:
        print(f"one round of {asked.clients} clients on {asked.nodes} nodes, one after another:")
        tree(asked.parameters, asked.clients, asked.nodes)


if __name__ == "__main__":
    main()
