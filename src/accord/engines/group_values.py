"""The figures of a metric of a whole group: of each group of an evaluation, and of several taken together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from accord.core.measure import Measure, figure_of


class GroupValues(Protocol):
    """One metric on the groups of a table."""

    @property
    def each(self) -> np.ndarray:
        """A figure per group, `[G]`; NaN where there is none."""
        ...

    @property
    def needs(self) -> str:
        """What a group without a figure lacks."""
        ...

    @property
    def about(self) -> str | None:
        """What must be known of the figure of several groups, if it is not computed from their samples."""
        return None

    def over(self, here: np.ndarray) -> float | None:
        """The figure of all samples of some groups, `[G]` of truth values; None where there is none."""
        ...


@dataclass(frozen=True, eq=False)
class Outputs:
    """The model's outputs for all samples of an evaluation, and their targets, group after group. Metrics share
    them."""

    outputs: Tensor  # [N, ...]
    targets: Tensor  # [N, ...]
    bounds: np.ndarray  # [G + 1]
    groups: Sequence[tuple[str, str]]

    @staticmethod
    def joined(parts: Sequence["Outputs"]) -> "Outputs":
        """One after another."""
        some = [part for part in parts if part.bounds[-1]] or parts[:1]
        sizes = np.concatenate([np.diff(part.bounds) for part in parts])
        return Outputs(
            torch.cat([part.outputs for part in some]),
            torch.cat([part.targets for part in some]),
            bounds_of(sizes),
            [group for part in parts for group in part.groups],
        )

    def of(self, here: np.ndarray) -> tuple[Tensor, Tensor]:
        """Those of some groups."""
        chosen = torch.from_numpy(np.repeat(here, np.diff(self.bounds)))
        return self.outputs[chosen], self.targets[chosen]

    def at(self, group: int) -> tuple[Tensor, Tensor]:
        """Those of a group."""
        chosen = slice(int(self.bounds[group]), int(self.bounds[group + 1]))
        return self.outputs[chosen], self.targets[chosen]

    def whose(self, group: int) -> str:
        split, client = self.groups[group]
        return f"the {split} data of {client}"


def bounds_of(sizes: np.ndarray) -> np.ndarray:
    """Where groups of these sizes begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Exact:
    """From the samples themselves."""

    name: str
    measure: Measure
    all: Outputs
    about: str | None = None

    @property
    def needs(self) -> str:
        return self.measure.needs

    @cached_property
    def each(self) -> np.ndarray:
        figures = [
            figure_of(self.name, self.measure, *self.all.at(group), self.all.whose(group)) if size else None
            for group, size in enumerate(np.diff(self.all.bounds))
        ]
        return np.array([np.nan if figure is None else figure for figure in figures], dtype=np.float64)

    def over(self, here: np.ndarray) -> float | None:
        if here.sum() == 1:
            return _number(self.each[here][0])
        output, target = self.all.of(here)
        return figure_of(self.name, self.measure, output, target, f"the samples of {here.sum()} clients")


@dataclass(frozen=True, eq=False)
class Alone:
    """Of clients that each have a model of their own: their own data under their own model, all other data under
    several clients' models, whose figures are averaged."""

    own: Exact
    shared: Sequence[Exact]
    about: str | None = None

    @property
    def needs(self) -> str:
        return self.own.needs

    @cached_property
    def each(self) -> np.ndarray:
        others = np.stack([values.each for values in self.shared])
        means = [_mean([_number(figure) for figure in column]) for column in others.T]
        return np.concatenate([self.own.each, [np.nan if mean is None else mean for mean in means]])

    def over(self, here: np.ndarray) -> float | None:
        count = len(self.own.each)
        if here[:count].any():
            return self.own.over(here[:count])
        return _mean([values.over(here[count:]) for values in self.shared])


@dataclass(frozen=True, eq=False)
class Released:
    """Of clients in a deployment: each client's figure is its own; that of several is computed from what they send,
    added up. A metric that the server does not know has no such figure."""

    measure: Measure | None
    each: np.ndarray
    counts: Tensor  # [G, ...]

    @property
    def needs(self) -> str:
        return "the clients' own metric gave no number" if self.measure is None else self.measure.needs

    @property
    def about(self) -> str:
        if self.measure is None:
            return "has no figure by sample: the server cannot pool a metric that is the clients' own"
        return f"by sample is computed from {self.measure.pooled_from}, not from samples"

    def over(self, here: np.ndarray) -> float | None:
        if here.sum() == 1:
            return _number(self.each[here][0])
        return None if self.measure is None else self.measure.lower(self.counts[torch.from_numpy(here)].sum(0))


@dataclass(frozen=True, eq=False)
class Settled:
    """Groups' figures without what they came from."""

    each: np.ndarray
    needs: str
    about: str | None = None

    def over(self, here: np.ndarray) -> float | None:
        raise NotImplementedError("of several groups nothing is kept")


def _number(figure: float) -> float | None:
    return None if np.isnan(figure) else float(figure)


def _mean(figures: Sequence[float | None]) -> float | None:
    there = [figure for figure in figures if figure is not None]
    return float(np.mean(there)) if there else None
