"""Where a round stands: what a part of an algorithm may know when it turns a record into an update."""

from dataclasses import dataclass

from accord.core.layout import Layout


@dataclass(frozen=True)
class Round:
    """Round `number` (from 1) of a federation of `clients` participating clients, for a model laid out as `layout`.
    `cohort` of them (None: all) were to take part, and a part that draws does so by `seed`."""

    number: int
    layout: Layout
    clients: int
    seed: int = 0
    cohort: int | None = None
