"""User-level differential privacy: every client's update is clipped, and the summed record gets Gaussian noise (McMahan
et al., 2018).

What may leave the sum is listed here and nothing else may: the update, and the votes if a mask counts them. The number
of clients is fixed before the round, so it tells nothing. Shapes: a cohort of C clients, P parameters.

The noise is drawn like everything else in accord, by key, so that an experiment can be repeated and resumed. Whoever
knows the seed can take it off again: a deployment must draw its noise, and its cohorts, from a secure source.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError, check_bounds
from accord.core.layout import Layout
from accord.core.record import Field, Record
from accord.core.reports import Reports
from accord.core.round import Round
from accord.privacy.accounting import check_delta, epsilon, spent_text

# an update is clipped by a hair more than asked for, so that rounding cannot carry its norm above the bound
_BELOW = 1.0 - 1e-6


_NOTHING = Field(torch.zeros(0))


class Released(Record):
    """A record that has its noise: all that a server with privacy may look at."""


@dataclass(frozen=True)
class Privacy:
    """How far a client's update may reach, and how much noise hides it. Sensitivities are those of one client's
    contribution: `clip` for the update and sqrt(P) for its votes, a vector of P signs.

    `noise` and `vote_noise` are noise multipliers: standard deviations in units of these sensitivities. Without
    `vote_noise` no votes are released: a mask is computed from the noised sum, at no further cost (see `told`).
    """

    clip: float
    noise: float
    delta: float = 1e-5
    vote_noise: float | None = None

    hides_empty_rounds = True  # a round without a sound report gets its noise as any other does

    def __post_init__(self) -> None:
        what = {
            "clip": "it is the largest norm that a client's update may have",
            "noise": "without noise no epsilon is finite",
            "vote_noise": "without noise no epsilon is finite; leave it out to compute the mask from the noised sum",
        }
        for name, why in what.items():
            value = getattr(self, name)
            if value is None and name == "vote_noise":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < math.inf:
                raise AccordError(f"{name} must be above 0 and finite, got {value!r}: {why}")
            check_bounds(value, name)
        check_delta(self.delta)

    # ---------------------------------------------------------------------------------------- what it refuses

    def check_layout(self, layout: Layout) -> None:
        """Refuses a model with buffers: they would be averaged without clip or noise."""
        if layout.buffers:
            name = layout.buffers[0].name
            raise AccordError(
                f"privacy covers parameters, and the model has buffers such as {name}: use group normalisation, or none"
            )

    # ------------------------------------------------------------------------------------------------ a round

    def bound(self, reports: Reports) -> Reports:
        """The reports with every `delta: [..., K, P]` scaled down to the norm `clip` where it is longer. Signs stay as
        they are."""
        norms = torch.linalg.vector_norm(reports.delta, dim=-1, keepdim=True, dtype=torch.float64)
        scale = (self.clip * _BELOW / norms).clamp(max=1.0)
        return replace(reports, delta=reports.delta * scale.to(reports.delta.dtype))

    def check_record(self, record: Record) -> None:
        """Refuses a record that tells more of a client than one update and one vector of votes, the two that noise is
        put on."""
        fields = {path: field for path, field in record.fields().items() if field.kind not in ("count", "weight")}
        fields.pop("buffers.change")  # of a model with buffers, which is refused, or empty
        if fields.pop("average.delta", _NOTHING).kind != "update":
            raise AccordError("average must be mean('uniform') with privacy: its noise is for the sum of the updates")
        beyond = [path for path, field in fields.items() if field.kind != "votes"] or list(fields)[1:]
        if self.vote_noise is not None and not fields:
            raise AccordError(f"vote_noise has no meaning without votes, got {self.vote_noise}: this mask counts none")
        if beyond:
            raise AccordError(
                "mask must be gma or and_mask with privacy, whose votes have a bound: with this one clients would send"
                f" {beyond[0]} too"
            )

    def check_sums(self, record: Record, reports: Reports) -> None:
        """Refuses sums that only call themselves updates or votes: noise is for the clipped updates as they are, and
        their signs."""
        summed = {"update": reports.total.value, "votes": reports.votes.value if self._votes_in(record) else None}
        for path, field in record.fields().items():
            if field.kind in summed and field.value is not summed[field.kind]:
                raise AccordError(
                    f"privacy covers the sum of the clipped updates and of their signs, and {path} is another sum"
                )

    def _votes_in(self, record: Record) -> bool:
        return any(field.kind == "votes" for field in record.fields().values())

    def released(self, record: Record, round: Round) -> Record:
        """The record as the server may see it: noise on its sums, and counts that were fixed before the round. Noise
        goes on once, so a record that has it stays as it is."""
        if isinstance(record, Released):
            return record
        self.check_record(record)
        cohort = float(round.cohort or round.clients)
        update = record.part("average")["delta"]
        noised = update + self._noise("update", self.noise * self.clip, update, round)

        def seen(field: Field) -> Field:
            if field.kind == "update":
                return replace(field, value=noised)
            if field.kind == "votes":
                return replace(field, value=self._votes(field.value, noised, cohort, round))
            return (
                replace(field, value=torch.full_like(field.value, cohort))
                if field.kind in ("count", "weight")
                else field
            )

        return Released(**dict(record.mapped(seen)))

    def _votes(self, votes: Tensor, noised: Tensor, cohort: float, round: Round) -> Tensor:
        if self.vote_noise is None:
            return self.votes_from(noised, cohort)
        return votes + self._noise("votes", self.vote_noise * math.sqrt(votes.shape[-1]), votes, round)

    def votes_from(self, noised: Tensor, cohort: float) -> Tensor:
        """Net votes computed from the noised sum alone, `[..., P]`: on a coordinate, the cohort times the share of pure
        noise that is smaller than what was seen. With tau 0.4 a coordinate passes whole where four noises in ten would
        have been smaller."""
        return cohort * noised.sign() * torch.erf(noised.abs() / (self.noise * self.clip * math.sqrt(2.0)))

    def _noise(self, what: str, deviation: float, like: Tensor, round: Round) -> Tensor:
        """On the CPU, whatever the device: logarithms differ by a bit between them."""
        key = draws.device_key(round.seed, f"privacy: {what}", round.number)
        return (draws.normal(like.shape[-1], key, torch.device("cpu")) * deviation).to(like)

    # ------------------------------------------------------------------------------------------ what it costs

    def multiplier(self, masked: bool) -> float:
        """The noise multiplier of all that a round releases. Update and votes together are one Gaussian mechanism: in
        units of their own noise their sensitivities are 1 / noise and 1 / vote_noise, which add in squares."""
        if not masked or self.vote_noise is None:
            return self.noise
        return 1.0 / math.hypot(1.0 / self.noise, 1.0 / self.vote_noise)

    def spent(self, masked: bool, clients: int, sample: int | None, rounds: int) -> dict[str, float]:
        """Epsilon after so many rounds, and its delta."""
        return {"epsilon": epsilon(self.multiplier(masked), clients, sample, rounds, self.delta), "delta": self.delta}

    def signal(self, cohort: int, size: int) -> float:
        """The most that a coordinate's votes can stand out of their noise: C / (vote_noise sqrt(P)), when all clients
        agree. The same holds for the noised sum, when all clients send one update that is spread evenly."""
        return cohort / ((self.vote_noise or self.noise) * math.sqrt(size))

    def of_round(self, record: Record, norms: Sequence[float]) -> dict[str, Any]:
        """What a simulation tells of a round, from the record without noise. It is for tuning, and no part of what is
        released."""
        noise = self.noise * self.clip
        row = {
            "clipped": sum(norm > self.clip for norm in norms) / max(len(norms), 1),
            "update_to_noise": _root_mean_square(record.part("average")["delta"]) / noise,
        }
        if self.vote_noise is not None:
            votes = next(field.value for field in record.fields().values() if field.kind == "votes")
            row["votes_to_noise"] = _root_mean_square(votes) / (self.vote_noise * math.sqrt(votes.shape[-1]))
        return row

    def release_text(self, masked: bool, cohort: int) -> str:
        """All that leaves the sum in a round; the rest of a run's record is for tuning, and epsilon says nothing of
        it."""
        votes = "; the votes with noise of their own" if masked and self.vote_noise is not None else ""
        return (
            f"each round the mean update with noise, over a denominator of {cohort} that is fixed beforehand{votes},"
            " also of rounds without a sound report. Not covered: preparation.json (how inputs are scaled, levels and"
            " classes), counts of samples and steps, losses, norms, who was left out, evaluations on clients' data,"
            " and parts of the model that stay with clients"
        )

    def sentences(self, masked: bool, clients: int, sample: int | None, rounds: int, size: int) -> list[str]:
        """What a run will cost in privacy, and what will be left of the votes, before it begins."""
        cohort = sample or clients
        spent = self.spent(masked, clients, sample, rounds)
        lines = [
            f"privacy: {spent_text(spent)} after {rounds} rounds of {cohort} of {clients} clients, any one of them"
            " replaced"
        ]
        if self.delta > 1 / clients:
            lines.append(
                f"privacy: delta {self.delta:g} is above 1 / {clients} clients: it allows publishing all that one of"
                " them has; choose a smaller one"
            )
        if masked:
            signal = f"signal to noise of a coordinate {self.signal(cohort, size):.2g}"
            how = (
                f"the mask is computed from the noised sum, {signal} if all clients send one update that is spread"
                " evenly"
            )
            if self.vote_noise is not None:
                how = (
                    f"{cohort} net votes meet noise of {self.vote_noise * math.sqrt(size):.4g}, {signal} if all clients"
                    " agree"
                )
            lines.append(f"privacy: {how}")
        return lines


def _root_mean_square(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())
