"""How well scores tell members from others: accuracy, area under the curve, and the true-positive rate where false
alarms are rare."""

from dataclasses import dataclass

import numpy as np

from accord.core.errors import AccordError

RARE = (
    # false positives at which an attack is judged: one that is right on average may still be sure of nobody (Carlini et
    # al., 2022)
    0.001
)


@dataclass(frozen=True)
class Attack:
    """One attack's success on samples whose membership it was not told."""

    name: str
    accuracy: float  # of members and non-members in equal numbers: guessing has 0.5
    auc: float  # the chance that a member scores above a non-member
    tpr: float  # the share of members found when at most 0.1 % of non-members are taken for members
    members: int
    nonmembers: int
    note: str | None = None
    # of an attacker that is trained: steps, and its loss on those samples after them, in nats
    losses: tuple[tuple[int, float], ...] = ()


def judged(
    name: str, scores: np.ndarray, member: np.ndarray, known: np.ndarray, threshold: float | None = None
) -> Attack:
    """An attack whose larger scores mean members, `[n]` each. Without a `threshold` the best one on the samples whose
    membership is `known` is taken; only the others count."""
    if not np.isfinite(scores).all():
        raise AccordError(
            f"the attack by {name} gives scores that are not finite: the model's outputs are too large, or NaN"
        )
    threshold = best_threshold(scores[known], member[known]) if threshold is None else threshold
    inside, outside = scores[~known & member], scores[~known & ~member]
    hits = (inside > threshold).mean() + (outside <= threshold).mean()
    allowed = int(RARE * len(outside))
    note = None
    if allowed == 0:
        note = (
            f"{len(outside)} non-members are too few for a rate of 0.1 %: it is the share of members above all of them,"
            " and says little"
        )
    return Attack(
        name,
        float(hits) / 2,
        auc(inside, outside),
        true_positives(inside, outside, RARE),
        len(inside),
        len(outside),
        note,
    )


def auc(members: np.ndarray, others: np.ndarray) -> float:
    """The area under the ROC curve: the share of pairs in which the member scores higher; a tie counts half.

    >>> auc(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
    0.625
    """
    order = np.sort(others)
    below = np.searchsorted(order, members, side="left")
    not_above = np.searchsorted(order, members, side="right")
    return float((below + not_above).mean() / 2 / len(others))


def true_positives(members: np.ndarray, others: np.ndarray, rate: float) -> float:
    """The share of members above the lowest threshold that takes at most a share `rate` of the others for members.

    >>> true_positives(np.array([3.0, 2.5, 1.0, 0.0]), np.array([2.0, 0.5]), 0.5)
    0.75
    """
    allowed = int(rate * len(others))
    if allowed >= len(others):
        return 1.0
    return float((members > np.sort(others)[-1 - allowed]).mean())


def best_threshold(scores: np.ndarray, member: np.ndarray) -> float:
    """Above which samples are best taken for members: halfway between two scores, where accuracy over equal numbers of
    both is highest."""
    values = np.unique(scores)
    middle = (values[1:] + values[:-1]) / 2
    candidates = np.concatenate([[values[0] - 1.0], middle, [values[-1] + 1.0]])
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    caught = 1 - np.searchsorted(inside, candidates, side="right") / len(inside)
    spared = np.searchsorted(outside, candidates, side="right") / len(outside)
    return float(candidates[np.argmax(caught + spared)])
