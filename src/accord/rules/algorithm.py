"""`Algorithm(local, average, mask, server)`: four parts, and what they make of a cohort's reports."""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from accord.core.errors import AccordError
from accord.core.layout import Layout
from accord.core.protocols import Average
from accord.core.record import Record, State, one_pass, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.privacy.dp import Privacy
from accord.rules.averages import mean
from accord.rules.combine import Lowered
from accord.rules.local import Local, sgd
from accord.rules.masks import Mask, and_mask, gma
from accord.rules.servers import Server, step, take_step

Memory = dict[str, State]  # what each part remembers between rounds


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm: what clients do, how their updates are averaged, how far each coordinate is trusted, how the server steps."""

    local: Local = sgd()
    average: Average = mean()
    mask: Mask | None = None
    server: Server = step()
    name: str = "custom"
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        if self.mask is not None and not isinstance(self.mask, Mask):
            raise AccordError(f"mask must be None or a mask such as gma(0.4), got {self.mask!r}")
        if isinstance(self.average, type) or not hasattr(self.average, "lift"):
            raise AccordError(f"average must be an average such as mean() or median(), got {self.average!r}")
        if self.privacy is not None:
            self._check_privacy(self.privacy)

    def _check_privacy(self, privacy: Privacy) -> None:
        """Refuses parts that would release more than is clipped and noised, or of which the accounting would not be true."""
        if not isinstance(self.average, mean) or self.average.weighting != "uniform":
            got = repr(self.average.weighting) if isinstance(self.average, mean) else type(self.average).__name__
            raise AccordError(f"weighting must be 'uniform' with privacy, got {got}: a client that counts more would be protected less")
        if self.local.remembers or self.local.pooled or self.local.split:
            raise AccordError(f"{self.name} asks more of clients than an update, and privacy covers an update and votes alone")
        if self.mask is not None and type(self.mask) not in (gma, and_mask):
            raise AccordError(f"mask must be gma or and_mask with privacy, whose votes have a bound, got {self.mask!r}")
        if self.mask is None and privacy.vote_noise is not None:
            raise AccordError(f"vote_noise has no meaning without a mask, got {privacy.vote_noise}: nobody votes")

    def with_privacy(self, clip: float, noise: float, delta: float = 1e-5, vote_noise: float | None = None) -> "Algorithm":
        """The same algorithm with user-level differential privacy (docs/privacy.md).

        >>> private = fedavg(mask=gma(0.4), weighting="uniform").with_privacy(clip=1.0, noise=1.0)
        """
        return replace(self, privacy=Privacy(clip, noise, delta, vote_noise))

    @property
    def needs(self) -> frozenset[str]:
        """What clients must report besides their delta."""
        return self.local.needs | self.average.needs | (self.mask.needs if self.mask else frozenset())

    @property
    def least(self) -> int:
        """The fewest reports that a round can be made of."""
        return getattr(self.average, "least", 1)

    def check_cohort(self, clients: int) -> None:
        """Refuses so few clients a round that none could count."""
        if clients < self.least:
            self.average.check_cohort(clients)  # type: ignore[attr-defined]

    def init(self, layout: Layout, clients: int, vector: Tensor) -> Memory:
        """What every part remembers before the first round."""
        parts = {"local": self.local, "average": self.average, **({"mask": self.mask} if self.mask else {})}
        begun = {part: {name: value.to(vector.device) for name, value in own.init(layout, clients).items()} for part, own in parts.items()}
        return {"mask": {}, **begun, "server": self.server.init(vector)}

    def lift(self, reports: Reports, memory: Memory) -> Record:
        """One record of a cohort, or of any part of it: records of parts add up. With privacy, updates are clipped first."""
        reports = reports if self.privacy is None else self.privacy.bound(reports)
        weights = self.average.weights(reports)
        with one_pass(self.mask is not None):
            parts = {
                "local": self.local.lift(reports, memory["local"]),
                "average": self.average.lift(reports, memory["average"]),
                "buffers": Record(change=total(reports.buffers, weights), weight=total(weights)),
            }
            if self.mask:  # a mask that weighs clients weighs them as the average does
                parts["mask"] = self.mask.lift(replace(reports, weight=weights), memory["mask"])
        return Record(**parts)

    @property
    def asks_twice(self) -> bool:
        """Whether clients are asked again once all have reported. Such clients keep what they reported in `extra` until then."""
        return getattr(self.average, "passes", 1) == 2

    def again(self, record: Record, kept: Sequence[State]) -> Record:
        """The record after the second exchange, if there is one: clients see the first one's sums, and add to others from what they kept.

        `kept` has the `extra` of some clients each, `[..., K, P]`, in the order in which they are added.
        """
        if not self.asks_twice:
            return record
        second = functools.reduce(operator.add, (self.average.second(own, record.average) for own in kept))  # type: ignore[attr-defined]
        return self.joined(record, second)

    def joined(self, record: Record, second: Record) -> Record:
        """A cohort's record with what its second exchange added up."""
        return Record(**{**dict(record), "average": Record(**dict(record.average), **dict(second))})

    def released(self, record: Record, round: Round) -> Record:
        """What the server may see of a cohort: the record itself or, with privacy, the record with its noise, which is put on once."""
        return record if self.privacy is None else self.privacy.released(record, round)

    def lower(self, record: Record, memory: Memory, round: Round) -> tuple[Lowered, Tensor, Memory]:
        """The averaged update and its mask, the change of the buffers (never masked), and what all parts but the server remember now."""
        record = self.released(record, round)
        update, average = self.average.lower(record.average, memory["average"], round)
        mask, mask_memory = self.mask.lower(record.mask, memory["mask"], round) if self.mask else (None, {})
        local = self.local.lower(record.local, memory["local"], round)
        buffers = record.buffers.change / record.buffers.weight
        return Lowered(update, mask), buffers, {**memory, "local": local, "average": average, "mask": mask_memory}

    def step(self, lowered: Lowered, memory: Memory) -> tuple[Tensor, Memory]:
        """What the server adds to the model, and the memory after it."""
        server, change = take_step(self.server, memory["server"], lowered.update, lowered.mask)
        return change, {**memory, "server": server}
