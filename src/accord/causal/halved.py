"""A job with its network cut in two: what a client, or the server, needs to compute its half. Made once per process."""

import copy
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

from accord.causal.cut import cut
from accord.causal.rule import rule_of
from accord.core import draws
from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.engines.contract import Job
from accord.engines.probe import probe
from accord.engines.sequential import error_context


class Half:
    """One side of the cut. It lends its structure alone: parameters and buffers are vectors that come with every
    call."""

    def __init__(self, job: Job, module: nn.Module, drops_out: bool) -> None:
        self.job, self.module, self.layout, self._drops_out = job, module.train(), Layout.of(module), drops_out

    def __call__(self, vector: Tensor, buffers: dict[str, Tensor], x: Tensor, purpose: str, *path: int | str) -> Tensor:
        """The half's output. It can be differentiated by `vector: [P]`; `buffers` are changed in place. All draws come
        from one key."""
        device, seed = self.job.device, self.job.seed
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            # for random calls other than dropout
            torch.manual_seed(draws.key(seed, f"torch, {purpose}", *path) % 2**63)
            with draws.Routed(draws.device_key(seed, purpose, *path)) if self._drops_out else nullcontext():
                output: Tensor = functional_call(self.module, {**self.layout.unpack(vector), **buffers}, (x,))
        return output


class Halved:
    """The two halves of a job's network. Extractor first, the network's vectors are theirs, one after the other."""

    def __init__(self, job: Job) -> None:
        split = rule_of(job.algorithm)
        if "bf16" in job.speed:
            raise AccordError(
                "speed 'bf16' cannot be used with causalfed: its penalty is a square of small differences"
            )
        if job.fed.fields is not None:
            raise AccordError(f"causalfed cuts a network of one input in two, and samples here are {job.fed.fields}")
        probed = probe(job)
        # the user's module is never touched
        extractor, classifier = cut(copy.deepcopy(job.module).to(job.device), split.at)
        self.job, self.split, self.least = job, split, probed.least_batch
        self.extractor = Half(job, extractor, probed.drops_out)
        self.classifier = Half(job, classifier, probed.drops_out)


def naming(client: str, round: int) -> AbstractContextManager[None]:
    """Says whose round it was when the user's model, loss or data fail."""
    return error_context(f"client {client} could not train in round {round}")
