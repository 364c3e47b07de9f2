"""The server of CausalFed: it holds the classifier, learns from representations, and averages the extractor's
gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from accord.causal.halved import Halved, naming
from accord.causal.messages import Extractor, Gradient, Representation, Share
from accord.causal.objective import risk_and_penalty
from accord.causal.rule import penalty_at
from accord.core.errors import AccordError
from accord.rules.local.step import Piece, Steps, clipping


@dataclass
class Heard:
    """What the server knows of one client's round."""

    steps: int = 0
    samples: int = 0
    loss: float = 0.0  # summed over samples
    penalty: float = 0.0  # summed over steps
    norm: float = 0.0  # of its extractor gradients, summed over steps
    left_out_because: str | None = None


class Server:
    """One round: gradient descent on the mean over clients of risk + penalty weight x penalty, for the network as a
    whole.

    The papers sum over clients; their mean has the same minimum and lets a learning rate mean the same for any number
    of clients.
    """

    def __init__(self, halved: Halved, round: int, vector: Tensor, buffers: Tensor) -> None:
        self._halved, self.round, self.step = halved, round, 0
        self.vector = vector.clone()  # [P], extractor first
        self._steps = Steps(halved.job.training.rule, vector.new_tensor)
        self._kept, self._taken = self._steps.begin(vector), 0
        counts = [sum(entry.size for entry in half.layout.buffers) for half in (halved.extractor, halved.classifier)]
        self._front_buffers, self._back_buffers = buffers.split(counts)
        self._back_gradient: Tensor | None = None  # of the step in progress
        self.heard: dict[str, Heard] = {}

    @property
    def buffers(self) -> Tensor:
        return torch.cat([self._front_buffers, self._back_buffers])

    def extractor(self) -> Extractor:
        """What the clients of the next step are sent."""
        return Extractor(self.round, self.step, self.vector[: self._halved.extractor.layout.size], self._front_buffers)

    def respond(self, representations: Sequence[Representation]) -> list[Gradient]:
        """The gradient at every representation. A client whose numbers are not finite gets none, and is left out from
        then on."""
        half = self._halved.classifier
        vector = self.vector[self._halved.extractor.layout.size :].to(half.layout.dtype).detach().requires_grad_()
        buffers, total, answers = half.layout.unpack_buffers(self._back_buffers), torch.zeros_like(vector), []
        gradients = []
        for sent in representations:
            self._check(sent)
            with naming(sent.client, self.round):
                gradients.append(self._gradients(sent, vector, buffers))
        looked = _in_one_look([(*numbers, back, front) for back, front, numbers in gradients])
        for sent, (back, front, _), (risk, penalty, *finite) in zip(representations, gradients, looked, strict=True):
            heard, count = self._heard(sent.client), len(sent.labels)
            heard.steps += 1
            heard.samples += count
            heard.loss += risk * (count if self._halved.split.reduction == "mean" else 1)
            heard.penalty += penalty
            if not all(finite):
                heard.left_out_because = "NaN or infinity in the representation or its gradient"
                continue
            total += back
            answers.append(Gradient(sent.client, self.round, self.step, front))
        self._back_buffers = half.layout.pack_buffers(buffers).to(self._back_buffers.device)
        self._back_gradient = total / len(answers) if answers else None
        return answers

    def _gradients(
        self, sent: Representation, vector: Tensor, buffers: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Of one client's objective: with respect to the classifier `[P]`, and to the representation; and its risk and
        penalty."""
        job, split = self._halved.job, self._halved.split
        features, labels = sent.features.to(job.device).detach().requires_grad_(), sent.labels.to(job.device)
        output = self._halved.classifier(
            vector, buffers, features, "dropout at the server", self.round, sent.client, self.step
        )
        risk, penalty = risk_and_penalty(job.loss, output, labels, split.reduction)
        weight = penalty_at(split, self.round)
        objective = risk + weight * penalty if weight else risk
        back, front = torch.autograd.grad(objective, (vector, features), materialize_grads=True)
        return back, front, (risk.detach(), penalty.detach())

    def learn(self, shares: Sequence[Share]) -> None:
        """One step of the optimiser on the whole network, with the mean of the clients' extractor gradients. Without a
        usable share, no step."""
        good = []
        for share in shares:
            self._check(share)
        looked = _in_one_look([(share.gradient.norm(), share.gradient) for share in shares])
        for share, (norm, finite) in zip(shares, looked, strict=True):
            heard = self._heard(share.client)
            heard.norm += norm
            if finite:
                good.append(share)
            else:
                heard.left_out_because = "NaN or infinity in the extractor's gradient"
        if good and self._back_gradient is not None:
            device, dtype = self.vector.device, self.vector.dtype
            front = torch.stack([share.gradient.to(device, dtype) for share in good]).mean(0)
            self._descend(torch.cat([front, self._back_gradient.to(dtype)]))
            self._front_buffers = torch.stack([share.buffers.to(device) for share in good]).mean(0)
        self._back_gradient = None
        self.step += 1

    def _descend(self, gradient: Tensor) -> None:
        """As every client of other algorithms does: clipping, then weight decay, then the optimiser, which starts
        afresh every round."""
        training = self._halved.job.training
        factor = None if training.clip is None else clipping(gradient, training.clip)
        self._taken += 1
        (step,) = self._steps.of_round(training.lr_at(self.round), 1, first=self._taken)
        step([gradient], [Piece(self.vector, self.vector, kept=self._kept)], factor=factor)

    def _heard(self, client: str) -> Heard:
        return self.heard.setdefault(client, Heard())

    def _check(self, sent: Representation | Share) -> None:
        """Refuses a message that does not belong to the step in progress."""
        if (sent.round, sent.step) != (self.round, self.step):
            where = f"round {sent.round}, step {sent.step}, and the server is in round {self.round}, step {self.step}"
            raise AccordError(f"client {sent.client} sent a {type(sent).__name__} for {where}")
        if isinstance(sent, Representation) and (len(sent.features) != len(sent.labels) or len(sent.labels) == 0):
            counts = f"{len(sent.features)} samples and {len(sent.labels)} labels"
            raise AccordError(
                f"client {sent.client} sent {counts}: a representation has as many of both, and at least one"
            )
        size = self._halved.extractor.layout.size
        if isinstance(sent, Share) and tuple(sent.gradient.shape) != (size,):
            raise AccordError(
                f"client {sent.client} sent a gradient of shape {tuple(sent.gradient.shape)}, and the extractor has"
                f" ({size},)"
            )


def _in_one_look(rows: Sequence[tuple[Tensor, ...]]) -> list[list[float]]:
    """What the host must know of every client: numbers as they are, and of larger tensors whether they are finite. The
    device is asked once for all of it."""
    columns = [torch.stack([_number(value) for value in row]) for row in rows]
    return torch.stack(columns).tolist() if columns else []


def _number(value: Tensor) -> Tensor:
    return (value.isfinite().all() if value.dim() else value).double()
