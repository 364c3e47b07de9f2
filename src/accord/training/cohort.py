"""Who takes part in a round: C of N clients, some of them out of reach, slow, or lost on the way back. All by keyed
draws."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from accord.core import draws
from accord.core.errors import AccordError
from accord.core.reports import LOST
from accord.engines.contract import Outcome
from accord.runs.rows import RoundRow


@dataclass(frozen=True)
class Conditions:
    """How reliable clients are. Each share is a probability per client and round.

    `available`: the client can be sampled at all. `lost`: a sampled client's report never arrives. `stragglers`: a
    sampled client gets only part of its local steps done, a share drawn evenly between `least` and 1.
    """

    available: float = 1.0
    lost: float = 0.0
    stragglers: float = 0.0
    least: float = 0.1

    def __post_init__(self) -> None:
        for name in ("available", "lost", "stragglers", "least"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise AccordError(f"{name} must be between 0 and 1, got {value}")


@dataclass(frozen=True)
class Invited:
    """One sampled client, the share of its steps it gets done, and whether its report is lost."""

    client: str
    share: float = 1.0
    lost: bool = False


def invite(clients: Sequence[str], sample: int | None, conditions: Conditions, seed: int, round: int) -> list[Invited]:
    """The round's clients, in the federation's order; all who can be reached if there are fewer than `sample` or it is
    None."""
    reachable = list(clients)
    if conditions.available < 1.0:
        reach = draws.uniform(len(clients), seed, "available", round) < conditions.available
        reachable = [client for client, here in zip(clients, reach, strict=True) if here]
    count = len(reachable) if sample is None else min(sample, len(reachable))
    chosen = [reachable[i] for i in draws.choose(len(reachable), count, seed, "sample", round)]
    if not conditions.stragglers and not conditions.lost:
        return [Invited(client) for client in chosen]
    return [_conditions_of(client, conditions, seed, round) for client in chosen]


def _conditions_of(client: str, conditions: Conditions, seed: int, round: int) -> Invited:
    slow, share, lost = draws.uniform(3, seed, "conditions", round, client)
    straggles = slow < conditions.stragglers
    return Invited(
        client,
        share=float(conditions.least + (1 - conditions.least) * share) if straggles else 1.0,
        lost=bool(lost < conditions.lost),
    )


def cohort_row(
    number: int, invited: Sequence[Invited], outcome: Outcome, attackers: Collection[str] | None = None
) -> RoundRow:
    """What a round's record tells of its clients: who took part, who was left out and why, their mean training loss,
    and how many were attackers, if there are any."""
    left_out = {guest.client: LOST for guest in invited if guest.lost}
    left_out |= {row.client: row.left_out_because for row in outcome.rows if row.left_out_because}
    accepted = [row for row in outcome.rows if row.left_out_because is None]
    samples = sum(row.samples for row in accepted)
    return RoundRow(
        round=number,
        invited=len(invited),
        accepted=len(accepted),
        left_out=left_out,
        steps=sum(row.steps for row in accepted),
        samples=samples,
        train_loss=sum(row.loss * row.samples for row in accepted) / samples if samples else None,
        client_norm=sum(row.norm for row in accepted) / len(accepted) if accepted else None,
        told=outcome.told,
        attackers=None if attackers is None else sum(row.client in attackers for row in accepted),
    )
