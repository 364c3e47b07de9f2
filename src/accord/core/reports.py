"""What clients report, stacked, and the check every report passes before any arithmetic."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from accord.core.layout import Layout
from accord.core.record import Field, State, tally, total

LOST = "report lost"  # why a client is left out by the settings' own doing, not by a fault


@dataclass(frozen=True)
class Reports:
    """K clients' reports. Numbers per client are columns `[..., K, 1]`, so they multiply a `delta` as they are."""

    delta: Tensor  # [..., K, P]: client minus server
    weight: Tensor  # [..., K, 1]: training samples
    steps: Tensor  # [..., K, 1]: local steps taken
    buffers: Tensor  # [..., K, B]: change of the buffers
    # what a part of the algorithm `needs` beyond the delta, [..., K, P]
    extra: dict[str, Tensor] = field(default_factory=dict)
    before: State = field(default_factory=dict)  # the clients' own state when the round began, [..., K, P]
    after: State = field(default_factory=dict)  # and what it will be if the report is accepted

    def of(self, chosen: Sequence[int]) -> "Reports":
        """The reports of these clients alone: `chosen` are their numbers among the K. Consecutive ones are not
        copied."""
        numbers = list(chosen)
        first, count = numbers[0], len(numbers)
        consecutive = numbers == list(range(first, first + count))
        if consecutive and count == self.delta.shape[-2]:
            return self
        places = None if consecutive else torch.tensor(numbers, device=self.delta.device)

        def some(value: Tensor) -> Tensor:
            return value.narrow(-2, first, count) if places is None else value.index_select(-2, places)

        def each(state: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: some(value) for name, value in state.items()}

        return Reports(
            delta=some(self.delta),
            weight=some(self.weight),
            steps=some(self.steps),
            buffers=some(self.buffers),
            extra=each(self.extra),
            before=each(self.before),
            after=each(self.after),
        )

    @property
    def one(self) -> Tensor:
        """A one per client."""
        return torch.ones_like(self.weight)

    @cached_property
    def total(self) -> Field:
        """The clients' updates added up, `[..., P]`, each times its weight."""
        return total(self.delta, self.weight, "update")

    @cached_property
    def votes(self) -> Field:
        """The signs of the clients' updates added up, `[..., P]`. The total is counted on the way: ask for the votes
        first."""
        vars(self)["total"], counted = tally(self.delta, self.weight)  # kept as if it had been asked for
        return counted

    @cached_property
    def total_weight(self) -> Field:
        """The clients' weights added up, `[..., 1]`."""
        return total(self.weight, kind="weight")

    @property
    def count(self) -> Field:
        """The number of clients, `[..., 1]`."""
        *lead, clients, one = self.weight.shape
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        return Field(self.weight.new_full((*lead, one), clients, dtype=wide), kind="count")


def finite(value: Tensor) -> bool:
    """Whether all numbers are. A sum is the fastest look at them; one that overflows says nothing, and they are looked
    at one by one."""
    return bool(value.sum().isfinite()) or bool(value.isfinite().all())


def why_leave_out(
    delta: Tensor,
    samples: int,
    layout: Layout,
    buffers: Tensor | None = None,
    kept: Iterable[Tensor] = (),
    extra: Iterable[Tensor] = (),
) -> str | None:
    """Why one client's report must not be added, or None if it may be. `delta: [P]`, `buffers: [B]`; `kept` is what it
    would remember, `extra` what it reports besides.

    One NaN in one client would otherwise be every client's at the next round.
    """
    if samples <= 0:
        return "no samples"
    if tuple(delta.shape) != (layout.size,):
        return f"wrong shape {tuple(delta.shape)}, expected ({layout.size},)"
    if not finite(delta):
        return "NaN in the update" if bool(delta.isnan().any()) else "infinity in the update"
    if buffers is not None and not finite(buffers):
        return "NaN or infinity in the buffers"
    if not all(map(finite, kept)):
        return "NaN or infinity in what the client would remember"
    if not all(map(finite, extra)):
        return "NaN or infinity in a gradient or loss that it reports"
    return None
