"""A record as whole numbers modulo 2^bits, which is what a secure-aggregation protocol can add (Bonawitz et al., 2017).

A float x becomes round(x * scale) modulo 2^bits. The scale leaves room for the sum of as many clients as were declared,
so that no sum of theirs can wrap around; who goes beyond what was declared gets a sentence, not a wrong sum. Whole
numbers add without rounding: the only error is that of rounding each value once.

This is the arithmetic: `masked` shows that shares which look random add to the right sum, with masks from keyed draws.
The protocol that agrees on secret keys and recovers the masks of clients that drop out is `accord.deploy.flower`'s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from accord.core import draws
from accord.core.errors import AccordError, check_whole
from accord.core.record import Field, Kind, Record

MOST_BITS = 53  # a float64 holds whole numbers of 53 bits exactly


@dataclass(frozen=True)
class FixedPoint:
    """Numbers between -bound and bound, of which at most `clients` are added, in `bits` bits each.

    >>> form = FixedPoint(clients=100, bound=1.0, bits=32)
    >>> total = sum(form.encode(torch.tensor([0.25])) for _ in range(100))
    >>> round(float(form.decode(total, 100)), 6)
    25.0
    """

    clients: int
    bound: float
    bits: int = 32

    def __post_init__(self) -> None:
        check_whole("clients", self.clients)
        check_whole("bits", self.bits, least=2)
        if self.bits > MOST_BITS:
            raise AccordError(f"bits must be at most {MOST_BITS}, which a float64 holds exactly, got {self.bits}")
        if not 0.0 < self.bound < math.inf:
            raise AccordError(
                f"bound must be above 0 and finite, got {self.bound}: it is the largest number a client may hold"
            )
        if not self.levels:
            raise AccordError(
                f"bits must be at least {votes_bits(self.clients)} to add {self.clients} clients, got {self.bits}"
            )

    @property
    def levels(self) -> int:
        """The largest whole number that one client may hold, so that the sum of all stays below half of the modulus."""
        return ((1 << self.bits - 1) - 1) // self.clients

    @property
    def step(self) -> float:
        """The distance of two numbers that are told apart. A sum of K clients is off by at most K / 2 steps."""
        return self.bound / self.levels

    def encode(self, x: Tensor) -> Tensor:
        """Floats as whole numbers from 0 to 2^bits - 1, int64. A value beyond the bound is refused: cut in silence, it
        would be wrong."""
        largest = float(x.abs().max()) if x.numel() else 0.0
        if not largest <= self.bound:  # NaN is neither above nor below
            raise AccordError(
                f"a value to be summed must lie between {-self.bound:g} and {self.bound:g}, got one of size {largest:g}"
            )
        return self._residue((x.double() * (self.levels / self.bound)).round().long().clamp(-self.levels, self.levels))

    def decode(self, total: Tensor, count: int) -> Tensor:
        """The sum of `count` encoded values, float64; the sum of the whole numbers may have been taken modulo 2^bits or
        not."""
        if not 0 < count <= self.clients:
            raise AccordError(
                f"a sum of 1 to {self.clients} clients was declared, got {count}: more could wrap around unseen"
            )
        residue = self._residue(total)
        signed = torch.where(residue >= 1 << self.bits - 1, residue - (1 << self.bits), residue)
        if bool((signed.abs() > count * self.levels).any()):
            raise AccordError(
                f"the sum is larger than {count} clients can make it: a share is missing, or was added twice"
            )
        return signed.double() * self.step

    def _residue(self, x: Tensor) -> Tensor:
        return x & ((1 << self.bits) - 1)  # the lowest bits of a negative number, too, are its residue

    def masks(self, size: int, client: str, cohort: Sequence[str], secret: int) -> Tensor:
        """What a client adds to its share, `[size]`: a mask for every other client, which the first of the two adds and
        the second takes off. Over the whole cohort they cancel."""
        if client not in cohort or len(set(cohort)) < len(cohort):
            raise AccordError(f"a cohort must name each client once, {client!r} among them, got {list(cohort)}")
        total, mine = torch.zeros(size, dtype=torch.int64), list(cohort).index(client)
        for theirs, other in enumerate(cohort):
            if other == client:
                continue
            pair = sorted((mine, theirs))
            # the same 64 bits, signed
            drawn = draws.raw(size, secret, "secure sum", cohort[pair[0]], cohort[pair[1]]).astype(np.int64)
            total += torch.from_numpy(drawn) if mine < theirs else -torch.from_numpy(drawn)
        return self._residue(total)

    def masked(self, share: Tensor, client: str, cohort: Sequence[str], secret: int) -> Tensor:
        """An encoded vector `[size]` under the client's masks: by itself as good as random."""
        return self._residue(share + self.masks(share.numel(), client, cohort, secret).view(share.shape))


def votes_bits(clients: int) -> int:
    """Bits for a sum of so many signs, which takes one of 2 K + 1 values: ceil(log2(2 K + 1)).

    >>> votes_bits(10), votes_bits(100)
    (5, 8)
    """
    return (2 * clients).bit_length()


def votes_form(clients: int) -> FixedPoint:
    """Signs of at most so many clients, in as few bits as there are."""
    return FixedPoint(clients, 1.0, votes_bits(clients))


@dataclass(frozen=True)
class SecureSum:
    """A record's fields as whole numbers: `encode` at every client, add the records, `decode` the total.

    `bound` is the largest size of a coordinate of any float field; with privacy, `clip` is one. Votes and counts are
    whole already and take `votes_bits`; a sample weight must stay below `weight_bound`. The number of clients goes
    along in the clear.
    """

    clients: int
    bound: float
    bits: int = 32
    weight_bound: float = 2.0**20

    def check_cohort(self, cohort: int) -> None:
        """Refuses a round of more clients than there is room for."""
        if cohort > self.clients:
            raise AccordError(f"a secure sum of {self.clients} clients was declared, and a round has {cohort}")

    def form(self, kind: Kind) -> FixedPoint:
        """How a field of that kind is written."""
        if kind in ("votes", "count"):
            return votes_form(self.clients)
        if kind == "weight":
            return FixedPoint(self.clients, self.weight_bound, MOST_BITS)
        return FixedPoint(self.clients, self.bound, self.bits)

    def encode(self, record: Record) -> Record:
        """One client's record as whole numbers, int64, which add as records do."""
        for path, field in record.fields().items():
            if field.how != "sum":
                raise AccordError(
                    f"a secure sum adds, and {path} combines by {field.how}: choose a rule that needs sums alone"
                )
        whole = record.mapped(lambda field: replace(field, value=self.form(field.kind).encode(field.value)))
        return Record(clients=Field(torch.ones(1, dtype=torch.int64)), record=whole)

    def decode(self, total: Record) -> Record:
        """The sum of encoded records as the record that the server lowers, in float64."""
        count = int(total["clients"])
        return total.part("record").mapped(
            lambda field: replace(field, value=self.form(field.kind).decode(field.value, count))
        )
