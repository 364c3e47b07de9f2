"""Algorithms and masks as short labels, for tables and titles."""

from accord.rules.algorithm import Algorithm
from accord.rules.averages import AVERAGES, mean
from accord.rules.masks import Mask, scaled


def label(algorithm: Algorithm) -> str:
    """`fedadam + gma(0.4)`, or `fedavg by median` where an average of choice stands in for the mean."""
    kind, mask = type(algorithm.average), algorithm.mask
    name = f"{algorithm.name} by {kind.__name__}" if kind in AVERAGES.values() and kind is not mean else algorithm.name
    return name if mask is None else f"{name} + {mask_label(mask)}"


def mask_label(mask: Mask) -> str:
    """`gma(0.4)`, `scaled(gma(0.4))`, `scaled(gma(0.4), length)`; of a schedule, where it begins and how it goes on: `gma(0.8 ramp)`."""
    if isinstance(mask, scaled):
        return f"scaled({mask_label(mask.mask)}{'' if mask.by == 'mean' else f', {mask.by}'})"
    tau = f"{mask.tau:g}" if isinstance(mask.tau, int | float) else f"{mask.tau.lr:g} {type(mask.tau).__name__}"
    return f"{type(mask).__name__}({tau})"
