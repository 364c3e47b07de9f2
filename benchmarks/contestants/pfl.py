"""pfl-research as a contestant: its simulated backend and federated averaging, all clients' samples as tensors in
memory.

`--processes 1` is pfl as it comes, with torch's own number of threads. `--processes 2` is what its guide to fast
simulations describes: the same script once per process, told apart by environment variables; here each process has one
thread, so that they share the cores.
"""

import argparse
import functools
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contestants.protocol import Measured, Ready, Stored, compete, until

NEVER = 10**9


class Scored(nn.Module):
    """The model with the two methods pfl wants."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.net.train()
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        self.net.eval()
        return {"accuracy": Weighted(int((self.net(x).argmax(1) == y).sum()), len(y))}


def prepare(work: Stored, asked: argparse.Namespace) -> Ready:
    os.environ["PFL_PYTORCH_DEVICE"] = asked.device
    others = start_others(int(asked.processes))  # before pfl is imported: it reads its environment then
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    x, y = work.data()
    pictures, labels = x.to(asked.device).float() / 255.0, y.to(asked.device)
    held = work.clients * work.samples
    clients = list(zip(pictures[:held].split(work.samples), labels[:held].split(work.samples), strict=True))
    users = {str(number): PyTorchTensorDataset(tensors, user_id=str(number)) for number, tensors in enumerate(clients)}
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    backend = SimulatedBackend(data, data)
    net = Scored(work.module())
    sgd = functools.partial(torch.optim.SGD, momentum=work.momentum)
    model = PyTorchModel(net, sgd, torch.optim.SGD(net.parameters(), lr=1.0))
    train_params = NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=1, local_learning_rate=work.lr)
    eval_params = NNEvalHyperParams(local_batch_size=1000)
    test = CentralEvaluationCallback(PyTorchTensorDataset((pictures[held:], labels[held:])), eval_params)
    algorithm = FederatedAveraging()
    done = 0

    def run(rounds: int) -> Measured:
        """So many further rounds. pfl would evaluate cohorts at round 0, which is in the untimed part, and the test set
        before the first round: so its callback is called by hand, once, at the end."""
        nonlocal done
        started = time.perf_counter()
        done += rounds
        algorithm.run(NNAlgorithmParams(done, NEVER, work.sample, 0), backend, model, train_params, eval_params)
        accuracy = test.on_train_begin(model=model).to_simple_dict()["Central val | accuracy"]
        if asked.device == "cuda":
            torch.cuda.synchronize()
        return Measured(time.perf_counter() - started, rounds, accuracy)

    def measure() -> Measured:
        others.tell("measure")
        if work.target is not None:
            net.net.load_state_dict(work.module().state_dict())
        return until(work, run)

    note = (
        "torch's own number of threads, all samples as floats in memory, never shuffled; its first round evaluates"
        " clients too"
    )
    if int(asked.processes) > 1:
        note = f"{asked.processes} processes with one thread each, otherwise as pfl"
    return Ready(lambda: run(1), measure, {"pfl": version("pfl")}, note)


class Others:
    """The other processes of a distributed simulation. They are this script too: their first round they do unasked, and
    they are told to measure whenever this one measures."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self.processes = processes

    def tell(self, word: str) -> None:
        for process in self.processes:
            assert process.stdin is not None
            print(word, file=process.stdin, flush=True)


def start_others(count: int) -> Others:
    if count == 1 or "PFL_WORKER_RANK" in os.environ:
        return Others([])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "PFL_WORKER_ADDRESSES": ",".join(f"127.0.0.1:{port + rank}" for rank in range(count)),
    }
    torch.set_num_threads(1)
    command = [sys.executable, "-m", "contestants.pfl", *sys.argv[1:]]
    others = [
        subprocess.Popen(
            command, env={**os.environ, "PFL_WORKER_RANK": str(rank)}, stdin=subprocess.PIPE, stdout=2, text=True
        )
        for rank in range(1, count)
    ]
    os.environ["PFL_WORKER_RANK"] = "0"
    return Others(others)


if __name__ == "__main__":
    compete(prepare, "--processes")
