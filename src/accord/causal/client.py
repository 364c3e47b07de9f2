"""A client of CausalFed: its samples stay; representations, labels and gradients go."""

from dataclasses import dataclass

import torch
from torch import Tensor

from accord.causal.halved import Halved, naming
from accord.causal.messages import Extractor, Gradient, Message, Representation, Share
from accord.core import draws
from accord.core.errors import AccordError
from accord.engines.contract import Member, batches


@dataclass(frozen=True)
class _Pending:
    """A forward pass that waits for its gradient."""

    round: int
    step: int
    vector: Tensor
    buffers: dict[str, Tensor]
    features: Tensor


class Client:
    """One data owner. It knows the network's structure; the extractor's weights come with every step. `answer` is all
    there is to it."""

    def __init__(self, halved: Halved, member: Member) -> None:
        if len(member.rows) < halved.least:
            raise AccordError(
                f"client {member.client} has {len(member.rows)} samples and needs at least {halved.least} to take part"
            )
        self._halved, self._member = halved, member
        self._round, self._plan = 0, list[Tensor]()
        self._pending: _Pending | None = None

    def answer(self, message: Message) -> Representation | Share:
        """A representation for an extractor, a share of the extractor's gradient for a gradient at the
        representation."""
        with naming(self._member.client, message.round):
            if isinstance(message, Extractor):
                return self._represent(message)
            if isinstance(message, Gradient):
                return self._pull_back(message)
        raise AccordError(
            f"client {self._member.client} was sent a {type(message).__name__}: clients take Extractor and Gradient"
        )

    def _represent(self, sent: Extractor) -> Representation:
        """Runs the step's batch, drawn as for any other algorithm, through the extractor."""
        name, half, job = self._member.client, self._halved.extractor, self._halved.job
        if sent.round != self._round:
            self._round, self._plan = sent.round, batches(job, sent.round, self._member, self._halved.least)
        if not 0 <= sent.step < len(self._plan):
            raise AccordError(
                f"client {name} has {len(self._plan)} steps in round {sent.round} and was asked for step {sent.step}"
            )
        rows, key = self._plan[sent.step], draws.device_key(job.seed, "augment", sent.round, name, sent.step)
        x, y = job.fed.read(rows, key)
        vector = sent.vector.to(job.device, half.layout.dtype).detach().requires_grad_()
        buffers = half.layout.unpack_buffers(sent.buffers.to(job.device))
        features = half(vector, buffers, x.to(job.device), "dropout", sent.round, name, sent.step)
        if not isinstance(features, Tensor) or not features.requires_grad:
            raise AccordError(
                f"the network cannot be cut at {self._halved.split.at}: no gradient comes back through what is"
                " before it"
            )
        self._pending = _Pending(sent.round, sent.step, vector, buffers, features)
        return Representation(name, sent.round, sent.step, features.detach(), y, last=sent.step + 1 == len(self._plan))

    def _pull_back(self, sent: Gradient) -> Share:
        """Carries the server's gradient back through the extractor."""
        name, pending, half = self._member.client, self._pending, self._halved.extractor
        if pending is None or (sent.client, sent.round, sent.step) != (name, pending.round, pending.step):
            raise AccordError(
                f"client {name} was sent a gradient for {sent.client}, round {sent.round}, step {sent.step}: it waits"
                " for none"
            )
        if sent.features.shape != pending.features.shape:
            shapes = f"{tuple(sent.features.shape)}, and its representation has {tuple(pending.features.shape)}"
            raise AccordError(f"client {name} was sent a gradient of shape {shapes}")
        self._pending = None
        towards = sent.features.to(pending.features)
        (gradient,) = torch.autograd.grad(pending.features, pending.vector, towards)
        return Share(name, sent.round, sent.step, gradient, half.layout.pack_buffers(pending.buffers))
