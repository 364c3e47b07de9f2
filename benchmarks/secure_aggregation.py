"""What a secure sum costs: time and bytes of one round of ten clients, against open sums of the same whole numbers and
against Flower's own SecAgg+ (its workflow and its client mod).

    python benchmarks/secure_aggregation.py [--parameters 44426,11200000] [--clients 10] [--gone 3] [--repeat 3]

It needs an environment with Flower: `pip install '.[flower]'`. Strategy and client apps are the real ones, in one
process on one thread, and every message goes through Flower's bytes both ways. Times are CPU seconds, so that other
work on the machine does not count; contestants take turns, and of each the least counts. A client's time has its
training in it, which is one step of a model that does next to nothing. `gone` clients drop out after they made shares,
which is the dearest moment: their masks have to be recovered.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "integration"))

import direct_grid
import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.compat.common.recorddict_compat import parameters_to_arrayrecord
from flwr.server import LegacyContext, ServerConfig
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from torch import nn

import accord
from accord.deploy.flower import Strategy, Sums, client_app, owned
from accord.privacy.secure_sum import SecureSum
from accord.rules.local import Training
from accord.training.plan import Plan


class Wide(nn.Module):
    """So many parameters, of which a sample needs forty."""

    def __init__(self, size: int) -> None:
        super().__init__()
        # not zeros: Flower sends equal pieces of a large array once
        self.weight = nn.Parameter(torch.randn(size, generator=torch.Generator().manual_seed(0)) * 1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight[:40].view(4, 10)


class Counting(direct_grid.DirectGrid):
    """Counts bytes both ways and CPU seconds by whose they are. Nodes that are `gone` answer nothing at `stage`."""

    def __init__(self, apps: dict[int, Any], gone: int, stage: str) -> None:
        super().__init__(apps)
        self.gone, self.stage = set(sorted(apps)[:gone]), stage
        self.state = {node: RecordDict() for node in apps}
        self.seconds: dict[str, float] = defaultdict(float)
        self.arrived: dict[str, Message] = {}
        self.down = self.up = 0

    def _answer(self, message: Message) -> None:
        node = message.metadata.dst_node_id
        self.down += self._size(message)
        started = time.process_time()
        app, settings = self.apps[node]
        asked = message.metadata.message_type == self.stage and bool(message.content.array_records)
        if node in self.gone and asked:  # the stage that brings the model
            reply = Message(Error(0, "gone"), reply_to=message)
        else:
            reply = app(message, Context(0, node, settings, self.state[node], {}))
        self.seconds["clients"] += time.process_time() - started
        self.up += self._size(reply)
        self.arrived[message.metadata.message_id] = direct_grid.through_bytes(reply)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.arrived.pop(number) for number in list(message_ids) if number in self.arrived]

    def _size(self, message: Message) -> int:
        started = time.process_time()
        held = direct_grid.get_all_nested_objects(message).values()
        size = sum(len(each.deflate()) for each in held)
        self.seconds["counting"] += time.process_time() - started
        return size


Measured = tuple[float, float, int, int]  # CPU seconds of a client and of the server, bytes down and up of a client


def measured(grid: Counting, work: Callable[[], object], clients: int) -> Measured:
    started = time.process_time()
    work()
    rest = time.process_time() - started - sum(grid.seconds.values())
    return grid.seconds["clients"] / clients, rest, grid.down // clients, grid.up // clients


def accords(size: int, clients: int, gone: int, sums: Sums) -> Measured:
    generator = torch.Generator().manual_seed(0)
    arrays: dict[str | int, Any] = {
        f"c{n:03d}": (torch.randn(8, 4, generator=generator), torch.randint(0, 10, (8,), generator=generator))
        for n in range(clients)
    }
    fed = accord.data.from_arrays(arrays, heldout=0.0, seed=0)
    algorithm = accord.fedavg(mask=accord.gma(0.4), weighting="uniform")
    apps: dict[int, Any] = {
        n + 1: (client_app(Wide(size), owned(fed, n, clients), sums=sums, algorithm=algorithm), {})
        for n in range(clients)
    }
    grid = Counting(apps, gone, "train.masked" if sums.protocol else "train")
    training = Training(lr=0.1, batch=None, epochs=1)
    plan = Plan(rounds=1, evaluate_every=1)
    strategy = Strategy(algorithm, Wide(size), clients=clients, training=training, plan=plan, sums=sums, wait=60.0)
    loop = strategy._open(grid, None, None)
    grid.down = grid.up = 0
    grid.seconds.clear()
    asked = next(loop.rounds())
    return measured(grid, lambda: loop.learn(asked, loop.engine.train(asked.work, asked.cohort)), clients)


class Idle(NumPyClient):
    """Flower's contestant: it adds a little to what it got."""

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        return [each + np.float32(0.01) for each in parameters], 8, {}


def flowers(size: int, clients: int, gone: int) -> Measured:
    app = ClientApp(client_fn=lambda context: Idle().to_client(), mods=[secaggplus_mod])
    grid = Counting({n + 1: (app, {}) for n in range(clients)}, gone, "train")
    context = LegacyContext(
        Context(0, 1, {}, RecordDict(), {}),
        ServerConfig(1),
        FedAvg(fraction_evaluate=0.0, min_fit_clients=clients, min_available_clients=clients),
    )
    for node in grid.apps:
        context.client_manager.register(GridClientProxy(node_id=node, grid=grid, run_id=1))
    start = ndarrays_to_parameters([Wide(size).weight.detach().numpy()])
    context.state.array_records[MAIN_PARAMS_RECORD] = parameters_to_arrayrecord(start, keep_input=True)
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    workflow = SecAggPlusWorkflow(1.0, -(-2 * clients // 3))
    return measured(grid, lambda: workflow(grid, context), clients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", default="44426,11200000")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--gone", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", help="of one contestant: the beginning of its name")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    secure, clients = SecureSum(clients=asked.clients, bound=20.0), asked.clients
    open_sums, hidden = Sums(secure), Sums(secure, protocol="secagg+")
    print("parameters  contestant                       client s  server s    down bytes      up bytes   (a client)")
    for size in map(int, asked.parameters.split(",")):
        contestants: dict[str, Callable[[], Measured]] = {
            "open sums": partial(accords, size, clients, 0, open_sums),
            "secagg+": partial(accords, size, clients, 0, hidden),
            f"secagg+, {asked.gone} gone": partial(accords, size, clients, asked.gone, hidden),
            "Flower's SecAgg+": partial(flowers, size, clients, 0),
            f"Flower's SecAgg+, {asked.gone} gone": partial(flowers, size, clients, asked.gone),
        }
        found: dict[str, list[Measured]] = defaultdict(list)
        for _ in range(asked.repeat):
            for name, contestant in contestants.items():
                if asked.only and not name.startswith(asked.only):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    os.environ["ACCORD_STATE"] = folder
                    found[name].append(contestant())
        for name, rows in found.items():
            client, server = (min(row[which] for row in rows) for which in (0, 1))
            print(
                f"{size:10,d}  {name:30s}  {client:9.3f} {server:9.3f} {rows[0][2]:13,d} {rows[0][3]:13,d}", flush=True
            )


if __name__ == "__main__":
    main()
