"""`Algorithm(local, average, mask, server)`: four parts, and what they make of a cohort's reports."""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from accord.core.errors import AccordError, check_bounds
from accord.core.layout import Layout
from accord.core.protocols import GRADIENTS, Average, Local, Mask, Server, check_part
from accord.core.record import Record, State, total
from accord.core.reports import Reports
from accord.core.round import Round
from accord.privacy.dp import Privacy
from accord.rules.averages import mean
from accord.rules.local import sgd
from accord.rules.servers import step

Memory = dict[str, State]  # what each part remembers between rounds


@dataclass(frozen=True)
class Lowered:
    """What a rule makes of a cohort: the averaged update `[P]` and the mask `[P]` for the server's step, or None."""

    update: Tensor
    mask: Tensor | None


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm: what clients do, how their updates are averaged, how far each coordinate is trusted, how
    the server steps.

    Each part may be yours: see `accord.core.protocols`. With `pools` it trains on the federation's data in one place
    (`Federation.pool`). What `personal` names stays with each client: it is never sent, averaged or voted on.
    """

    local: Local = sgd()
    average: Average = mean()
    mask: Mask | None = None
    server: Server = step()
    name: str = "custom"
    privacy: Privacy | None = None
    pools: bool = False
    personal: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_part("local", self.local, "a local rule such as sgd()")
        check_part("average", self.average, "an average such as mean() or median()")
        if self.mask is not None:
            check_part("mask", self.mask, "None or a mask such as gma(0.4)")
        check_part("server", self.server, "a server rule such as step() or adam()")
        check_bounds({"local": self.local, "average": self.average, "mask": self.mask, "server": self.server})
        self._check_personal()
        if self.privacy is not None:
            self._check_privacy(self.privacy)

    def _check_personal(self) -> None:
        """Refuses what cannot have parameters that stay with clients."""
        patterns = (self.personal,) if isinstance(self.personal, str) else self.personal
        if not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise AccordError(f"personal must be names or patterns of parameters, such as 'head.*', got {patterns!r}")
        object.__setattr__(self, "personal", tuple(patterns))
        if not patterns:
            return
        local = self.local
        alone = local.own_models or local.beside is not None or local.engine is not None
        if self.pools or alone or not local.reports_updates:
            raise AccordError(f"personal has no meaning with {self.name}: its clients keep whole models, or share none")

    def _check_privacy(self, privacy: Privacy) -> None:
        """Refuses parts that would release more than is clipped and noised, or of which the accounting would not be
        true."""
        if self.local.remembers or self.pools or not self.local.reports_updates:
            raise AccordError(
                f"{self.name} asks more of clients than an update, and privacy covers an update and votes alone"
            )
        if self.asks_twice:
            raise AccordError(
                f"{self.average.label} has a second exchange, whose sums have no noise: it cannot be used with privacy"
            )
        if self.mask is None and privacy.vote_noise is not None:
            raise AccordError(f"vote_noise has no meaning without a mask, got {privacy.vote_noise}")
        privacy.check_record(self.sample_record(Layout.flat(1)))

    def with_personal(self, *patterns: str) -> "Algorithm":
        """The same algorithm with parameters that stay with the clients (docs/how-to/personal.md).

        >>> algorithm = fedavg(mask=gma(0.4)).with_personal("head.*", "batchnorm")
        """
        return replace(self, personal=patterns)

    def with_privacy(
        self, clip: float, noise: float, delta: float = 1e-5, vote_noise: float | None = None
    ) -> "Algorithm":
        """The same algorithm with user-level differential privacy (docs/explanation/privacy.md).

        >>> private = fedavg(mask=gma(0.4), weighting="uniform").with_privacy(clip=1.0, noise=1.0)
        """
        return replace(self, privacy=Privacy(clip, noise, delta, vote_noise))

    @property
    def needs(self) -> frozenset[str]:
        """What clients must report besides their delta."""
        return self.local.needs | self.average.needs | (self.mask.needs if self.mask else frozenset())

    def sample_reports(self, layout: Layout) -> Reports:
        """The report of one client that did not move, which shows what a record of this algorithm looks like."""
        zero, one = torch.zeros(1, layout.size, dtype=layout.dtype), torch.ones(1, 1, dtype=layout.dtype)
        buffers = torch.zeros(1, layout.buffer_size, dtype=torch.float64)
        extra = {name: zero if name in GRADIENTS else zero[:, :1] for name in self.needs}
        state = {name: value[None] for name, value in self.local.fresh(zero[0], buffers[0]).items()}
        return Reports(zero, 2 * one, one, buffers, extra, state, state)

    def sample_record(self, layout: Layout) -> Record:
        """What one client's record looks like: its fields, their shapes and types."""
        reports = self.sample_reports(layout)
        return self.lift(reports, self.init(layout, 1, reports.delta[0]))

    def record_of_nobody(self, layout: Layout, device: torch.device) -> Record:
        """What a cohort without a sound report adds up to: zeros."""
        sample = self.sample_record(layout)
        return sample.mapped(lambda field: replace(field, value=torch.zeros_like(field.value, device=device)))

    def bytes_of_a_client(self, layout: Layout) -> tuple[int, int]:
        """What one client receives and sends in a round: the model both ways, what the local rule is told and adds up,
        what the average and the mask need besides, and a second exchange where there is one."""
        reports, sent = self.sample_reports(layout), self.local.init(layout, 1)
        needs = self.average.needs | (self.mask.needs if self.mask else frozenset())
        added = self.local.lift(reports, sent).fields().values()
        down = [reports.delta, reports.buffers, *sent.values()]
        up = [reports.delta, reports.buffers, *(reports.extra[name] for name in needs)]
        up += [field.value for field in added]
        if self.asks_twice:
            first = self.broadcast(self.sample_record(layout))
            down += [field.value for field in first.fields().values()]
            up += [field.value for field in self.average.second(reports.extra, first).fields().values()]
        return sum(value.nbytes for value in down), sum(value.nbytes for value in up)

    def init(self, layout: Layout, clients: int, vector: Tensor) -> Memory:
        """What every part remembers before the first round."""
        begun = {
            "local": self.local.init(layout, clients),
            "average": self.average.init(layout, clients),
            "mask": self.mask.init(layout, clients) if self.mask else {},
        }
        here = {part: {name: value.to(vector.device) for name, value in state.items()} for part, state in begun.items()}
        return {**here, "server": self.server.init(vector)}

    def weighted(self, reports: Reports) -> Reports:
        """The reports with the average's weights, which a mask weighs by too. With privacy, updates are clipped
        first."""
        bounded = reports if self.privacy is None else self.privacy.bound(reports)
        weights = self.average.weights(bounded)
        return bounded if weights is bounded.weight else replace(bounded, weight=weights)

    def lift(self, reports: Reports, memory: Memory) -> Record:
        """One record of a cohort, or of any part of it: records of parts add up."""
        weighted = self.weighted(reports)
        if self.privacy is not None and not torch.equal(weighted.weight, weighted.one):
            raise AccordError(
                f"weighting must be 'uniform' with privacy, got {self.average!r}: larger weights would protect a client"
                " less"
            )
        # first: votes are counted while updates are summed
        parts = {"mask": self.mask.lift(weighted, memory["mask"])} if self.mask else {}
        record = Record(
            local=self.local.lift(reports, memory["local"]),
            average=self.average.lift(weighted, memory["average"]),
            buffers=Record(weight=weighted.total_weight, change=total(reports.buffers, weighted.weight)),
            **parts,
        )
        if self.privacy is not None:
            self.privacy.check_sums(record, weighted)
        return record

    @property
    def asks_twice(self) -> bool:
        """Whether clients are asked again once all have reported. Such clients keep what they reported in `extra` until
        then."""
        return self.average.passes == 2

    def again(self, record: Record, kept: Sequence[State]) -> Record:
        """The record after the second exchange, if there is one: clients see the first one's sums, and add to others
        from what they kept.

        `kept` has the `extra` of some clients each, `[..., K, P]`, in the order in which they are added.
        """
        if not self.asks_twice:
            return record
        first = self.broadcast(record)
        return self.joined(
            record, functools.reduce(operator.add, (self.average.second(state, first) for state in kept))
        )

    def broadcast(self, record: Record) -> Record:
        """The sums of the first exchange that the server sends to clients for the second."""
        return Record(**{name: entry for name, entry in record.part("average") if name in self.average.broadcasts})

    def joined(self, record: Record, second: Record) -> Record:
        """A cohort's record with what its second exchange added up."""
        return Record(**{**dict(record), "average": Record(**dict(record.part("average")), **dict(second))})

    def released(self, record: Record, round: Round) -> Record:
        """What the server may see of a cohort: the record itself or, with privacy, the record with its noise, which is
        put on once."""
        return record if self.privacy is None else self.privacy.released(record, round)

    def lower(self, record: Record, memory: Memory, round: Round) -> tuple[Lowered, Tensor, Memory]:
        """The averaged update and its mask, the change of the buffers (never masked), and what all parts but the server
        remember now."""
        record = self.released(record, round)
        of_local, of_average, buffers = map(record.part, ("local", "average", "buffers"))
        moved = buffers["change"] / buffers["weight"]
        local = self.local.lower(of_local, memory["local"], round)
        update, average = self.average.lower(of_average, memory["average"], round)
        mask, mask_memory = self.mask.lower(record.part("mask"), memory["mask"], round) if self.mask else (None, {})
        return Lowered(update, mask), moved, {**memory, "local": local, "average": average, "mask": mask_memory}

    def step(self, lowered: Lowered, memory: Memory) -> tuple[Tensor, Memory]:
        """What the server adds to the model, lr times its direction under the mask; and the memory after it."""
        if lowered.mask is None:
            state, direction = self.server.direction(memory["server"], lowered.update)
        else:
            assert self.mask is not None
            state, direction = self.mask.direction(lowered.mask, self.server, memory["server"], lowered.update)
        return self.server.lr * direction, {**memory, "server": state}
