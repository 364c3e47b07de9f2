"""Membership inference: can samples that a model was trained on be told from others by its outputs alone? (T, appendix
F)

Three attackers, from the papers' to today's standard. Each gets members (participating clients' training samples) and
as many non-members, is told the membership of half of both, and is judged on the other half:

- `logits`: logistic regression on the model's logits, as in T.
- `loss`: a threshold on the sample's loss (Yeom et al., 2018).
- `likelihood ratio`: how much likelier the model's confidence is under models that saw the sample than under models
  that did not, both known from shadow models that were trained alike (Carlini et al., 2022).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accord.audit.roc import Attack, judged
from accord.core import draws
from accord.core.errors import AccordError, check_whole
from accord.data.federated import Federation
from accord.engines.device import pick_device
from accord.runs.text import Cells, align

Train = Callable[[Federation, int], nn.Module]  # a model trained on a federation, with a seed
Look = Callable[[int, np.ndarray], None]  # steps taken, and the scores of all samples after them
GROUPS = {"heldout": "held-out", "unseen": "unseen", "test": "test"}
_BATCH = 1000
_LOOKS = 50  # points of an attacker's loss over its training
# shadow models, with a sample or without, from which its own variance is known better than that of all samples
_OWN_VARIANCE = 32


@dataclass(frozen=True)
class Membership:
    """What the attacks found. `print` shows a table."""

    against: str  # whose samples the non-members are: heldout, unseen or test
    attacks: list[Attack]
    shadows: int = 0

    def cells(self) -> Cells:
        rows = [
            [a.name, f"{100 * a.accuracy:.2f}", f"{a.auc:.4f}", f"{100 * a.tpr:.2f}", str(a.members), str(a.nonmembers)]
            for a in self.attacks
        ]
        return [
            ["attack", "accuracy (%)", "AUC", "found (%) at 0.1 % false alarms", "members", GROUPS[self.against]],
            *rows,
        ]

    def notes(self) -> list[str]:
        return list(dict.fromkeys(attack.note for attack in self.attacks if attack.note))

    def plain(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "against": self.against,
            "shadows": self.shadows,
            "attacks": [asdict(attack) for attack in self.attacks],
        }

    def __str__(self) -> str:
        return "\n".join([*align(self.cells()), *self.notes()])


@dataclass(frozen=True)
class Candidates:
    """Members and as many non-members: their rows `[n]`, which are members, and of which the attacker is told so."""

    rows: Tensor
    member: np.ndarray
    known: np.ndarray


def attack(
    module: nn.Module,
    fed: Federation,
    *,
    against: str | None = None,
    steps: int = 5000,
    shadows: int = 0,
    train: Train | None = None,
    seed: int = 0,
    device: str = "auto",
    tell: Callable[[str], None] | None = None,
) -> Membership:
    """Attacks a trained model. Non-members are the `heldout` data of the clients that trained it, `unseen` clients' or
    the `test` set's; left out, the first of these that there is.

    With `shadows` (at least 4), the likelihood-ratio attack is made too, for which `train` must train as many models,
    each on half of the clients' data.

    >>> run = accord.fit(accord.models.lenet(), fed, rounds=50)
    >>> print(attack(run.model(), fed))
    """
    check_whole("steps", steps)
    check_whole("shadows", shadows, least=0)
    if shadows and (shadows < 4 or train is None):
        raise AccordError(
            f"shadows must be 0, or at least 4 with a way to train them, got {shadows}: two with a sample, two without"
        )
    if fed.y.is_floating_point():
        raise AccordError("membership inference here is for class labels, and these targets are numbers")
    against = group(fed, against)
    chosen = candidates(fed, against, seed)
    where = pick_device(device)
    logits, labels = outputs(module, fed, chosen.rows, where)
    losses = F.cross_entropy(logits, labels, reduction="none").numpy()
    curve: list[tuple[int, float]] = []

    def look(step: int, scores: np.ndarray) -> None:
        curve.append((step, cross_entropy(scores[~chosen.known], chosen.member[~chosen.known])))

    scores = regressed(logits.numpy(), chosen.member, chosen.known, steps, look)
    by_logits = judged("logits", scores, chosen.member, chosen.known, threshold=0.0)
    attacks = [replace(by_logits, losses=tuple(curve)), judged("loss", -losses, chosen.member, chosen.known)]
    if shadows and train:
        inside, confidences = shadowed(fed, chosen, shadows, train, seed, where, tell)
        online = against == "heldout"  # only these can be given to shadow models: they are participating clients' own
        scores = likelihood_ratio(confidence(logits, labels), confidences, inside, online)
        attacks.append(
            judged(f"likelihood ratio, {'online' if online else 'offline'}", scores, chosen.member, chosen.known)
        )
    return Membership(against, attacks, shadows)


def candidates(fed: Federation, against: str, seed: int) -> Candidates:
    """A balanced draw of members and non-members, half of each known to the attacker."""
    groups = [torch.cat(list(fed.train.values())), _nonmembers(fed, against)]
    count = min(map(len, groups))
    if count < 4:
        raise AccordError(
            f"there must be at least 4 training and 4 {GROUPS[against]} samples to attack with, got {count}"
        )
    rows, known = [], []
    for name, group in zip(("members", "others"), groups, strict=True):
        rows.append(group[torch.from_numpy(draws.choose(len(group), count, seed, f"membership: {name}"))])
        known.append(draws.permutation(count, seed, f"membership: known {name}") < count // 2)
    return Candidates(torch.cat(rows), np.arange(2 * count) < count, np.concatenate(known))


def group(fed: Federation, against: str | None) -> str:
    """The samples that training ones are told from: those asked for, or the first there are."""
    there = [name for name in GROUPS if len(_nonmembers(fed, name))]
    if not there:
        raise AccordError(
            "there is no data that the model was not trained on: give the federation held-out data, unseen clients or a"
            " test set"
        )
    if against is None:
        return there[0]
    against = "heldout" if against == GROUPS["heldout"] else against
    if against not in there:
        raise AccordError(f"against must be one of {', '.join(there)} for this data, got {against!r}")
    return against


def _nonmembers(fed: Federation, against: str) -> Tensor:
    if against == "test":
        return torch.zeros(0, dtype=torch.int64) if fed.test is None else fed.test
    return torch.cat([torch.zeros(0, dtype=torch.int64), *getattr(fed, against).values()])


@torch.no_grad()
def outputs(module: nn.Module, fed: Federation, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """The model's logits `[n, classes]` on these rows, in float64, and their labels `[n]`."""
    training, home = module.training, next((p.device for p in module.parameters()), torch.device("cpu"))
    module.to(device).eval()
    try:
        parts = [
            (module(x.to(device)).double().cpu(), y.cpu()) for x, y in (fed.read(some) for some in rows.split(_BATCH))
        ]
    finally:
        module.to(home).train(training)
    logits, labels = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise AccordError(
            "the model must give a number for each of two or more classes, got outputs of shape"
            f" {list(logits.shape[1:])}"
        )
    return logits, labels


