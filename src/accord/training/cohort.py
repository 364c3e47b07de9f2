"""Who takes part in a round: C of N clients, some of them out of reach, slow, or lost on the way back. All by keyed
draws."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from accord.core import draws
from accord.core.errors import AccordError
from accord.core.record import State
from accord.core.reports import LOST
from accord.data.federated import Federation
from accord.engines.contract import Job, Member, Outcome
from accord.runs.rows import RoundRow

_KEPT = 2  # rounds before the last whose invitations are kept


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
            if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                raise AccordError(f"{name} must be between 0 and 1, got {value!r}")


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


# by federation, then by how many of whom are drawn from which seed, then by round
_Drawn = dict[tuple[int | None, Conditions, int], dict[int, tuple[list[Invited], list[Member]]]]
_invited: WeakKeyDictionary[Federation, _Drawn] = WeakKeyDictionary()


class Cohorts:
    """The cohorts of one run. `state_of` gives what a client remembers, of a rule whose clients do."""

    def __init__(self, job: Job, sample: int | None, conditions: Conditions, state_of: Callable[[str], State]) -> None:
        self._job, self._how, self._state_of = job, (sample, conditions, job.seed), state_of
        self._clients, self._remembers = job.fed.clients, job.remembers
        self._rounds = _invited.setdefault(job.fed, {}).setdefault(self._how, {})
        self._asked: dict[int, list[Member]] = {}  # by round: who trains in it
        self._known: dict[str, Member] = {}  # clients that get all their steps done: the same in every round

    def invited(self, number: int) -> list[Invited]:
        """Who is invited to that round."""
        return self._drawn(number)[0]

    def members(self, number: int) -> list[Member]:
        """Who trains in that round: a client whose report will be lost need not. The last answers are kept: an engine
        that looks ahead asks before its time."""
        if number not in self._asked:
            self._asked = {other: members for other, members in self._asked.items() if abs(other - number) == 1}
            self._asked[number] = self._members(number)
        return self._asked[number]

    def took_part(self, row: RoundRow) -> set[str]:
        """The clients whose reports made a round's step. Told by its row alone, so that a resumed run tells the
        same."""
        if row.skipped or self._job.fed.pooled:
            return set()
        return {guest.client for guest in self.invited(row.round)} - set(row.left_out)

    def _members(self, number: int) -> list[Member]:
        fed, present = self._job.fed, self._drawn(number)[1]
        if fed.pooled:
            return [Member("pooled", fed.pooled_rows([member.client for member in present], self._job.seed, number))]
        if not self._remembers:
            return present
        return [replace(member, read_state=partial(self._state_of, member.client)) for member in present]

    def _drawn(self, number: int) -> tuple[list[Invited], list[Member]]:
        """Who is invited to that round, and the clients of which a report will come, as those of a rule that remembers
        nothing: the same in all runs of a seed over one federation, so they draw once."""
        drawn = self._rounds
        if number not in drawn:
            for old in [other for other in drawn if other < number - _KEPT]:
                del drawn[old]
            guests = invite(self._clients, *self._how, number)
            drawn[number] = guests, [self._member(guest) for guest in guests if not guest.lost]
        return drawn[number]

    def _member(self, guest: Invited) -> Member:
        client, rows = guest.client, self._job.fed.train[guest.client]
        if guest.share < 1.0:
            return Member(client, rows, share=guest.share)
        if client not in self._known:
            self._known[client] = Member(client, rows)
        return self._known[client]


def cohort_row(
    number: int, invited: Sequence[Invited], outcome: Outcome, attackers: Collection[str] | None = None, **more: Any
) -> RoundRow:
    """What a round's record tells of its clients: who took part, who was left out and why, their mean training loss,
    and how many were attackers, if there are any; and what `more` is known of it."""
    accepted, left_out = outcome.accepted, {guest.client: LOST for guest in invited if guest.lost}
    if len(accepted) < len(outcome.rows):
        left_out |= {row.client: row.left_out_because for row in outcome.rows if row.left_out_because}
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
        engine_fields=outcome.row_fields,
        attackers=None if attackers is None else sum(row.client in attackers for row in accepted),
        **more,
    )
