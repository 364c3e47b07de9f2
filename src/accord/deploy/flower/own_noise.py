"""Differential privacy in a deployment: noise that clients add to a secure sum."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import cast

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.deploy.flower.sums import Sums
from accord.privacy.distributed import DistributedPrivacy, Whole
from accord.privacy.dp import Privacy
from accord.rules.algorithm import Algorithm
from accord.training.plan import Plan


def deployed(algorithm: Algorithm, sums: Sums | None) -> Algorithm:
    """The algorithm as both sides of a secure sum know it: with privacy, its noise is the clients' own."""
    if algorithm.privacy is None or sums is None or not sums.protocol:
        return algorithm
    settings = {field.name: getattr(algorithm.privacy, field.name) for field in fields(Privacy)}
    privacy = DistributedPrivacy(**settings, threshold=float(sums.threshold), neighbours=sums.neighbours)
    return replace(algorithm, privacy=privacy)


def own_noise(algorithm: Algorithm, sums: Sums | None) -> DistributedPrivacy | None:
    """The privacy of a deployed algorithm."""
    return cast(DistributedPrivacy, algorithm.privacy) if algorithm.privacy and sums and sums.protocol else None


def noised(algorithm: Algorithm, sums: Sums, layout: Layout | None) -> Callable[[Whole, int], Whole]:
    """What a client does to its record, in whole numbers, in a cohort of a size: nothing, without privacy."""
    privacy, secure = own_noise(algorithm, sums), sums.secure
    assert secure is not None
    if privacy is None:
        return lambda whole, cohort: whole
    if layout is not None:
        privacy.check_layout(layout)
    return lambda whole, cohort: privacy.noised(whole, secure, cohort)


def check_secure(
    algorithm: Algorithm, sums: Sums | None, plan: Plan, layout: Layout, clients: int, recorded: bool
) -> list[str]:
    """Refuses a plan that a secure sum cannot carry out, and one that epsilon would not be true of; else says what
    epsilon will be."""
    if sums is None or not sums.protocol or sums.secure is None:
        return []
    sums.graph(plan.sample or clients)  # which has something to say about a cohort of one
    if recorded and plan.checkpoint_every != 1:
        raise AccordError(
            f"checkpoint_every must be 1 with protocol {sums.protocol!r}, got {plan.checkpoint_every}: clients give no"
            " round twice, so a run cannot go back by one"
        )
    privacy = own_noise(algorithm, sums)
    if privacy is None:
        return []
    plan.check_privacy()
    privacy.check_layout(layout)
    privacy.check_room(sums.secure, plan.sample or clients, layout.size)
    return privacy.sentences(algorithm.mask is not None, clients, plan.sample, plan.rounds, layout.size)