# ---------------------------------------------------------------------------------------------- the attackers


def regressed(
    features: np.ndarray, member: np.ndarray, known: np.ndarray, steps: int, look: Look | None = None
) -> np.ndarray:
    """Scores of a logistic regression on `features: [n, d]`, trained on the known samples with binary cross-entropy.
    Gradient descent over all of them at once; features are standardised, and the rate is one over the loss's largest
    curvature, so that the loss never rises. `look` is shown the scores before the first step, after some of the others
    and after the last."""
    centre, width = features[known].mean(0), features[known].std(0) + 1e-12
    x = np.concatenate([(features - centre) / width, np.ones((len(features), 1))], axis=1)
    inputs, truth = x[known], member[known].astype(float)
    rate = 4.0 / np.linalg.eigvalsh(inputs.T @ inputs / len(inputs))[-1]
    weights = np.zeros(x.shape[1])
    for step in range(steps):
        if look and step % math.ceil(steps / _LOOKS) == 0:
            look(step, x @ weights)
        guess = 0.5 * (1.0 + np.tanh(inputs @ weights / 2))  # the logistic function, which cannot overflow in this form
        weights -= rate * (inputs.T @ (guess - truth)) / len(inputs)
    scores: np.ndarray = x @ weights
    if look:
        look(steps, scores)
    return scores


