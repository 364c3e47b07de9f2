"""Learning rates, and masks' tau, over rounds. A schedule is a frozen dataclass with `at(round)`; a plain number is a
constant one."""

import math
from dataclasses import dataclass

from accord.core.errors import AccordError


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AccordError(f"{name} must be a number, got {value!r}")


def _check_lr(lr: float) -> None:
    _check_number("lr", lr)
    if not (lr > 0.0 and math.isfinite(lr)):
        raise AccordError(f"lr must be above 0, got {lr}")


@dataclass(frozen=True)
class constant:
    """The same rate in every round."""

    lr: float

    def __post_init__(self) -> None:
        _check_lr(self.lr)

    def at(self, round: int) -> float:
        return self.lr


@dataclass(frozen=True)
class exponential:
    """Times `decay` every round: lr * decay^(round - 1)."""

    lr: float
    decay: float = 0.99

    def __post_init__(self) -> None:
        _check_lr(self.lr)
        if not 0.0 < self.decay <= 1.0:
            raise AccordError(f"decay must be above 0 and at most 1, got {self.decay}")

    def at(self, round: int) -> float:
        return self.lr * self.decay ** (round - 1)


@dataclass(frozen=True)
class steps:
    """Times `decay` after every `every` rounds."""

    lr: float
    every: int = 100
    decay: float = 0.1

    def __post_init__(self) -> None:
        _check_lr(self.lr)
        if self.every < 1:
            raise AccordError(f"every must be at least 1 round, got {self.every}")
        if not 0.0 < self.decay <= 1.0:
            raise AccordError(f"decay must be above 0 and at most 1, got {self.decay}")

    def at(self, round: int) -> float:
        return self.lr * self.decay ** ((round - 1) // self.every)


@dataclass(frozen=True)
class cosine:
    """From lr to `floor` along half a cosine over `over` rounds, and `floor` from then on.

    The horizon is a number of its own, not the run's `rounds`, so that raising `rounds` extends a run without rewriting
    its past.
    """

    lr: float
    over: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_lr(self.lr)
        if self.over < 1:
            raise AccordError(f"over must be at least 1 round, got {self.over}")
        if not 0.0 <= self.floor <= self.lr:
            raise AccordError(f"floor must be between 0 and lr, got {self.floor}")

    def at(self, round: int) -> float:
        done = min((round - 1) / self.over, 1.0)
        return self.floor + (self.lr - self.floor) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class ramp:
    """From lr to `end` in a straight line over `over` rounds, and `end` from then on. Either may be 0, and it may
    rise."""

    lr: float
    over: int
    end: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lr", "end"):
            _check_number(name, getattr(self, name))
            if not (getattr(self, name) >= 0.0 and math.isfinite(getattr(self, name))):
                raise AccordError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.over < 1:
            raise AccordError(f"over must be at least 1 round, got {self.over}")

    def at(self, round: int) -> float:
        done = min((round - 1) / self.over, 1.0)
        return (1.0 - done) * self.lr + done * self.end


Schedule = constant | exponential | steps | cosine | ramp
SCHEDULES = {"constant": constant, "exponential": exponential, "steps": steps, "cosine": cosine}


def as_schedule(lr: float | Schedule) -> Schedule:
    """A number as a constant schedule; a schedule as it is."""
    if isinstance(lr, Schedule):
        return lr
    if not isinstance(lr, int | float):
        raise AccordError(f"lr must be a number or a schedule such as cosine(0.1, over=100), got {lr!r}")
    return constant(float(lr))
