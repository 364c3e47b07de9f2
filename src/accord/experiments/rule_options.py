"""Masks, averages and attacks by the keys of an experiment file."""

import inspect
from collections.abc import Callable
from typing import Any

from accord.attacks import ATTACKS
from accord.causal.rule import causalfed
from accord.core.errors import AccordError
from accord.core.schedule import Schedule, ramp
from accord.experiments.options import Makers
from accord.rules import named
from accord.rules.averages import AVERAGES
from accord.rules.masks import CHOOSING, By, check_tau, scaled

ALGORITHMS: Makers = {**named.ALGORITHMS, "causalfed": causalfed}

# Keys whose meaning hangs on a choice: each choice's constructor says which of them it takes.
MASK_KEYS = ("tau", "tau_to", "tau_over", "scope", "memory", "rescale", "k", "like", "by")
AVERAGE_KEYS = ("share", "attackers", "keep", "agree", "alpha", "constraint", "passes")  # and `weighting`, which is the mean's too
ATTACK_KEYS = ("share", "factor")


def _control(
    like: str = "gma",
    tau: float | Schedule = 0.4,
    scope: str | None = None,
    memory: float | None = None,
    rescale: bool | None = None,
    k: float | None = None,
    by: By = "mean",
) -> scaled:
    """`scaled`, by the name and the keys of the mask that it is the control of."""
    if like not in CHOOSING:
        raise AccordError(f"like must be one of {', '.join(CHOOSING)}, got {like!r}")
    options = {"scope": scope, "memory": memory, "rescale": rescale, "k": k}
    given = {key: value for key, value in options.items() if value is not None}
    takes = inspect.signature(CHOOSING[like]).parameters
    for key, value in given.items():
        if key not in takes:
            raise AccordError(f"{key} has no meaning for a control like {like!r}, got {value!r}")
    return scaled(CHOOSING[like](tau=tau, **given), by)


def _ramping(make: Callable[..., Any]) -> Callable[..., Any]:
    """The constructor of a mask with two keys more: tau goes on to `tau_to` in `tau_over` rounds."""

    def made(tau_to: float | None = None, tau_over: int | None = None, **options: Any) -> Any:
        if (tau_to is None) != (tau_over is None):
            missing, given = ("tau_over", "tau_to") if tau_over is None else ("tau_to", "tau_over")
            raise AccordError(f"{missing} is missing: with {given}, tau moves to tau_to in tau_over rounds")
        if tau_to is not None and tau_over is not None:
            tau = options.get("tau", 0.4)
            check_tau(tau)
            check_tau(tau_to, "tau_to")
            options["tau"] = ramp(tau, tau_over, tau_to)
        return make(**options)

    signature = inspect.signature(make)
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in ("tau_to", "tau_over")]
    made.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
    return made


_MADE: Makers = {**CHOOSING, "scaled": _control}
MASK_MAKERS: Makers = {"none": lambda: None, **{name: _ramping(make) for name, make in _MADE.items()}}
AVERAGE_MAKERS: Makers = AVERAGES
ATTACK_MAKERS: Makers = {"none": lambda: None, **ATTACKS}
