"""Flower's simulation as a contestant, on CPU: its message API and its Ray backend, as its PyTorch quickstart has them.

A measurement is a simulation of its own. Inside the server app, a first round goes untimed (worker processes start,
import torch and map the data in it); then the work's rounds and one evaluation on the server are timed, and the
simulation ends. So starting is not in the time, and none of Ray's processes, nor the thread that asks every node for
messages ten times a second, is there while others are measured.
"""

import argparse
import functools
import os
import time
from importlib.metadata import version
from typing import Any

import torch

from contestants.protocol import Measured, Ready, Stored, compete, until

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # before the import: nothing is to be sent anywhere
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from contestants.flower_client import app as client_app

RESOURCES = {"num_cpus": 1, "num_gpus": 0.0}  # a worker process per core; Ray gives each of them one thread


class Simulation:
    """The work as a Flower app."""

    def __init__(self, work: Stored) -> None:
        self.work = work
        x, self.y = work.data()
        held = work.clients * work.samples
        self.test = (x[held:].float() / 255.0, self.y[held:])
        self.model = work.module()
        self.arrays = ArrayRecord(self.model.state_dict())

    def run(self, work: bool = True) -> Measured:
        """A simulation: a first round that does not count, then the work."""
        found: list[Measured] = []
        server_app = ServerApp()

        @server_app.main()
        def main(grid: Grid, context: Any) -> None:
            found.append(self._rounds(grid, 1))
            if work:
                if self.work.target is not None:
                    self.arrays = ArrayRecord(self.work.module().state_dict())
                found.append(until(self.work, functools.partial(self._rounds, grid)))

        run_simulation(server_app, client_app, self.work.clients, backend_config={"client_resources": RESOURCES})
        if len(found) != 1 + work:
            raise RuntimeError("Flower's simulation ended before its server app did")
        return found[-1]

    def _rounds(self, grid: Grid, rounds: int) -> Measured:
        """So many rounds, and one evaluation."""
        work, started = self.work, time.perf_counter()
        # The fraction is rounded down and the minimum then holds: exactly `sample` clients, whatever floats make of
        # 30/3550.
        strategy = FedAvg(
            fraction_train=1e-9, fraction_evaluate=0.0, min_train_nodes=work.sample, min_available_nodes=work.clients
        )
        config = ConfigRecord({"work": work.name, "folder": work.folder})

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            return self._evaluate(arrays) if server_round == rounds else None

        result = strategy.start(grid, self.arrays, num_rounds=rounds, train_config=config, evaluate_fn=evaluate)
        if len(result.train_metrics_clientapp) != rounds:
            raise RuntimeError(
                f"only {len(result.train_metrics_clientapp)} of {rounds} rounds of Flower's clients succeeded"
            )
        if round(threads := result.train_metrics_clientapp[rounds]["threads"], 6) != 1:  # a mean of floats
            raise RuntimeError(f"Flower's workers were to have one thread each, got {threads} on average")
        self.arrays = result.arrays
        accuracy = float(result.evaluate_metrics_serverapp[rounds]["accuracy"])
        return Measured(time.perf_counter() - started, rounds, accuracy)

    @torch.no_grad()
    def _evaluate(self, arrays: ArrayRecord) -> MetricRecord:
        self.model.load_state_dict(arrays.to_torch_state_dict())
        self.model.eval()
        x, y = self.test
        right = sum(
            int((self.model(x[i : i + 1000]).argmax(1) == y[i : i + 1000]).sum()) for i in range(0, len(x), 1000)
        )
        return MetricRecord({"accuracy": right / len(x)})


def prepare(work: Stored, asked: argparse.Namespace) -> Ready:
    if asked.device != "cpu":
        raise SystemExit(f"Flower is timed on cpu only, got device {asked.device!r}")
    simulation = Simulation(work)
    note = (
        "a worker process per core with one thread each, its message API and Ray backend, data mapped, evaluation on"
        " the server"
    )
    versions = {"flwr": version("flwr"), "ray": version("ray")}
    return Ready(lambda: simulation.run(False), simulation.run, versions, note)


if __name__ == "__main__":
    compete(prepare)
