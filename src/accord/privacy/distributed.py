"""Noise that clients add themselves, so that no server has to be trusted with it: each a share of a discrete Gaussian,
on whole numbers that are then added by secure aggregation (Kairouz, Liu and Steinke, 2021).

The shares are calibrated to as many clients as each of them can itself see remain, so drop-outs down to the threshold
leave no less noise than was promised, whatever the server says of the cohort's size. Noise is sampled by OpenDP from
the operating system's secure source; no seed is involved, and nobody can repeat it. The server chooses and sees the
cohorts, so that sampling hides nobody from it, and epsilon counts none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from accord.core.errors import AccordError
from accord.core.record import Field, Record
from accord.core.round import Round
from accord.privacy.accounting import epsilon_against_server
from accord.privacy.dp import Privacy, Released
from accord.privacy.secagg_graph import graph_of, remaining
from accord.privacy.secure_sum import FixedPoint, SecureSum

# Standard deviation of a client's share, in whole numbers, from which on sums of discrete Gaussians are as good as one:
# they differ by a term of at most 10 K exp(-pi^2 s^2), which is 10^-270 at 8.
LEAST_SCALE = 8.0
ROOM = 12.0  # standard deviations that a sum must have room for: beyond lies 10^-32 of a Gaussian
_BLOCK = 1 << 16  # numbers sampled at a time

Whole = Mapping[str, tuple[Field, int]]  # a record's fields in whole numbers, and their bits


@dataclass(frozen=True)
class DistributedPrivacy(Privacy):
    """`Privacy` whose noise is the clients'. `threshold` is the share of a cohort that must remain, `neighbours` are
    how many of it a client shares keys with (None: as `secagg_graph` says)."""

    threshold: float = 1.0
    neighbours: int | None = None

    hides_empty_rounds = False  # below the threshold there is no sum, and the server knows who dropped out

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vote_noise is not None:
            raise AccordError(
                f"vote_noise must be left out where clients add the noise, got {self.vote_noise}: votes travel in too"
                " few bits for it, and the mask is computed from the noised sum"
            )

    def enforced(self, cohort: int) -> int:
        """How many clients' noise there is at the least in a sum that a client helps to unmask: as many as it sees
        remain of those that hold its shares, itself among them. The rest of the cohort is the server's word."""
        graph = graph_of(cohort, self.threshold, self.neighbours)
        return min(graph.opens, graph.remain)

    # ------------------------------------------------------------------------------------------- at the client

    def sensitivity(self, form: FixedPoint, size: int) -> float:
        """The largest norm of a client's update in whole numbers: rounding moves each of `size` coordinates by up to
        one half."""
        return self.clip / form.step + math.sqrt(size) / 2

    def scale(self, form: FixedPoint, size: int, cohort: int) -> float:
        """The standard deviation of a client's share of the noise, in whole numbers."""
        return self.noise * self.sensitivity(form, size) / math.sqrt(self.enforced(cohort))

    def check_room(self, secure: SecureSum, cohort: int, size: int) -> None:
        """Refuses a bound that noise could carry a sum beyond, where it would wrap around, and noise of so few steps
        that it is none."""
        form, remain = secure.form("update"), remaining(cohort, self.threshold)
        # first: with steps this coarse, a larger bound would make them coarser still
        if self.scale(form, 1, cohort) < LEAST_SCALE:
            raise AccordError(
                f"bits must be more than {secure.bits}: a client's noise would be {self.scale(form, 1, cohort):.2g}"
                f" steps, and {LEAST_SCALE:g} make a discrete Gaussian as good as one that is not"
            )
        longest = self.sensitivity(form, size) * form.step
        # the fewer are added, the larger their noise is beside their bounds
        deviation = self.noise / math.sqrt(remain * self.enforced(cohort))
        least = longest * (1.0 + ROOM * deviation) + form.step * remain
        if secure.bound < least:
            raise AccordError(
                f"bound must be at least {least:.4g} for clip {self.clip:g} and noise {self.noise:g}, got"
                f" {secure.bound:g}: the sum holds the clients' noise too"
            )

    def noised(self, fields: Whole, secure: SecureSum, cohort: int) -> dict[str, tuple[Field, int]]:
        """A client's clipped record with its share of the noise. Votes are not sent."""
        self.check_room(
            secure, cohort, sum(field.value.numel() for field, _ in fields.values() if field.kind == "update")
        )
        hidden = dict(fields)
        for path, (field, bits) in fields.items():
            if field.kind == "votes":
                hidden[path] = (replace(field, value=torch.zeros_like(field.value)), bits)
            elif field.kind == "update":
                form, size = secure.form("update"), field.value.numel()
                half, signed = 1 << bits - 1, field.value
                signed = torch.where(signed >= half, signed - 2 * half, signed)
                if float(signed.double().norm()) > self.sensitivity(form, size) * (1 + 1e-9):
                    raise AccordError("an update in whole numbers is longer than clip and rounding allow")
                noise = discrete_gaussian(size, self.scale(form, size, cohort))
                value = (signed + torch.from_numpy(noise).view(signed.shape)) & (2 * half - 1)
                hidden[path] = (replace(field, value=value), bits)
            elif field.kind not in ("count", "weight") and field.value.numel():
                raise AccordError(f"privacy covers the sum of the clipped updates, and {path} is another sum")
        return hidden

    # ------------------------------------------------------------------------------------------- at the server

    def released(self, record: Record, round: Round) -> Record:
        """The record as it came, which has its noise: counts are those that were fixed before the round, and net votes
        are computed from the noised sum."""
        if isinstance(record, Released):
            return record
        cohort = float(round.cohort or round.clients)
        noised = record.part("average")["delta"]
        # more noise than promised where more clients remained than each can see
        came = float(record.part("buffers")["weight"])
        more = math.sqrt(max(1.0, came / self.enforced(int(cohort))))

        def seen(field: Field) -> Field:
            if field.kind == "votes":
                return replace(field, value=self.votes_from(noised / more, cohort))
            if field.kind in ("count", "weight"):
                return replace(field, value=torch.full_like(field.value, cohort))
            return field

        return Released(**dict(record.mapped(seen)))

    def of_round(self, record: Record, norms: Sequence[float]) -> dict[str, Any]:
        """Nothing: a server that sees no record has no figures for tuning."""
        return {}

    def spent(self, masked: bool, clients: int, sample: int | None, rounds: int) -> dict[str, float]:
        """Epsilon towards the server after so many rounds, and its delta, as if the client had been in all of them."""
        return {"epsilon": epsilon_against_server(self.noise, rounds, self.delta), "delta": self.delta}

    def release_text(self, masked: bool, cohort: int) -> str:
        return (
            "to a server that follows the protocol, each round the sum of the updates with the clients' own noise, over"
            f" a denominator of {cohort} that is fixed beforehand. The noise is drawn by every client from its"
            " operating system's secure source; cohorts are known to the server, and epsilon counts no sampling. Not"
            " covered: how inputs are scaled (where that is fitted to all owners' data, every node's counts, sums and"
            " sums of squares by column go to the server unmasked before round one), levels and classes, counts of"
            " samples and steps, who took part or dropped out, skipped rounds, evaluations on clients' data, what"
            " clients that collude with the server know (their own noise among it), and a server that swaps keys,"
            " invents clients or tells different clients different stories"
        )

    def sentences(self, masked: bool, clients: int, sample: int | None, rounds: int, size: int) -> list[str]:
        cohort = sample or clients
        return [
            *super().sentences(masked, clients, sample, rounds, size),
            f"privacy: {self.release_text(masked, cohort)}",
        ]


def discrete_gaussian(size: int, scale: float) -> np.ndarray:
    """So many draws of a discrete Gaussian, int64, by OpenDP, which takes them from the operating system's secure
    source and samples without rounding."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise AccordError("noise of the clients' own needs OpenDP: pip install 'accord-fl[flower]'") from None
    dp.enable_features("contrib")
    add = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale=scale)
    out = np.empty(size, np.int64)
    for start in range(0, size, _BLOCK):
        count = min(_BLOCK, size - start)
        out[start : start + count] = add([0] * count)
    return out
