"""Results whose truth is known, to find out how often the judge is right: docs/explanation/judge.md and
tests/studies/test_judge.py."""

from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np

from accord.studies.claim import Claim
from accord.studies.differences import Comparison, Difference
from accord.studies.judge import judge


@dataclass(frozen=True)
class Truth:
    """A table of `shape` (data sets, sizes, algorithms) in which a rival is ahead by `gain`, all in points of accuracy.

    Cells differ by `tau`, seeds by `sd`. `shared` is the correlation of a seed's differences over the algorithms of a
    data set and size, which have its partition and its sampled clients in common. `uneven` is the spread of the
    logarithm of cells' noise."""

    gain: float
    seeds: int
    shape: tuple[int, int, int] = (5, 3, 4)
    sd: float = 0.8
    tau: float = 0.0
    shared: float = 0.0
    uneven: float = 0.0

    def draw(self, rng: np.random.Generator) -> list[Comparison]:
        noise = np.sqrt(1 - self.shared) * rng.standard_normal((*self.shape, self.seeds))
        noise += np.sqrt(self.shared) * rng.standard_normal((*self.shape[:2], 1, self.seeds))
        noise *= self.sd * np.exp(self.uneven * rng.standard_normal((*self.shape, 1)))
        points = self.gain + self.tau * rng.standard_normal((*self.shape, 1)) + noise
        cells = []
        for at in product(*map(range, self.shape)):
            where = {axis: str(place) for axis, place in zip(("dataset", "clients", "algorithm"), at, strict=True)}
            by_seed = {seed: value / 100 for seed, value in enumerate(points[at])}
            cells.append(Comparison(where, "mask", "mean", Difference(by_seed), compare="rule"))
        return cells


def verdicts(truth: Truth, expects: str, draws: int, seed: int = 0, axis: str = "") -> Counter[str]:
    """How often the judge says what, of a gain or of a trend along an axis of the table. A claim that is confirmed for
    some value of an axis only counts as `part`."""
    rng = np.random.default_rng(seed)
    claim = Claim("simulated", "simulated", rival="mask", expects=expects, axis=axis)
    counts: Counter[str] = Counter()
    for _ in range(draws):
        verdict = judge(claim, truth.draw(rng))
        in_part = verdict.kind == "depends" and "confirmed" in verdict.by_value.values()
        counts["part" if in_part else verdict.kind] += 1
    return counts
