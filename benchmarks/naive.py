"""Federated averaging as a careful researcher writes it today: data on the device, an nn.Module, torch.optim.SGD, one
client after another.

It is what accord's engines are compared with, so it stays as it is.
"""

import copy
import time

import torch
from torch import nn
from torch.nn import functional as F
from works import Work


class Naive:
    """Holds data and model between measurements."""

    def __init__(self, work: Work, device: str) -> None:
        x, y = work.data()
        self.work, self.device = work, torch.device(device)
        self.x, self.y = (x.to(self.device).float() / 255.0), y.to(self.device)
        self.model = work.module().to(self.device)
        self.client = copy.deepcopy(self.model)
        self.round, self.accuracy = 0, 0.0

    def measure(self) -> float:
        """Seconds for the work's rounds and one evaluation."""
        started = time.perf_counter()
        for _ in range(self.work.rounds):
            self.one_round()
        self.accuracy = self.evaluate()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    def one_round(self) -> None:
        work = self.work
        self.round += 1
        generator = torch.Generator().manual_seed(self.round)
        chosen = torch.randperm(work.clients, generator=generator)[: work.sample].tolist()
        start = self.model.state_dict()
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for client in chosen:
            self.client.load_state_dict(start)
            train(self.client, self.x, self.y, client * work.samples, work, generator)
            for name, value in self.client.state_dict().items():
                total[name] += value / len(chosen)
        self.model.load_state_dict(total)

    @torch.no_grad()
    def evaluate(self) -> float:
        self.model.eval()
        first, right = self.work.clients * self.work.samples, 0
        for start in range(first, len(self.x), 1000):
            output = self.model(self.x[start : start + 1000])
            right += int((output.argmax(1) == self.y[start : start + 1000]).sum())
        self.model.train()
        return right / self.work.test


def train(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, first: int, work: Work, generator: torch.Generator
) -> None:
    """One epoch of a client whose samples begin at row `first`."""
    optimiser = torch.optim.SGD(model.parameters(), lr=work.lr, momentum=work.momentum)
    order = (first + torch.randperm(work.samples, generator=generator)).to(x.device)
    for rows in order.split(work.batch):
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()