def cross_entropy(scores: np.ndarray, member: np.ndarray) -> float:
    """The mean loss of a logistic regression's scores, in nats; guessing has log 2."""
    return float(np.logaddexp(0.0, np.where(member, -scores, scores)).mean())


def confidence(logits: Tensor, labels: Tensor) -> np.ndarray:
    """log(p / (1 - p)) of the probability p of the right class, `[n]`: close to normally distributed over models,
    unlike p itself."""
    right = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
    value: np.ndarray = (right[:, 0] - others).numpy()
    return value


def shadowed(
    fed: Federation,
    chosen: Candidates,
    count: int,
    train: Train,
    seed: int,
    device: torch.device,
    tell: Callable[[str], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Which shadow models count as having seen each candidate, `[count, n]`, and their confidence in it. Every sample
    of participating clients is given to half of the shadow models, whichever these are; a candidate that is nobody's is
    only said to be, so that members and non-members are judged by equally many models that saw neither."""
    at = np.zeros(len(fed.y), dtype=np.int64)
    pool = np.unique(torch.cat([*fed.train.values(), *fed.heldout.values(), chosen.rows]).numpy())
    at[pool] = np.arange(len(pool))
    ranks = (
        draws.uniform(count * len(pool), seed, "membership: shadows")
        .reshape(count, len(pool))
        .argsort(0, kind="stable")
    )
    inside = ranks.argsort(0, kind="stable") < count // 2  # exactly half of the models for every sample
    confidences = []
    for number in range(count):
        if tell:
            tell(f"shadow model {number + 1} of {count}")
        rows = {}
        for client, samples in fed.train.items():
            all_of_it = torch.cat([samples, fed.heldout.get(client, samples[:0])])
            rows[client] = all_of_it[torch.from_numpy(inside[number][at[all_of_it.numpy()]])]
        half = replace(fed, train=rows, heldout={}, unseen={}, test=None, others={})
        module = train(half, draws.key(seed, "membership: shadow", number) % 2**32)
        confidences.append(confidence(*outputs(module, fed, chosen.rows, device)))
    return inside[:, at[chosen.rows.numpy()]], np.stack(confidences)


def likelihood_ratio(target: np.ndarray, shadows: np.ndarray, inside: np.ndarray, online: bool = True) -> np.ndarray:
    """Scores `[n]` from the target model's confidences `[n]` and shadow models' `[S, n]`, of which those `inside` saw
    the sample.

    Online: the log of N(target; of those that saw it) / N(target; of those that did not). Offline: by how many standard
    deviations the target is surer of the sample than models that did not see it.
    """
    mean, variance = _normal(shadows, ~inside)
    if not online:
        return (target - mean) / np.sqrt(variance)
    seen_mean, seen_variance = _normal(shadows, inside)
    return _log_density(target, seen_mean, seen_variance) - _log_density(target, mean, variance)


def _normal(values: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each column over the chosen rows; one variance for all columns where there are too few rows
    to tell."""
    counts = which.sum(0)
    mean = np.where(which, values, 0.0).sum(0) / counts
    squares = np.where(which, (values - mean) ** 2, 0.0).sum(0)
    variance = (
        squares / (counts - 1)
        if counts.min() >= _OWN_VARIANCE
        else np.full(len(mean), squares.sum() / (counts - 1).sum())
    )
    return mean, variance + 1e-12


def _log_density(x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return -0.5 * ((x - mean) ** 2 / variance + np.log(variance))
